"""How much text a step of the fit takes, and how much of it at once."""

from __future__ import annotations

from dflash_local.train.train_settings import TrainSettings

GROUP = 32  # anchors of one text in one batch


def texts_of_step(settings: TrainSettings) -> int:
    return max(1, round(settings.batch / GROUP))


def texts_at_once(settings: TrainSettings, device: str) -> int:
    """Those of a step that are computed together on a torch device of this type; gradients are summed over the
    parts."""
    return part_size(texts_of_step(settings), settings.micro or (4 if device == "cpu" else 32))


def part_size(n_texts: int, most: int) -> int:
    """Texts of each part of a step of `n_texts`: at most so many, and as many in all parts."""
    return next(size for size in range(min(most, n_texts), 0, -1) if n_texts % size == 0)
