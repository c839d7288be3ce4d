"""From checked fields to generations. Templates, grammars and long prompts take time: this runs in worker threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from dflash_local.conversation import AnswerParser, ChatPrompt
from dflash_local.engine import Engine, Generation
from dflash_local.errors import RequestError
from dflash_local.keywords import SubmitKeywords
from dflash_local.request_options import RequestOptions
from dflash_local.sampling import SamplingParams, seed_of
from dflash_local.server.chat_prompt import ignore, render_chat
from dflash_local.server.fields.chat import ChatRequest
from dflash_local.server.fields.fields import Fields
from dflash_local.server.fields.generation_fields import MAX_CHOICES, GenerationFields
from dflash_local.server.fields.probs import ProbFields
from dflash_local.server.fields.request import RequestFields
from dflash_local.server.security.key_check import key_number
from dflash_local.server.service import Service

Prompt = TypeVar("Prompt")


def start_chat(
    service: Service, body: ChatRequest, fields: RequestFields, *, of: Fields | None = None, before: str = ""
) -> tuple[list[Generation], list[AnswerParser]]:
    """Queue all choices of a chat completion; also returns a parser for each. `of` as for `render_chat`, `before` is
    text before the conversation."""
    engine = service.engine
    prompt, options = render_chat(service, body, of), _submit_options(engine, fields)
    idle = _overruled(body, prompt.sampling) + _idle_budget(fields, prompt.sampling) + _idle_probs(body, fields)
    idle += _idle_drafts(engine, fields)
    ignore(service, idle, body, of)
    prompt = replace(prompt, prompt=before + prompt.prompt)
    tokens = engine.chat_tokens(prompt)

    def submit(prompt: ChatPrompt, sampling: SamplingParams, options: SubmitKeywords) -> Generation:
        return engine.submit_chat(prompt, sampling, tokens=tokens, **options)

    generations = _submit_all(engine, fields, [prompt], options, submit)
    return generations, [engine.answer_parser(prompt) for _ in generations]


def start_completion(
    service: Service,
    body: GenerationFields,
    fields: RequestFields,
    prompts: Sequence[Sequence[int]],
    *,
    of: Fields | None = None,
) -> list[Generation]:
    """Queue all choices of a completion for each prompt; `of` as for `render_chat`."""
    engine = service.engine
    unenforced = Engine.ignored(fields.sampling)  # parts of a schema
    ignored = [*unenforced, *_idle_budget(fields), *_idle_probs(body, fields), *_idle_drafts(engine, fields)]
    ignore(service, ignored, body, of)

    def submit(prompt: Sequence[int], sampling: SamplingParams, options: SubmitKeywords) -> Generation:
        return engine.submit(prompt, sampling, **options)

    return _submit_all(engine, fields, prompts, _submit_options(engine, fields), submit)


def check_options(service: Service, fields: RequestFields) -> None:
    """Refuse what would be refused with any prompt. An engine that sleeps cannot check all of it."""
    if service.life.sleep.is_sleeping:
        RequestOptions([0], sampling=fields.sampling, **fields.options).native_params()
    else:
        service.engine.check_options(fields.sampling, **_submit_options(service.engine, fields))


def _overruled(body: ChatRequest, of_template: Mapping[str, Any]) -> list[str]:
    """Fields of sampling that the chat template decides: the client's own values have no effect."""
    return [name for name, value in of_template.items() if getattr(body, name) not in (None, value)]


def _idle_budget(fields: RequestFields, of_template: Mapping[str, Any] | None = None) -> list[str]:
    """A limit for thoughts has no effect without the tags that end them."""
    has_tags = bool((of_template or {}).get("thinking_end_tags") or fields.sampling.thinking_end_tags)
    return ["reasoning_budget_tokens"] if fields.sampling.reasoning_budget_tokens >= 0 and not has_tags else []


def _idle_probs(body: GenerationFields, fields: RequestFields) -> list[str]:
    """llama-server's name for probabilities has no effect beside OpenAI's; nor has their kind without any."""
    if not isinstance(body, ProbFields):
        return []
    n_top = fields.probs.n_top
    named = ["n_probs"] if body.n_probs and body.n_probs != n_top else []
    return named + ["post_sampling_probs"] * bool(body.post_sampling_probs and n_top is None)


def _idle_drafts(engine: Engine, fields: RequestFields) -> list[str]:
    """Nothing is drafted where the target cannot roll drafts back."""
    if not engine.info.get("no_draft"):
        return []
    return ["prediction"] * bool(fields.prediction) + ["lookup"] * bool(fields.options.get("lookup"))


def _submit_options(engine: Engine, fields: RequestFields) -> SubmitKeywords:
    options: SubmitKeywords = {**fields.options, "lookup_owner": key_number.get()}
    if fields.prediction:
        # Plain text, as the answer is: a control token would end it.
        options["prediction"] = engine.tokenize(fields.prediction, add_special=False, parse_special=False)
    return options


def _submit_all(
    engine: Engine,
    fields: RequestFields,
    prompts: Sequence[Prompt],
    options: SubmitKeywords,
    submit: Callable[[Prompt, SamplingParams, SubmitKeywords], Generation],
) -> list[Generation]:
    """All choices of all prompts, or none. Each choice has a seed of its own.

    `id_slot` is that of each prompt's first choice, as in llama-server: the others need not wait for it.
    """
    most = min(MAX_CHOICES, engine.max_requests)
    if fields.n * len(prompts) > most:
        raise RequestError(
            f"n times the number of prompts must be at most {most}, got {fields.n * len(prompts)}",
            param="n" if len(prompts) == 1 or fields.n > 1 else "prompt",
            hint=None if most == MAX_CHOICES else "ask several times, or start the server with a larger --max-queue",
        )
    seed = fields.sampling.seed
    samplings = [replace(fields.sampling, seed=seed_of(seed, choice)) for choice in range(fields.n)]
    generations: list[Generation] = []
    try:
        for prompt in prompts:
            for choice, sampling in enumerate(samplings):
                generations.append(submit(prompt, sampling, {**options, "id_slot": None} if choice else options))
    except BaseException:
        for generation in generations:
            generation.cancel()
        raise
    return generations
