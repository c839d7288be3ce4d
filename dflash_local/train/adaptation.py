"""Adaptation: a server's drafter learns from what the server answers, round by round, while nobody asks.

A round is a run of `dflash-local train`, as a process of its own, from the drafter in use. The new one is taken only if
the engine itself accepts more of it, on prompts that were not learned from. What is kept, all in a folder of the pair:

    answers/        the record that rounds learn from (AnswerRecord)
    drafter.gguf    the best drafter so far, if it is not the original any more
    next.gguf       a better one that the engine has not got yet
    round/          the round that runs, or was stopped: its texts, what `train` leaves, its log
    state.json      what was seen of the record, and how long the next round waits
    rounds.jsonl    what became of each round
    last.log        what the last round's process said
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_local.errors import DFlashError, EngineDeadError, ModelError, RequestError
from dflash_local.file_lock import locked
from dflash_local.media.media_prompt import MediaPrompt
from dflash_local.train.adapted_pair import FLAG, NO_DRAFTER, AdaptedPair
from dflash_local.train.answer_record import LEAST, AnswerRecord
from dflash_local.train.round_texts import LONGEST, RoundTexts, choose_texts, ends, n_new_tokens, read_record
from dflash_local.train.training_child import TrainingChild
from dflash_local.train.workspace import Workspace, whole_file

if TYPE_CHECKING:
    from dflash_local.engine import Engine
    from dflash_local.generation import Completion
    from dflash_local.request_options import RequestOptions

log = logging.getLogger(__name__)

# Times the acceptance length, from which on a new drafter is taken: two measurements of one may be 2% apart.
_GAIN = 1.02
_MOST_WAITS = 32  # times as many tokens, even after many failures: a record has to hold them


@dataclass
class _Round:
    """A round that has begun: as `round.json` keeps it. `seen`: the end of the record then; `seconds` that its process
    ran until the server last ended."""

    number: int
    length: int
    n_new: int
    seen: dict[str, int]
    seconds: float = 0.0


@dataclass
class _State:
    """`waits`: how many times as many tokens as usual the next round waits for; `n_rounds`: how many there were."""

    seen: dict[str, int] = field(default_factory=dict)
    waits: int = 1
    n_rounds: int = 0


@dataclass(frozen=True)
class _Outcome:
    """AL on held-out prompts, of the drafter in use and of the new one; None: the round failed."""

    before: float | None
    after: float | None
    failure: str | None = None

    @property
    def is_better(self) -> bool:
        return self.before is not None and self.after is not None and self.after >= _GAIN * self.before


class Adaptation:
    """The adaptation of one server's pair; without asyncio. `keep` may be called by any thread, `pause` by the one that
    calls `start` and `resume`; all other calls come one after the other.

    Args:
        folder: what `--adapt` names; the pair's own folder is made in it.
        n_tokens: new tokens of answers that make a round due.
        limit: most bytes of the record.
        n_gpu_layers: as the user gave it, for rounds; what --fit chose for the engine leaves no room beside it.

    Attributes:
        is_on: whether it learns; not once its folder cannot be used, or if another server has it.
        has_new_drafter: whether there is one for `hand_over`.
    """

    def __init__(self, folder: Path, n_tokens: int, limit: int, n_gpu_layers: int = -1) -> None:
        self._folder, self._n_tokens, self._limit = folder, n_tokens, limit
        self._n_gpu_layers = n_gpu_layers
        self.is_on, self.has_new_drafter = True, False
        self._held = ExitStack()  # the lock
        self._pair: AdaptedPair | None = None
        self._record: AnswerRecord | None = None
        self._recording = threading.Lock()  # guards `_record`, which ends while the engine may have an answer
        self._state = _State()
        self._round: _Round | None = None
        self._child: TrainingChild | None = None
        self._n_new: int | None = None  # tokens of new answers; None: nobody has counted those of earlier starts
        self._due_at = n_tokens

    # ---- engines ----

    def attach(self, engine: Engine) -> None:
        """Keep the engine's answers from now on, and draft with what earlier rounds made. To be called with each engine
        of the server, before it answers.

        Raises:
            RequestError: the folder cannot be used, or the engine's drafter is none that is trained.
        """
        if self._pair is None and self.is_on:
            try:
                self._open(engine)
            except RequestError:
                self._pair = None
                self._held.close()
                raise
        if self.is_on:
            engine.watch_answers(self.keep)
        if self._pair is not None:  # also if it learns no more
            try:
                self._take_kept(engine)
            except OSError as error:
                self.give_up(error)

    def _open(self, engine: Engine) -> None:
        if engine.options is None or engine.options.drafter is None or engine.info.get("drafter") is None:
            raise RequestError(NO_DRAFTER, param=FLAG, hint=f"give one with -md, or leave {FLAG} out")
        pair = AdaptedPair.of(engine.options, self._folder, engine.n_ctx_slot, self._n_gpu_layers)
        try:
            pair.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._held.enter_context(locked(pair.folder / "lock", lambda: _raise_busy(pair.folder)))
            self._pair, self._state = pair, _State(**_read_json(pair.state) or {})
            self._round = _unfinished(pair)
        except _BusyError as error:
            log.warning("%s", error)
            self.is_on = False
            return
        except (OSError, TypeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it has files of another version"
            raise RequestError(
                f"cannot adapt in {pair.folder}: {why}", param=FLAG, hint=f"name another folder: {FLAG} DIR"
            ) from None
        self._record = AnswerRecord(pair.answers, pair.target, self._limit, FLAG)
        self._due_at = self._n_tokens * self._state.waits
        log.warning(
            "the drafter learns from these answers while nobody asks (%s, experimental), in %s", FLAG, pair.folder
        )

    def _take_kept(self, engine: Engine) -> None:
        """Draft with what earlier rounds made, if there is any. Raises OSError."""
        pair = self._known
        self.has_new_drafter = False
        if pair.next.exists() and self._take_next(engine):
            return
        if not pair.kept.exists():
            return
        pair.drafter = pair.kept
        try:
            engine.replace_drafter(pair.kept)
            log.info("drafting with %s, which earlier rounds of %s made", pair.kept, FLAG)
        except ModelError as error:
            log.warning("%s does not fit any more, so %s drafts: %s", pair.kept, pair.original.name, error.message)
            pair.drafter = pair.original
        except DFlashError as error:  # such as too little memory: rounds go on from it
            log.warning("%s cannot be used now, so %s drafts: %s", pair.kept, pair.original.name, error.message)

    def _take_next(self, engine: Engine) -> bool:
        """Draft with the new drafter, which is the best one from then on. False: the engine has not got it. Raises
        OSError."""
        pair = self._known
        try:
            if not engine.replace_drafter(pair.next):
                return False
        except EngineDeadError:  # it fell asleep: the next one takes the drafter
            return False
        except ModelError as error:
            log.warning("the new drafter cannot be used: %s", error.message)
            self.has_new_drafter = False
            pair.next.unlink(missing_ok=True)
            return False
        except DFlashError as error:
            log.warning("the new drafter cannot be used now, but perhaps after the next start: %s", error.message)
            self.has_new_drafter = False
            return False
        log.info("drafting with the new drafter from now on")
        self.has_new_drafter = False
        pair.next.replace(pair.kept)
        pair.drafter = pair.kept
        return True

    @property
    def _known(self) -> AdaptedPair:
        assert self._pair is not None
        return self._pair

    def keep(self, request: RequestOptions, completion: Completion) -> None:
        """Record an answer."""
        with self._recording:
            if self._record is None:
                return
            self._record(request, completion)
        is_kept = len(completion.tokens) >= LEAST and not isinstance(request.prompt_tokens, MediaPrompt)
        if is_kept and self._n_new is not None:
            self._n_new += len(completion.tokens)

    def hand_over(self, engine: Engine) -> None:
        """Give the engine the new drafter, unless it runs a request just now. Raises OSError."""
        assert self.has_new_drafter
        self._take_next(engine)

    # ---- rounds ----

    @property
    def is_due(self) -> bool:
        """Whether a round should be prepared: one was stopped, or there may be enough new answers."""
        enough = self._n_new is None or self._n_new >= self._due_at
        return self.is_on and self._pair is not None and (self._round is not None or enough)

    def prepare(self, stop: Callable[[], bool]) -> bool:
        """Write what a round needs; `stop` ends that before it is done. False: there is no round to start. Raises
        OSError, DFlashError."""
        if self._round is not None:
            return True
        pair, state, record = self._known, self._state, self._record
        assert record is not None
        record.flush()
        self._n_new = 0  # answers that come meanwhile count twice at most
        lines = read_record(pair.answers, min(LONGEST, pair.n_ctx), stop)
        if lines is None:
            self._n_new = None
            return False
        self._n_new += n_new_tokens(lines, state.seen)
        enough = self._n_tokens * state.waits
        texts = choose_texts(lines, state.seen, self._n_tokens, state.n_rounds) if self._n_new >= enough else None
        if texts is None:
            self._due_at = max(enough, self._n_new + self._n_tokens // 4)
            record.make_room()  # else texts that no round can learn from would fill it for good
            return False
        self._round = _Round(state.n_rounds + 1, texts.length, self._n_new, ends(lines))
        self._write_round(texts)
        self._n_new, self._due_at = 0, self._n_tokens
        record.make_room()
        return True

    def _write_round(self, texts: RoundTexts) -> None:
        pair = self._known
        assert self._round is not None
        shutil.rmtree(pair.round, ignore_errors=True)
        pair.round.mkdir(mode=0o700)
        with whole_file(pair.texts) as file:
            texts.write(file)
        workspace = Workspace(pair.work)
        with workspace.opened():
            workspace.state["held_out"] = texts.held_out
            workspace.save()
        self._keep_round()  # the last, as it says that all others are there

    def _keep_round(self) -> None:
        assert self._round is not None
        _write_json(self._known.begun, asdict(self._round))

    def start(self) -> None:
        """Start the process of the round that was prepared or stopped. Raises OSError, DFlashError."""
        pair = self._known
        assert self._round is not None and self._child is None
        try:
            self._child = TrainingChild(pair.command(self._round.length), pair.log)
        except (OSError, DFlashError) as error:
            self._end_round(_Outcome(None, None, f"it cannot be started: {error}"))
            return
        log.info("training the drafter on %d new tokens of answers, in process %d", self._round.n_new, self._child.pid)

    @property
    def runs(self) -> bool:
        """Whether a round has a process, which may be stopped or have ended."""
        return self._child is not None

    @property
    def has_ended(self) -> bool:
        """Whether the round's process has ended, so that `finish` is next."""
        return self._child is not None and self._child.status is not None

    def pause(self) -> None:
        """Stop the round's process, if there is one."""
        if child := self._child:
            child.pause()

    def resume(self) -> None:
        """Let it go on."""
        if child := self._child:
            child.resume()

    def finish(self) -> None:
        """Take or drop what the round's process has made, once it has ended. Raises OSError, DFlashError."""
        child, current = self._child, self._round
        assert child is not None and current is not None
        self._child = None
        child.close()
        current.seconds += child.seconds
        self._end_round(self._outcome(child))

    def _outcome(self, child: TrainingChild) -> _Outcome:
        try:
            if child.status:
                return _Outcome(None, None, child.last_words())
            evaluations = _read_json(self._known.work / "state.json")["evaluations"]  # type: ignore[index]
            before = next(float(e["al"]) for e in evaluations if e["step"] == 0)
            return _Outcome(before, max(float(e["al"]) for e in evaluations if e["step"] > 0))
        except (OSError, TypeError, KeyError, ValueError, StopIteration) as error:
            return _Outcome(None, None, f"its result cannot be read: {error!r}")

    def _end_round(self, outcome: _Outcome) -> None:
        pair, state, current = self._known, self._state, self._round
        assert current is not None
        self._round = None
        pair.begun.unlink(missing_ok=True)  # the first: with another drafter, nothing of the round can go on
        if outcome.is_better:
            pair.new.replace(pair.next)
            self.has_new_drafter = True
        with suppress(FileNotFoundError):
            pair.log.replace(pair.last_log)
        shutil.rmtree(pair.round, ignore_errors=True)
        state.seen, state.n_rounds = current.seen, current.number
        state.waits = min(2 * state.waits, _MOST_WAITS) if outcome.failure else 1
        self._due_at = self._n_tokens * state.waits
        _write_json(pair.state, asdict(state))
        self._tell(current, outcome)

    def _tell(self, current: _Round, outcome: _Outcome) -> None:
        pair, minutes = self._known, current.seconds / 60
        if outcome.failure:
            log.warning(
                "training the drafter failed after %.1f minutes: %s (%s); the next attempt waits for %d tokens",
                minutes, outcome.failure, pair.last_log, self._due_at,
            )  # fmt: skip
        else:
            log.info(
                "the drafter learned from %d new tokens in %.1f minutes: AL %.2f -> %.2f on held-out prompts; %s",
                current.n_new, minutes, outcome.before, outcome.after,
                "the new one is taken" if outcome.is_better else "the old one stays",
            )  # fmt: skip
        line = {
            "round": current.number, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "tokens": current.n_new,
            "minutes": round(minutes, 2), "before": _rounded(outcome.before), "after": _rounded(outcome.after),
            "taken": outcome.is_better, "failure": outcome.failure,
        }  # fmt: skip
        with os.fdopen(os.open(pair.rounds, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as file:
            file.write(json.dumps(line) + "\n")

    # ---- the end ----

    def give_up(self, error: Exception) -> None:
        """Train no more, and keep no more answers: something of its folder cannot be used."""
        is_foreseen = isinstance(error, (OSError, DFlashError))
        log.warning("the drafter learns no more (%s): %s", FLAG, error, exc_info=None if is_foreseen else error)
        self._end_child()
        self.is_on = False
        self._end_record()
        if self._pair and not self._pair.begun.exists():  # perhaps it filled the disk
            shutil.rmtree(self._pair.round, ignore_errors=True)

    def _end_record(self) -> None:
        with self._recording:
            record, self._record = self._record, None
        if record is not None:
            record.close()

    def close(self) -> None:
        """End what runs; a round that is stopped goes on with the next server of this pair."""
        self.is_on = False
        self._end_child()
        self._end_record()
        self._held.close()

    def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()
            self._keep_seconds(child.seconds)

    def _keep_seconds(self, seconds: float) -> None:
        assert self._round is not None
        self._round.seconds += seconds
        with suppress(OSError, DFlashError):  # only its minutes will be too few
            self._keep_round()


def _rounded(al: float | None) -> float | None:
    return None if al is None else round(al, 3)


def _unfinished(pair: AdaptedPair) -> _Round | None:
    """The round that an earlier server began."""
    begun = _read_json(pair.begun)
    return None if begun is None else _Round(**begun)


def _read_json(path: Path) -> Mapping[str, Any] | None:
    """None: it is not there, or no object. Raises OSError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Raises DFlashError."""
    with whole_file(path) as file:
        file.write(json.dumps(data).encode())


class _BusyError(Exception):
    """Another server has the folder."""


def _raise_busy(folder: Path) -> None:
    raise _BusyError(f"another server adapts the drafter in {folder}: this one does not, and keeps no answers")
