"""MediaList: the media of one prompt, bounded together."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dflash_local.errors import MediaError, RequestError
from dflash_local.media.abilities import Abilities
from dflash_local.media.audio_file import audio_format, read_audio
from dflash_local.media.data_url import read_base64
from dflash_local.media.image_file import read_image
from dflash_local.media.media_limits import MAX_MEDIA, MAX_PROMPT_PIXELS
from dflash_local.media.medium import Kind, Medium
from dflash_local.words import MIB


class MediaList:
    """Media in order; `all` are those that were added."""

    def __init__(self) -> None:
        self.all: list[Medium] = []
        self._n_pixels = 0

    def add(self, medium: Medium, param: str) -> None:
        """Add one. Raises RequestError, or MediaError, if there are too many or they are too large."""
        self.all.append(medium)
        self._n_pixels += medium.width * medium.height
        if len(self.all) > MAX_MEDIA:
            raise RequestError(f"{param} is one too many: at most {MAX_MEDIA} images and audio are read", param=param)
        if self._n_pixels > MAX_PROMPT_PIXELS:
            why = f"has, with the images before it, more than {MAX_PROMPT_PIXELS // MIB} Mi pixels"
            raise MediaError.of(param, "image", why, hint="make them smaller")


def blamed(error: RequestError, media: Sequence[Medium], places: Sequence[str]) -> RequestError:
    """libdflash's `error` about media[i], with its place; any other one as it is."""
    found = re.match(r"media\[(\d+)\]", error.message)
    index = int(found[1]) if found else len(places)
    if found is None or index >= len(places):
        return error
    return MediaError.of(places[index], media[index].kind, error.message[found.end() :].strip())


def media_of(files: Sequence[str], abilities: Abilities, param: str) -> list[Medium]:
    """Images and audio of base64, whose kinds their own bytes tell.

    Raises:
        MediaError: one cannot be read, or the model takes none; RequestError: there are too many.
    """
    media = MediaList()
    for index, text in enumerate(files):
        place = f"{param}[{index}]"
        try:
            data = read_base64(text)
        except ValueError as error:
            raise MediaError.of(place, "image", str(error)) from None
        kind: Kind = "image" if audio_format(data) is None else "audio"
        abilities.check(kind, place, "Multimodal data provided, but model does not support multimodal requests. ")
        media.add(read_image(data, place) if kind == "image" else read_audio(data, place), place)
    return media.all
