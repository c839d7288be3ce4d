"""Record: the output of `dflash-local bench --format json`, parsed and checked."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt, ValidationError, model_validator

from dflash_local.errors import RequestError
from dflash_local.stats import tokens_per_second

# Control characters, surrogates (from file names that are not UTF-8), and marks that change the text direction.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
PLAIN, DRAFTED = "plain", "drafted"


def _clean(value: Any) -> Any:
    """JSON with U+FFFD in place of each of these."""
    if isinstance(value, str):
        return _UNSEEN.sub("\ufffd", value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(name): _clean(item) for name, item in value.items()}
    return value


Share = Annotated[float, Field(ge=0, le=1)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, allow_inf_nan=False)


class Answer(_Part):
    """One answer: tokens after the first, the seconds since it, target passes after the prompt's."""

    tokens: NonNegativeInt
    seconds: NonNegativeFloat
    passes: NonNegativeInt
    drafted: NonNegativeInt
    ttft_ms: NonNegativeFloat

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return tokens_per_second(self.tokens, self.seconds)


class Engine(_Part):
    """What our engine did and chose; values that the library did not report are None or empty."""

    phase_shares: dict[str, Share] = {}
    nodes: dict[int, NonNegativeInt] | None = None
    lengths: dict[int, NonNegativeInt] | None = None
    reasons: dict[str, NonNegativeInt] | None = None
    cost_source: str | None = None


class Environment(_Part):
    """The machine and the settings. Records made from Python have neither file names nor a command."""

    machine: str
    threads: int
    load: float
    target: str
    drafter: str
    temperature: float
    n_predict: int
    repeats: int
    date: str
    dflash_local: str
    llama: str | None
    backends: str
    devices: str = ""
    commit: str = ""  # older records lack this and `build`
    build: str = ""
    target_file: str = ""
    drafter_file: str = ""
    command: str = ""


class Costs(_Part):
    """Milliseconds of a target pass by its rows, and of a drafter pass by the length of its block."""

    verify_ms: dict[int, NonNegativeFloat] = {}
    draft_ms: dict[int, NonNegativeFloat] = {}


class System(_Part):
    """One way of decoding: the figures of its summary, and its answers by repeat and prompt."""

    name: str
    tokens_per_second: NonNegativeFloat
    ttft_ms: NonNegativeFloat
    al: NonNegativeFloat
    acceptance: tuple[Share, ...]
    tokens: NonNegativeInt
    drafted: NonNegativeInt
    answers: list[list[Answer]]

    @property
    def drafts(self) -> bool:
        """Did it draft anything?"""
        return self.drafted > 0

    def repeats(self) -> list[float]:
        """Tokens per second of each repeat."""
        sums = ((sum(one.tokens for one in answers), sum(one.seconds for one in answers)) for answers in self.answers)
        return [tokens_per_second(*both) for both in sums]

    def by_prompt(self) -> list[list[float]]:
        """Tokens per second of each repeat, for each prompt."""
        return [[answer.speed for answer in answers] for answers in zip(*self.answers, strict=True)]

    def al_by_prompt(self) -> list[float]:
        """Tokens per target pass, for each prompt."""
        sums = [
            (sum(answer.tokens for answer in answers), sum(answer.passes for answer in answers))
            for answers in zip(*self.answers, strict=True)
        ]
        return [tokens / passes if passes else 0.0 for tokens, passes in sums]


class Best(_Part):
    """The fastest baseline of a kind, and our speed over it."""

    best: str
    ratio: NonNegativeFloat


class Record(_Part):
    """The whole record, with the ways of decoding in the order of their measurement."""

    environment: Environment
    prompts: NonNegativeInt
    same_answers: NonNegativeInt
    speedup: NonNegativeFloat
    over_baselines: dict[str, Best]
    systems: list[System] = Field(min_length=1)
    engine: dict[str, Engine]
    beginnings: list[str]
    costs: Costs

    @model_validator(mode="before")
    @classmethod
    def _collect(cls, data: Any) -> Any:
        """Move the summaries, which the file has at its top level by name, into `systems`."""
        if not isinstance(data, dict) or not isinstance(data.get("answers"), dict):
            raise ValueError(
                "it has no 'answers': it was not made by 'dflash-local bench --format json' of this version"
            )
        answers = data["answers"]
        if missing := [name for name in answers if not isinstance(data.get(name), dict)]:
            raise ValueError(f"it has answers of {missing[0]!r:.80}, but no summary of them")
        return data | {"systems": [data[name] | {"name": name, "answers": answers[name]} for name in answers]}

    @model_validator(mode="after")
    def _agree(self) -> Record:
        n_prompts = {len(answers) for system in self.systems for answers in system.answers} | {len(self.beginnings)}
        if n_prompts != {self.prompts} or not all(system.answers for system in self.systems):
            raise ValueError(f"it is about {self.prompts} prompts, but does not have an answer for each")
        return self

    @classmethod
    def parse(cls, data: str | bytes, source: str) -> Record:
        """From the text of Results.to_json(); `source` is its name in errors. Raises RequestError."""
        try:
            return cls.model_validate(_clean(json.loads(data)))
        except ValidationError as error:
            first = error.errors()[0]
            why = ": ".join((*filter(None, [".".join(map(str, first["loc"]))]), first["msg"]))
        except (ValueError, RecursionError) as error:
            why = f"not JSON: {error}"
        raise RequestError(
            f"{source} is not a record of a benchmark: {why}",
            param="--from",
            hint="give a file that 'dflash-local bench --format json -o FILE' wrote",
        )

    def system(self, name: str) -> System | None:
        return next((system for system in self.systems if system.name == name), None)

    @property
    def base(self) -> System:
        """The base of all comparisons: plain decoding."""
        return self.system(PLAIN) or self.systems[0]

    @property
    def ours(self) -> System:
        """The system to show: drafted, or plain without a drafter."""
        return self.system(DRAFTED) or self.base

    def ratio(self, system: System, base: System | None = None) -> float:
        """A system's tokens per second over another's (default: plain decoding's)."""
        base = base or self.base
        return system.tokens_per_second / base.tokens_per_second if base.tokens_per_second else 0.0

    def shown(self) -> list[System]:
        """The systems to compare prompt by prompt: ours, and the best of each kind of baseline."""
        best = {entry.best for entry in self.over_baselines.values()}
        return [system for system in self.systems if system.name in (PLAIN, DRAFTED) or system.name in best]
