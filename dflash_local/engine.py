"""Engine: a target, an optional drafter and their slots, behind a Python API that any thread may use."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

from typing_extensions import Unpack

from dflash_local.arguments import check, checked
from dflash_local.conversation import (
    CHAT_FIELDS,
    AnswerParser,
    ChatCompletion,
    ChatDelta,
    ChatPrompt,
    chat_body,
    stream_deltas,
    without_names,
)
from dflash_local.engine_loader import EngineLoader, LoadedEngine
from dflash_local.engine_options import EngineOptions
from dflash_local.errors import ContextLengthError, RequestError
from dflash_local.generation import Chunk, Completion, Generation, Progress, Step, Stream, Timings
from dflash_local.inspection import DraftProbe, Inspection, Score, Taps
from dflash_local.keywords import ChatKeywords, GenerateKeywords, SubmitChatKeywords, SubmitKeywords
from dflash_local.machine import kept_acceptance
from dflash_local.media.content_parts import MarkedConversation
from dflash_local.media.media_list import blamed
from dflash_local.media.media_prompt import MediaPrompt, text_tokens
from dflash_local.media.media_sources import MediaSources
from dflash_local.media.medium import Medium
from dflash_local.native import NativeEngine, PreparedRequest, TreeRows, schema_ignored
from dflash_local.option import takes_arguments_of, with_arguments
from dflash_local.request_options import RequestOptions, stop_strings
from dflash_local.sampling import SAMPLING_FIELDS, SamplingParams
from dflash_local.token_probs import TokenProb

__all__ = [
    "ChatCompletion", "ChatDelta", "ChatPrompt", "Chunk", "Completion", "DraftProbe", "Engine", "Generation",
    "Progress", "SamplingParams", "Score", "SlotFile", "Step", "Stream", "Taps", "Timings", "TokenProb", "TreeRows",
]  # fmt: skip

Messages = list[dict[str, Any]]  # a conversation in OpenAI's shape

# Prompts with more characters than this per token of the context are checked for length before they are tokenized.
_LONG_TEXT = 8
_MOST_PARTS = 64  # of a text in an answer, such as its thoughts
_REQUEST_ALONE = MediaSources()


class SlotFile(NamedTuple):
    """The file that `save_slot` wrote or `restore_slot` read."""

    n_tokens: int
    n_bytes: int
    milliseconds: float


class Engine(Inspection):
    """Generates text with a quantized target, made faster by a DFlash drafter; the output is the target's alone.

        with Engine("target.gguf", "drafter.gguf") as engine:
            print(engine.generate("What is 48 plus 24?", max_tokens=64).text)

    The arguments are those of EngineOptions, where each is explained. `options` has them; it is None if the native
    engine was made elsewhere.

    Raises:
        NativeLibraryError: the patched llama.cpp is missing.
        ModelError, PairError: a file is damaged or unsupported, or the two do not belong together. Errors that the
            files' headers show are raised before anything is loaded.
        RequestError: an argument is out of range.
    """

    options: EngineOptions | None
    _cost_file: Path | None = None  # of this pair, if what its drafts bring is kept beside it

    @takes_arguments_of(EngineOptions)
    def __init__(self, options: EngineOptions) -> None:
        loader = EngineLoader(options)
        self._take(loader, loader.load)

    @classmethod
    @checked
    def of(cls, loaded: LoadedEngine) -> Engine:
        """The engine that was loaded in any thread; it takes ownership. Raises RequestError if the engine cannot keep
        what its options promise."""
        engine = cls.__new__(cls)
        engine._take(loaded.loader, lambda: loaded.native)
        return engine

    @classmethod
    @checked
    def over(cls, native: NativeEngine, *, max_queue: int = 64) -> Engine:
        """An engine over an existing native engine, of which it takes ownership."""
        engine = cls.__new__(cls)
        engine.options = None
        engine._attach(lambda: native, int(native.info()["n_slots"]), max_queue=max_queue)
        return engine

    def _take(self, loader: EngineLoader, create: Callable[[], NativeEngine]) -> None:
        """Become the engine that `create`, on the engine's thread, gives: what the loader loads or has loaded."""
        self.options = loader.options
        self._attach(create, self.options.n_slots, max_queue=self.options.max_queue, facts=loader.facts)
        self._cost_file = loader.cost_file if self._info["drafter"] else None
        try:
            loader.check(self._info)
        except RequestError:
            self.close()
            raise

    def close(self) -> None:
        """Stop and free everything; requests in flight get an EngineDeadError. Idempotent."""
        if self._cost_file:
            kept_acceptance.keep(self._cost_file, self.throughput.total)
        super().close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- text ----

    @checked
    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids; `add_special` adds BOS/EOS if the model wants them, `parse_special` parses control tokens."""
        self._raise_if_closed()
        return self._native.tokenize(text, add_special, parse_special)

    @overload
    def tokenize_prompt(
        self, prompt: str | Sequence[str | int], media: tuple[()] = (), *, add_special: bool = True
    ) -> list[int]: ...

    @overload
    def tokenize_prompt(
        self, prompt: str | Sequence[str | int], media: Sequence[Medium], *, add_special: bool = True
    ) -> Sequence[int]: ...

    @checked
    def tokenize_prompt(
        self, prompt: str | Sequence[str | int], media: Sequence[Medium] = (), *, add_special: bool = True
    ) -> Sequence[int]:
        """`tokenize_parts` for a prompt: one that cannot fit is refused before it is read.

        With `media`, a text in which the i-th marker (`abilities.marker`) stands for `media[i]`. The result is then a
        MediaPrompt, which `submit` takes; its rows of media are negative numbers.

        Raises:
            ContextLengthError: it has more tokens than a slot's context, however its text is tokenized.
            RequestError: the text has another number of markers; MediaError: the model does not read such media.
        """
        parts = [prompt] if isinstance(prompt, str) else prompt
        texts = [part for part in parts if isinstance(part, str)]
        n_least = len(parts) - len(texts)
        if sum(map(len, texts)) > _LONG_TEXT * self.n_ctx_slot:
            n_least += sum(-(-len(text.encode("utf-8", "replace")) // self.longest_piece) for text in texts)
        if n_least >= self.n_ctx_slot:
            raise self._too_long(n_least, counted=not texts)
        if media:
            return self._media_prompt(prompt, media, add_special)
        return self._tokens_of("prompt", parts, add_special=add_special, parse_special=True)

    def _media_prompt(
        self, prompt: str | Sequence[str | int], media: Sequence[Medium], add_special: bool
    ) -> MediaPrompt:
        for medium in media:
            self.abilities.check(medium.kind, "prompt")
        if not isinstance(prompt, str):
            raise RequestError("a prompt with media must be a text: media have no token ids", param="prompt")
        n_markers = prompt.count(self.abilities.marker)
        if n_markers != len(media):
            raise RequestError(
                f"the prompt has {n_markers} markers ({self.abilities.marker}) for {len(media)} media", param="prompt"
            )
        self._raise_if_closed()
        return self._native.prompt(prompt, add_special, media)

    @checked
    def tokenize_parts(
        self, parts: str | Sequence[str | int], *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        """Text, or a list of texts and token ids, as llama-server reads it; only text at the beginning gets BOS."""
        parts = [parts] if isinstance(parts, str) else parts
        return self._tokens_of("parts", parts, add_special=add_special, parse_special=parse_special)

    def _tokens_of(self, name: str, parts: Sequence[str | int], *, add_special: bool, parse_special: bool) -> list[int]:
        """The tokens of the argument `name`, whose elements nobody has checked yet."""
        tokens: list[int] = []
        for place, part in enumerate(parts):
            if isinstance(part, str):
                tokens += self.tokenize(part, add_special=add_special and place == 0, parse_special=parse_special)
            else:
                if type(part) is not int:
                    check(f"{name}[{place}]", part, str | int)
                tokens.append(part)
        return tokens

    @checked
    def token_bytes(self, tokens: Sequence[int]) -> list[bytes]:
        """The bytes of each token, perhaps only a part of a character."""
        pieces = self._scheduler.pieces(True)
        return [pieces[token] for token in self._token_array(tokens, "tokens")]

    @cached_property
    def eog_tokens(self) -> list[int]:
        """Tokens that end an answer."""
        return [token for token in range(self.n_vocab) if self._native.token_is_eog(token)]

    @cached_property
    def longest_piece(self) -> int:
        """Bytes of the longest token."""
        return max(len(self._native.token_piece(token, True)) for token in range(self.n_vocab))

    @checked
    def detokenize(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """Text of token ids; control tokens are left out unless `special`, and rows of media in any case."""
        pieces, tokens = self._scheduler.pieces(special), text_tokens(tokens)
        return b"".join([pieces[token] for token in self._token_array(tokens, "tokens")]).decode("utf-8", "replace")

    @checked
    def tokens_through(self, text: str, completion: Completion, generation: Generation) -> int:
        """The number of an answer's tokens up to the end of `text`; 0 if the answer does not contain it. If it has the
        text in parts, such as thoughts with words between them, these words do not count."""
        answer = completion.text
        spans = _spans(text, answer)
        if not spans:
            return 0
        pieces = self._scheduler.pieces(generation.request.special)
        starts = [*accumulate((len(pieces[token]) for token in completion.tokens), initial=0)][:-1]  # bytes

        def tokens_before(place: int) -> int:
            return bisect_left(starts, len(answer[:place].encode()))

        between = sum(tokens_before(begin) - tokens_before(end) for (_, end), (begin, _) in pairwise(spans))
        return tokens_before(spans[-1][1]) - between

    @checked
    def pieces(self, special: bool | frozenset[int] = False) -> Mapping[int, bytes]:
        """The bytes of each token, perhaps a part of a UTF-8 character. Control tokens are empty, unless `special` is
        True or holds them."""
        return self._scheduler.pieces(special)

    # ---- generation ----

    # Not @checked: RequestOptions checks all arguments.
    def submit(
        self, prompt_tokens: Sequence[int], sampling: SamplingParams | None = None, **options: Unpack[SubmitKeywords]
    ) -> Generation:
        """Check and prepare a request on the calling thread, then queue it; never blocks on the engine.

        Raises:
            RequestError: an argument is out of range (`param` names it); ContextLengthError: the prompt is too long.
            QueueFullError: too many requests wait.
            EngineDeadError: the engine was closed or died.
        """
        # `prompt_tokens` owns the media behind its placeholder rows, so keep it alive until the request is prepared.
        return self._scheduler.submit(*self._prepared(RequestOptions(prompt_tokens, sampling=sampling, **options)))

    submit.__doc__ = with_arguments(submit.__doc__, RequestOptions)

    def check_options(self, sampling: SamplingParams | None = None, **options: Unpack[SubmitKeywords]) -> None:
        """Refuse what `submit` refuses with any prompt; nothing is queued. Raises RequestError or EngineDeadError."""
        self._prepared(RequestOptions([0], sampling=sampling, **options))

    def _prepared(self, request: RequestOptions) -> tuple[RequestOptions, PreparedRequest]:
        """The request, checked, and what the native engine made of it."""
        request = self._with_tokens(request)
        if request.id_slot is not None:
            self._check_slot(request.id_slot, "id_slot")
        for name, most in (("n_probs", self.n_vocab), ("probs_from", request.n_prompt)):
            if not 0 <= (value := getattr(request, name)) <= most:
                raise RequestError(f"{name} must be an integer from 0 to {most}, got {value!r:.80}", param=name)
        # On the caller's thread: a large grammar takes long to compile, which must not hold up the engine's thread.
        return request, self._native.prepare(request.native_params())

    def _with_tokens(self, request: RequestOptions) -> RequestOptions:
        """The request with its tokens as int32, checked against the vocabulary and a slot's context."""
        prompt = request.prompt_tokens
        tokens = self._token_array(text_tokens(prompt), "prompt")
        if not len(prompt):
            raise RequestError("the prompt is empty: give at least one token", param="prompt")
        if len(prompt) >= self.n_ctx_slot:
            raise self._too_long(len(prompt))
        predicted = self._token_array(request.prediction, "prediction")
        if len(predicted) > self.n_ctx_slot:
            raise RequestError(
                f"the prediction has {len(predicted)} tokens, more than the context of {self.n_ctx_slot} in which the "
                "answer must fit",
                param="prediction",
            )
        held = prompt.without_owner() if isinstance(prompt, MediaPrompt) else tokens
        return replace(request, prompt_tokens=held, prediction=predicted)

    @checked
    def end_reasoning(self, generation: Generation) -> bool:
        """End the reasoning of a running answer: the model goes on with the answer itself, after
        `reasoning_budget_message` if its request had one. Waits for the running step.

        Returns False if it is not reasoning: not yet, no longer, or never with its template.
        """
        return self._scheduler.end_reasoning(generation).result()

    @staticmethod
    @checked
    def ignored(sampling: SamplingParams) -> tuple[str, ...]:
        """The parts of the request's JSON schema that its grammar does not enforce, such as
        "json_schema.properties.a.multipleOf". Those of a conversation are in `ChatPrompt.ignored`.

        Raises:
            RequestError: no grammar can be made of the schema; `param` is the part.
        """
        schema = sampling.json_schema
        return tuple(schema_ignored(schema)) if isinstance(schema, Mapping) else ()

    @checked
    def generate(
        self, prompt: str | Sequence[int], sampling: SamplingParams | None = None, **options: Unpack[GenerateKeywords]
    ) -> Completion:
        """The continuation of `prompt`. Options are those of `submit` and every field of SamplingParams."""
        return _result(self._start(prompt, sampling, options))

    @checked
    def stream(
        self, prompt: str | Sequence[int], sampling: SamplingParams | None = None, **options: Unpack[GenerateKeywords]
    ) -> Stream[Chunk]:
        """`generate`, chunk by chunk; closing the iterator cancels the request."""
        generation = self._start(prompt, sampling, options)
        return Stream(generation, iter(generation))

    def _start(
        self, prompt: str | Sequence[int], sampling: SamplingParams | None, options: Mapping[str, object]
    ) -> Generation:
        given: dict[str, Any] = dict(options)
        sampling = _take_sampling(sampling, given)
        tokens = self.tokenize_prompt(prompt) if isinstance(prompt, str) else prompt
        return self.submit(tokens, sampling, **given)

    # ---- chat ----

    @overload
    def chat(
        self,
        messages: Messages,
        sampling: SamplingParams | None = None,
        *,
        stream: Literal[False] = False,
        sources: MediaSources = ...,
        **options: Unpack[ChatKeywords],
    ) -> ChatCompletion: ...

    @overload
    def chat(
        self,
        messages: Messages,
        sampling: SamplingParams | None = None,
        *,
        stream: Literal[True],
        sources: MediaSources = ...,
        **options: Unpack[ChatKeywords],
    ) -> Stream[ChatDelta]: ...

    @checked
    def chat(
        self,
        messages: Messages,
        sampling: SamplingParams | None = None,
        *,
        stream: bool = False,
        sources: MediaSources = _REQUEST_ALONE,
        **options: Unpack[ChatKeywords],
    ) -> ChatCompletion | Stream[ChatDelta]:
        """Answer a conversation in OpenAI's shape.

        For models that read them, contents may have parts with images and audio: OpenAI's `image_url` and
        `input_audio`, or `{"type": "image", "image": ...}` and `{"type": "audio", "audio": ...}` with bytes, a
        `pathlib.Path`, or a picture of Pillow's. `sources` allows URLs of other hosts and of files.

        Options are OpenAI's `tools`, `tool_choice`, `parallel_tool_calls` and `response_format`, llama-server's
        `chat_template_kwargs`, `reasoning_format` and `enable_thinking`, those of `submit`, and every field of
        SamplingParams.
        """
        given: dict[str, Any] = dict(options)
        chosen = _take(CHAT_FIELDS, given)
        params = _take_sampling(sampling, given)
        # The template decides how these two join the format of the answer, wherever they were given.
        held = {"grammar": params.grammar, "json_schema": params.json_schema}
        prompt = self.apply_chat({"messages": messages, **held, **chosen}, sources)
        parser = self.answer_parser(prompt)
        generation = self.submit_chat(prompt, replace(params, grammar=None, json_schema=None), **given)
        return stream_deltas(parser, generation) if stream else parser.parse(_result(generation))

    @checked
    def apply_chat(self, body: Mapping[str, Any], sources: MediaSources = _REQUEST_ALONE) -> ChatPrompt:
        """Render a request body's conversation (its CHAT_FIELDS) with the chat template. Its images and audio are
        fetched from where `sources` allows, and decoded.

        Raises:
            RequestError: the messages, tools or schema are malformed, or the template refuses them.
            MediaError: an image or audio cannot be had or read, or the model takes none.
        """
        self._raise_if_closed()
        conversation = MarkedConversation(body.get("messages"), self.abilities, sources)
        marked = {**body, "messages": conversation.messages}
        text = chat_body(marked)
        conversation.check(text)
        applied = self._native.chat_apply(None, text)
        conversation.ignored += self._unshown_names(marked, applied["prompt"])
        return ChatPrompt.of(applied, conversation)

    def _unshown_names(self, body: Mapping[str, Any], prompt: str) -> list[str]:
        """What to list of the names of messages' authors, if the template renders the same `prompt` without them."""
        bare = without_names(body["messages"])
        if bare is None:
            return []
        try:
            same = self._native.chat_apply(None, chat_body({**body, "messages": bare}))["prompt"] == prompt
        except RequestError:
            return []  # a template may insist on them
        return ["messages[].name"] if same else []

    @checked
    def submit_chat(
        self,
        prompt: ChatPrompt,
        sampling: SamplingParams | None = None,
        *,
        stop: str | Sequence[str] = (),
        tokens: Sequence[int] | None = None,
        **options: Unpack[SubmitChatKeywords],
    ) -> Generation:
        """Queue a rendered conversation; options are those of `submit`. `tokens` are those of the prompt, if the caller
        has them (`chat_tokens`)."""
        sampling = replace(sampling or SamplingParams(), **prompt.sampling)
        # The format's markers (such as <tool_call>) may be control tokens, and its parser needs them.
        words = [self.tokenize(word, add_special=False) for word in sampling.preserved_tokens or ()]
        options.setdefault("special", frozenset(ids[0] for ids in words if len(ids) == 1))
        if tokens is None:
            tokens = self.chat_tokens(prompt)
        else:
            self._token_array(text_tokens(tokens), "tokens")
        stops = (*stop_strings(stop), *prompt.stops)
        try:
            return self.submit(tokens, sampling, stop=stops, **options)
        except RequestError as error:
            if error.param != "generation_prompt" or "generation_prompt" not in prompt.sampling:
                raise
            raise RequestError(
                "the last message, which is to be continued, does not fit the schema or grammar of the answer",
                param="messages",
                hint="leave one of them out",
            ) from None

    @checked
    def chat_tokens(self, prompt: ChatPrompt) -> Sequence[int]:
        """The tokens of a rendered conversation. Raises the errors of `tokenize_prompt`."""
        try:
            return self.tokenize_prompt(prompt.prompt, prompt.media)
        except RequestError as error:
            raise blamed(error, prompt.media, prompt.places) from None

    @checked
    def answer_parser(self, prompt: ChatPrompt) -> AnswerParser:
        """A parser for the answer to `prompt`."""
        return AnswerParser(self._native, prompt)

    # ---- slots ----

    # save_slot, restore_slot and erase_slot are not @checked, since the methods that they call are.

    @checked
    def save_slot_soon(self, slot: int, path: str | os.PathLike[str]) -> Future[SlotFile]:
        """Write a slot (its tokens, the target's memory, the drafter's context) to a file, once it is idle.

        Raises:
            RequestError: there is no such slot, it is empty, or this model's memory cannot be saved.
        """
        return self._move_slot(self._native.slot_save, slot, path)

    def save_slot(self, slot: int, path: str | os.PathLike[str]) -> SlotFile:
        """`save_slot_soon`, once it is done."""
        return self.save_slot_soon(slot, path).result()

    @checked
    def restore_slot_soon(self, slot: int, path: str | os.PathLike[str]) -> Future[SlotFile]:
        """Load a file of `save_slot`, made with the same models and cache types, into a slot, once it is idle.

        Raises:
            RequestError: the file is damaged or foreign; the slot is unchanged.
            QueueFullError: running requests leave no room for it now.
        """
        return self._move_slot(self._native.slot_restore, slot, path, is_use=True)

    def restore_slot(self, slot: int, path: str | os.PathLike[str]) -> SlotFile:
        """`restore_slot_soon`, once it is done."""
        return self.restore_slot_soon(slot, path).result()

    @checked
    def erase_slot_soon(self, slot: int) -> Future[int]:
        """Clear a slot once it is idle; returns how many tokens it held."""
        self._check_slot(slot)
        return self._scheduler.call_on_slot(self._native.slot_clear, slot)

    def erase_slot(self, slot: int) -> int:
        """`erase_slot_soon`, once it is done."""
        return self.erase_slot_soon(slot).result()

    # ---- the drafter ----

    @checked
    def replace_drafter(self, path: str | os.PathLike[str]) -> bool:
        """Draft with another file from now on, which `dflash-local train --init` made of the one in use. Slots and
        caches stay, and answers are the same. False: a request runs, and nothing has changed; ask again later.

        Raises:
            ModelError, PairError: the file is damaged, or its drafter has another form than the one in use (kind,
                tapped layers, block, K and V); nothing has changed.
            RequestError: no drafter of a file is in use.
        """

        def replace() -> bool:
            if self._scheduler.n_running:
                return False
            self._native.replace_drafter(Path(path))
            self._info = {**self._info, **self._native.info()}
            return True

        return self._scheduler.call(replace).result()

    def _move_slot(
        self,
        move: Callable[[int, Path], tuple[int, int]],
        slot: int,
        path: str | os.PathLike[str],
        *,
        is_use: bool = False,
    ) -> Future[SlotFile]:
        self._check_slot(slot)

        def timed(slot: int) -> SlotFile:
            begin = time.perf_counter()
            try:
                n_tokens, n_bytes = move(slot, Path(path))
            except RequestError as error:
                raise error.at(error.param or "path") from None
            return SlotFile(n_tokens, n_bytes, 1e3 * (time.perf_counter() - begin))

        return self._scheduler.call_on_slot(timed, slot, is_use=is_use)

    def _too_long(self, n_prompt: int, *, counted: bool = True) -> ContextLengthError:
        """With the wording of OpenAI and of llama-server, at which clients shorten a conversation."""
        at_least = "" if counted else "at least "
        return ContextLengthError(
            f"This model's maximum context length is {self.n_ctx_slot} tokens, but the prompt has {at_least}{n_prompt} "
            "tokens and an answer needs one more: the request exceeds the available context size",
            param="prompt",
            hint="shorten the prompt, or start with a larger context (-c)",
            n_prompt=n_prompt,
            n_ctx=self.n_ctx_slot,
            counted=counted,
        )


def _result(generation: Generation) -> Completion:
    """Its result. If waiting for it is interrupted (Ctrl-C), nobody else can have it: the request is cancelled."""
    try:
        return generation.result()
    except BaseException:
        generation.cancel()
        raise


def _spans(text: str, answer: str) -> list[tuple[int, int]]:
    """The places of an answer that make up `text`, in order; none if it does not have all of it."""
    spans: list[tuple[int, int]] = []
    end = 0
    while text and len(spans) < _MOST_PARTS and (length := _found_length(text, answer, end)):
        begin = answer.find(text[:length], end)
        text, end = text[length:], begin + length
        spans.append((begin, end))
    return [] if text else spans


def _found_length(text: str, answer: str, start: int) -> int:
    """How much of the beginning of `text` an answer has in one place from `start` on."""
    if answer.find(text, start) >= 0:
        return len(text)
    # What has a longer beginning has the shorter ones, too.
    return bisect_left(range(len(text)), True, key=lambda length: answer.find(text[: length + 1], start) < 0)


def _take(names: Set[str], given: dict[str, Any]) -> dict[str, Any]:
    """Take these options out of the given ones."""
    return {name: given.pop(name) for name in names & given.keys()}


def _take_sampling(sampling: SamplingParams | None, given: dict[str, Any]) -> SamplingParams:
    """Take the fields of SamplingParams out of the given options; they count more than those of `sampling`."""
    return replace(sampling or SamplingParams(), **_take(SAMPLING_FIELDS, given))
