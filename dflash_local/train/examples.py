"""Examples: the prompts that a target is to answer, from files and folders, and those of them that are held out."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_local.bench import read_prompts
from dflash_local.errors import ContextLengthError, RequestError
from dflash_local.media.media_prompt import MediaPrompt
from dflash_local.sampling import SamplingParams
from dflash_local.train.written_texts import Text, read_texts, shows_media

if TYPE_CHECKING:
    from dflash_local.conversation import ChatPrompt
    from dflash_local.engine import Engine
    from dflash_local.media.medium import Medium

Rendered = list[int] | dict[str, Any]  # a prompt's tokens, as JSON; with media {"key": ..., "tokens": ...}
_SUFFIXES = (".jsonl", ".txt")


@dataclass(frozen=True)
class Example:
    """A prompt as typed and as tokens: rows of its media are -2, -3, ..., one number for each medium. `key` is the same
    for the same tokens and media in every run."""

    key: str
    prompt: dict[str, Any]
    tokens: list[int]

    def tokens_for(self, engine: Engine, chat: ChatPrompt | None = None) -> Sequence[int]:
        """The tokens as this engine numbers media, which mean something as long as the result lives. `chat`: the prompt
        as it is rendered now, if the caller has it; its words may be others, where the template prints the date."""
        if not shows_media(self.tokens):
            return self.tokens
        given = engine.chat_tokens(chat or engine.apply_chat(self.prompt))
        assert isinstance(given, MediaPrompt)
        numbers = list(dict.fromkeys(token for token in given if token < 0))
        tokens = array("i", (token if token >= 0 else numbers[-2 - token] for token in self.tokens))
        return MediaPrompt(tokens, given.rows, given)


@dataclass(frozen=True)
class Examples:
    """Prompts to learn from, prompts to measure on, and texts of this target that were there already (`recorded`), as
    far as they are learned from."""

    learned: list[Example]
    held_out: list[Example]
    recorded: list[Text]


def read_data(paths: Iterable[Path], work: Path) -> tuple[list[dict[str, Any]], list[Text]]:
    """The prompts and the recorded texts of files and of all .jsonl and .txt files in folders, without those of the run
    itself, in `work`. An assistant's last message is left out: the target answers itself. Raises RequestError."""
    prompts: list[dict[str, Any]] = []
    texts: list[Text] = []
    for path in _files(paths, work.resolve()):
        if _is_record(path):
            texts += _without_media(path, read_texts(path))
        else:
            prompts += questions(path)
    return prompts, texts


def _files(paths: Iterable[Path], work: Path) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        # A record that nobody has asked anything is empty.
        found = sorted(
            file for file in path.rglob("*")
            if file.suffix in _SUFFIXES and file.is_file() and file.stat().st_size
            and work not in file.resolve().parents
        )  # fmt: skip
        if not found:
            raise RequestError(f"{path} holds no .jsonl or .txt file", param="--data")
        yield from found


def _is_record(path: Path) -> bool:
    """Does a file hold answers, as `serve --record` and training runs write them?"""
    try:
        with path.open("rb") as file:
            while (first := file.readline(1 << 24)).isspace():
                pass
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}", param="--data") from None
    try:
        data = json.loads(first)
    except ValueError:
        return first.startswith(b'{"key":') and not first.endswith(b"\n")  # its only line may be being written
    return isinstance(data, dict) and data.keys() >= {"prompt", "answer", "key"}


def _without_media(path: Path, texts: Iterable[Text]) -> Iterator[Text]:
    for text in texts:
        if shows_media(text.prompt):
            raise RequestError(
                f"{path} holds an answer about images or audio, without them",
                param="--data",
                hint="give the prompts with their media instead",
            )
        yield text


def questions(path: Path) -> list[dict[str, Any]]:
    """The prompts of a file, without an assistant's last message: the target answers itself. Raises RequestError."""
    return list(map(_without_answer, read_prompts(path)))


def _without_answer(prompt: dict[str, Any]) -> dict[str, Any]:
    messages = prompt.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    if messages and isinstance(last, dict) and last.get("role") == "assistant":
        return prompt | {"messages": messages[:-1]}
    return prompt


def tokenized(
    engine: Engine, prompts: Sequence[dict[str, Any]], n_most: int, param: str = "--data",
    rendered: dict[str, Rendered] | None = None,
) -> list[Example]:  # fmt: skip
    """The prompts of `param` as the engine's chat template renders them, each once; those of more than `n_most` tokens
    are left out. `rendered`: tokens by `digest_of` a prompt, which are taken as they are, since a template may print
    the date; others are added. Raises RequestError that names a prompt which the template or the engine
    refuses."""
    examples: dict[str, Example] = {}
    known = {} if rendered is None else rendered
    for number, prompt in enumerate(prompts, 1):
        digest = digest_of(prompt)
        try:
            if digest in known:
                tokens, key = _known(known[digest])
            elif "messages" in prompt:
                chat = engine.apply_chat(prompt)
                if chat.sampling.get("grammar"):
                    engine.check_options(SamplingParams(**chat.sampling))  # compiles it
                tokens = _numbered(engine.chat_tokens(chat))
                key = key_of(tokens, chat.media)
                known[digest] = {"key": key, "tokens": tokens} if chat.media else tokens
            else:
                tokens = known[digest] = engine.tokenize(prompt["prompt"])
                key = key_of(tokens)
        except ContextLengthError:
            continue
        except RequestError as error:
            raise RequestError(f"{param}, prompt {number}: {error.message}", param=param, hint=error.hint) from None
        if 0 < len(tokens) <= n_most:
            examples.setdefault(key, Example(key, prompt, tokens))
    if not examples:
        raise RequestError(
            f"no prompt of {param} has {n_most} tokens or fewer", param=param, hint="raise --length, or cut them"
        )
    return list(examples.values())


def with_recorded(asked: Sequence[Example], texts: Sequence[Text], n_most: int) -> list[Example]:
    """`asked`, and the prompts of recorded texts of at most `n_most` tokens; each once. Raises RequestError if there
    are none."""
    if not asked and not texts:
        raise RequestError("--data holds no prompts and no recorded answers", param="--data")
    found = {
        text.key: Example(text.key, {"tokens": text.prompt}, text.prompt)
        for text in texts if len(text.prompt) <= n_most
    }  # fmt: skip
    found |= {example.key: example for example in asked}
    if not found:
        raise RequestError(
            f"no recorded prompt of --data has {n_most} tokens or fewer", param="--data", hint="raise --length"
        )
    return list(found.values())


def key_of(tokens: Sequence[int], media: Sequence[Medium] = ()) -> str:
    """A prompt's name."""
    digest = hashlib.sha256(array("i", tokens).tobytes())
    for medium in media:
        digest.update(medium.hash)
    return digest.hexdigest()[:16]


def digest_of(prompt: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(prompt, sort_keys=True).encode()).hexdigest()[:16]


def _known(rendered: Rendered) -> tuple[list[int], str]:
    """Its tokens and its key."""
    if isinstance(rendered, list):
        return rendered, key_of(rendered)
    return rendered["tokens"], rendered["key"]


def _numbered(tokens: Sequence[int]) -> list[int]:
    """Tokens whose media have the numbers of `Example`, whatever those of this engine are."""
    numbers: dict[int, int] = {}
    return [token if token >= 0 else numbers.setdefault(token, -2 - len(numbers)) for token in tokens]


def check_enough(n_prompts: int) -> None:
    """Raise RequestError if there is only one."""
    if n_prompts < 2:
        raise RequestError("one prompt is not enough: some are held out to measure on", param="--data")


def hold_out(examples: Sequence[Example], n: int, known: Sequence[str]) -> list[Example]:
    """Examples to measure on: the `known` ones, else `n`, evenly spread; always fewer than half. Raises RequestError
    if there is only one, or if a known one is missing: measurements with and without it cannot be compared."""
    check_enough(len(examples))
    keys = set(known)
    if missing := keys - {example.key for example in examples}:
        raise RequestError(
            f"{len(missing)} of the {len(keys)} prompts that were held out are not in --data any more",
            param="--data",
            hint="give what you gave before (more may be added), or '--restart answer' to begin anew (also where the "
            "chat template prints the date and an earlier version began), or another folder with --work",
        )
    if not keys:
        n = min(n, (len(examples) + 1) // 2 if len(examples) < 4 else len(examples) // 2)
        step = len(examples) / n
        keys = {examples[int(i * step)].key for i in range(n)}
    return [example for example in examples if example.key in keys]
