"""Flags and variables: llama-server's names mean here what they mean there."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from dflash_local import cli
from dflash_local.cli.command_parser import UsageError
from dflash_local.cli.commands import serve
from dflash_local.cli.flags.chat_flags import check_budget_message, check_chat_flags
from dflash_local.cli.flags.engine_arguments import engine_options
from dflash_local.cli.flags.engine_flags import _SPELLINGS
from dflash_local.cli.flags.named_models import Models
from dflash_local.cli.flags.serve_flags import ServeFlags, check_record_flags
from dflash_local.cli.serving.serve_app import make_settings
from dflash_local.engine import Engine
from dflash_local.engine_options import FLAG_GROUPS, OPTIONS
from dflash_local.errors import RequestError
from dflash_local.generation import Completion, Timings
from dflash_local.sampling import SamplingParams
from tests.engine.test_chat_shim import THINKING


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in os.environ:
        if name.startswith(("LLAMA_ARG_", "LLAMA_API_")):
            monkeypatch.delenv(name)


def parse(*flags: str) -> ServeFlags:
    args: ServeFlags = cli.parse(["serve", *flags])[1]
    return args


def options_of(args: ServeFlags) -> dict[str, Any]:
    return engine_options(args, Models(args.model or "", args.drafter, args.mmproj))


LONG_LINE = """
    -m T.gguf -md D.gguf -c 8192 -np 4 -b 1024 -ub 256 -t 6 -tb 8 -ngl 20 -ngld all -sm row -ts 3,1 -mg 1 -fa on
    --rpc a:1,b:2 -fit off -fitt 512,256 -fitc 1024 -dev CUDA0,CUDA1 -devd CUDA1 -ot a=CPU -ncmoe 2 -nkvo
    -ctk q8_0 -ctv q8_0 -ctkd f32 -ctvd f32 --swa-full --mlock --no-warmup --draft-ctx 2048 --spec-draft-n-max 7
    --budget 12 --draft chain --accept block --lookup off --no-kv-unified --bit-exact --no-cost-cache
    --lookup-answers 5000 --kv-unified-per-slot 500 -cram 100 --no-cache-idle-slots -sps 0.5 -ctxcp 3 -cms 0
    --no-cache-prompt --cache-reuse 256
    --jinja --metrics -cb --no-mmproj --threads-http 4 --spec-type draft-dflash --host 0.0.0.0 --port 9000 --alias big
    --api-key a,b -n 256 --temp 0.2 --top-k 20 --top-p 0.9 --min-p 0.1 --typical 0.5 -s 7 --repeat-penalty 1.1
    --mirostat-ent 4 --reasoning-format none --reasoning-budget 100 --no-webui --no-slots
"""


@pytest.mark.parametrize(
    ("flags", "draft", "kind"),
    [
        ("", "tree", "auto"),
        ("--spec-type draft-dflash", "tree", "auto"),
        ("--spec-type draft-dspark --draft-kind lookup", "tree", "lookup"),
        ("--spec-type draft-mtp --draft chain", "chain", "mtp"),
        ("--spec-type none", "off", "auto"),
        ("--spec-type draft-dflash,ngram-mod", "tree", "auto"),
        ("--spec-type draft-dspark,draft-mtp", "tree", "auto"),
        ("--spec-type ngram-mod,draft-mtp", "tree", "mtp"),
        ("--spec-type ngram-mod --spec-type draft-mtp", "tree", "mtp"),
        ("--spec-type ngram-simple,ngram-cache", "tree", "lookup"),
        ("--draft-kind mtp", "tree", "mtp"),
    ],
)
def test_llama_servers_names_of_what_drafts(flags: str, draft: str, kind: str) -> None:
    options = options_of(parse("-m", "T.gguf", *flags.split()))
    assert (options["draft"], options["draft_kind"]) == (draft, kind)


def test_a_llama_server_command_line() -> None:
    args = parse(*LONG_LINE.split())
    assert options_of(args) == {
        "model": "T.gguf", "drafter": "D.gguf", "n_ctx": 8192, "n_slots": 4, "n_batch": 1024, "n_ubatch": 256,
        "n_threads": 6, "n_threads_batch": 8, "n_gpu_layers": 20, "n_gpu_layers_draft": -1, "split_mode": "row",
        "tensor_split": "3,1", "main_gpu": 1, "flash_attn": "on", "cache_type_k": "q8_0", "cache_type_v": "q8_0",
        "cache_type_k_draft": "f32", "cache_type_v_draft": "f32", "swa_full": True, "mmap": True, "mlock": True,
        "warmup": False, "draft_ctx": 2048, "draft_vocab": "auto", "draft_kind": "auto",
        "draft_n_max": 7, "budget": 12, "draft": "chain", "accept": "block",
        "lookup": False, "kv_unified": False, "bit_exact": True, "cost_cache": False, "chat_template": None,
        "fenced_calls": True,
        "n_ctx_slot": 500, "cache_ram": 100, "cache_idle_slots": False, "slot_similarity": 0.5, "n_checkpoints": 3,
        "checkpoint_step": 0, "device": "CUDA0,CUDA1", "device_draft": "CUDA1", "override_tensor": "a=CPU",
        "override_tensor_draft": None, "cpu_moe": False, "n_cpu_moe": 2, "n_cpu_ffn": 0, "kv_offload": False,
        "mmproj": None, "mmproj_offload": True, "image_min_tokens": 0, "image_max_tokens": 0,
        "rpc": "a:1,b:2", "lookup_answers": 5000, "lookup_corpus": (), "fit": False, "fit_target": "512,256",
        "fit_ctx": 1024,
    }  # fmt: skip
    settings = make_settings(args)
    assert (settings.alias, settings.api_keys, settings.webui, settings.slots_endpoint) == (
        "big",
        ("a", "b"),
        False,
        False,
    )
    assert settings.defaults.max_tokens == 256
    assert settings.defaults.chat == {"reasoning_format": "none"} and not settings.defaults.cache_prompt
    sampling = settings.defaults.sampling
    assert (sampling.temperature, sampling.top_k, sampling.typical_p, sampling.seed) == (0.2, 20, 0.5, 7)
    assert (sampling.mirostat_tau, sampling.reasoning_budget_tokens) == (4, 100)


def test_several_texts_to_quote() -> None:
    assert options_of(parse("-m", "x", "--lookup-corpus", "a", "--lookup-corpus", "b/c"))["lookup_corpus"] == (
        "a",
        "b/c",
    )


def test_a_list_of_tensors_replaces_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_OVERRIDE_TENSOR", "c=CPU")
    for flags, expected in ((("-ot", "a=CPU", "-ot", "b=CPU"), "a=CPU,b=CPU"), ((), "c=CPU")):
        assert options_of(parse("-m", "T.gguf", *flags))["override_tensor"] == expected


def test_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ollama's on demand; a port that is named, in whichever way, counts."""
    assert [parse(*flags).listening_port for flags in ((), ("--ollama",), ("--ollama", "--port", "0"))] == [
        8080,
        11434,
        0,
    ]
    monkeypatch.setenv("LLAMA_ARG_PORT", "7")
    assert parse("--ollama").listening_port == 7


def test_defaults_are_the_engines() -> None:
    import inspect

    from dflash_local.engine import Engine

    signature = inspect.signature(Engine).parameters
    options = options_of(parse("-m", "T.gguf"))
    assert {
        name: value
        for name, value in options.items()
        if signature[name].default not in (value, inspect.Parameter.empty)
    } == {"n_slots": -1}  # as llama-server's: 4 that share the context
    assert parse("-m", "T.gguf").sampling_params().to_json() == "{}"
    settings = make_settings(parse("-m", "some/T.gguf"))
    assert (settings.alias, settings.api_keys, settings.cors.origins) == ("T.gguf", (), ("localhost",))


@pytest.mark.parametrize(
    ("variable", "value", "name", "expected"),
    [
        ("LLAMA_ARG_MODEL", "T.gguf", "model", "T.gguf"),
        ("LLAMA_ARG_SPEC_DRAFT_MODEL", "D.gguf", "drafter", "D.gguf"),
        ("LLAMA_ARG_SPEC_TYPE", "none", "draft", "off"),
        ("LLAMA_ARG_CTX_SIZE", "4096", "n_ctx", 4096),
        ("LLAMA_ARG_N_PARALLEL", "3", "n_slots", 3),
        ("LLAMA_ARG_N_GPU_LAYERS", "all", "n_gpu_layers", -1),
        ("LLAMA_ARG_FLASH_ATTN", "off", "flash_attn", "off"),
        ("LLAMA_ARG_SWA_FULL", "true", "swa_full", True),
        ("LLAMA_ARG_SWA_FULL", "0", "swa_full", False),
        ("LLAMA_ARG_THREADS", "3", "n_threads", 3),
        ("LLAMA_ARG_CACHE_TYPE_K", "q8_0", "cache_type_k", "q8_0"),
        ("LLAMA_ARG_SPEC_DRAFT_N_MAX", "5", "draft_n_max", 5),
        ("LLAMA_ARG_KV_UNIFIED", "0", "kv_unified", False),
        ("LLAMA_ARG_KV_UNIFIED_PER_SLOT", "500", "n_ctx_slot", 500),
        ("LLAMA_ARG_CACHE_RAM", "-1", "cache_ram", -1),
        ("LLAMA_ARG_CACHE_IDLE_SLOTS", "0", "cache_idle_slots", False),
        ("LLAMA_ARG_CTX_CHECKPOINTS", "0", "n_checkpoints", 0),
        ("LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT", "7", "checkpoint_step", 7),
    ],
)
def test_variables(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, name: str, expected: Any) -> None:
    monkeypatch.setenv(variable, value)
    flags = () if variable == "LLAMA_ARG_MODEL" else ("-m", "T.gguf")
    assert options_of(parse(*flags))[name] == expected


def test_a_flag_beats_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "4096")
    monkeypatch.setenv("LLAMA_ARG_TEMPERATURE", "0.5")
    args = parse("-m", "T.gguf", "-c", "128")
    assert args.n_ctx == 128
    assert args.sampling_params().temperature == 0.5


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("-m x -c many", "must be an integer"),
        ("-m x -c -5", "must be at least 0"),
        ("-m x -sm diagonal", "one of none, layer, row"),
        ("-m x -fa perhaps", "on or off"),
        ("-m x --budget 0", "at least 1"),
        ("-m x --draft 7", "--draft: takes off, chain or tree; the most draft tokens are --spec-draft-n-max 7"),
        ("-m x --draft star", "one of off, chain, tree"),
        ("-m x --accept all", "one of match, block"),
        ("-m x --lookup maybe", "on or off"),
        ("-m x -cram -2", "at least -1"),
        ("-m x -sps 2", "between 0 and 1"),
        ("-m x --no-such-flag", "unrecognized arguments"),
        ("-m x --temp hot", "invalid float value"),
        ("-hf", "expected one argument"),
    ],
)
def test_usage_errors(capsys: pytest.CaptureFixture[str], flags: str, message: str) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["serve", *flags.split()])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "param"),
    [
        ("-m T.gguf --embedding --record R", "--record"),
        ("--embedding-model E.gguf --record R", "--record"),
        ("-m T.gguf --record-limit 7", "--record-limit"),
        ("-m T.gguf --embedding --adapt D", "--adapt"),
        ("-m T.gguf --adapt D --record R", "--adapt"),
        ("--models-dir . --adapt D --record R", "--adapt"),
        ("-m T.gguf --adapt-tokens 7", "--adapt-tokens"),
        ("-m T.gguf --replica-cpus 2", "--replica-cpus"),
        ("-m T.gguf --replicas 0 --ray-address=a:1", "--ray-address"),
        ("--models-dir . --replica-gpus 1", "--replica-gpus"),
    ],
)
def test_flags_without_effect_are_refused(monkeypatch: pytest.MonkeyPatch, flags: str, param: str) -> None:
    monkeypatch.setattr(serve, "set_up_logs", lambda _args: logging.WARNING)  # pytest has its own
    with pytest.raises(RequestError, match=f"^{param} ") as caught:
        serve.run(parse(*flags.split()))
    assert caught.value.param == param and caught.value.hint


def test_models_of_a_router_only_tell_of_its_flags(caplog: pytest.LogCaptureFixture) -> None:
    """Others of them may write answers."""
    with caplog.at_level(logging.WARNING):
        check_record_flags(parse("-m", "T.gguf", "--parent-pipes", "--record", "R", "--embedding"))
        check_record_flags(parse("-m", "T.gguf", "--record", "R", "--record-limit", "7"))
    (told,) = caplog.messages
    assert told.startswith("--record has no effect: ")


def test_a_bad_variable_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "many")
    with pytest.raises(UsageError, match="the variable LLAMA_ARG_CTX_SIZE is wrong: must be an integer"):
        parse("-m", "x")


def test_spellings_are_of_flags_that_take_values() -> None:
    for name in _SPELLINGS:
        flag = OPTIONS[name].flag
        assert flag and (flag.metavar or flag.choices), name


def test_flags_of_the_engine_are_listed_in_groups_of_one_list() -> None:
    titles = [group.title for group in parse("-m", "x").line.parser._action_groups]
    assert [title for title in titles if title in FLAG_GROUPS] == [*FLAG_GROUPS]
    assert {option.flag.group for option in OPTIONS.values() if option.flag} == {*FLAG_GROUPS}


def test_help_names_the_variables(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse("--help")
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for word in ("-md", "--draft-ctx", "LLAMA_ARG_CTX_SIZE", "--drain-timeout", "curl localhost:8080"):
        assert word in text


@pytest.mark.parametrize(
    ("template", "why"),
    [("lama3", "names: .*llama3"), ("{{ broken", "not a Jinja template"), ("{% for %}", "not a Jinja template")],
)
def test_a_broken_chat_template_is_told_before_anything_loads(tmp_path: Path, template: str, why: str) -> None:
    for name, value in (("--chat-template", template), ("--chat-template-file", str(tmp_path / "t.jinja"))):
        (tmp_path / "t.jinja").write_text(template, encoding="utf-8")
        with pytest.raises(RequestError, match=f"^{name} .*{why}") as caught:
            options_of(parse("-m", "T.gguf", name, value))
        assert caught.value.param == name
        # the server says so although there is no such model
        with pytest.raises(RequestError, match=why):
            args = parse("-m", str(tmp_path / "missing.gguf"), "--port", "0", name, value)
            serve.run(args)
    assert options_of(parse("-m", "T.gguf", "--chat-template", "llama3"))["chat_template"] == "llama3"


def test_answers_that_are_not_parsed(pocket: dict[str, Path]) -> None:
    """`--skip-chat-parsing` leaves calls in the content, as the model writes them."""
    args = parse("-m", "T.gguf", "--skip-chat-parsing")
    settings = make_settings(args)
    assert "force_pure_content" not in make_settings(parse("-m", "T.gguf")).defaults.chat
    tools = [{"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}]
    chat: Any = {"messages": [{"role": "user", "content": "What time is it?"}], "tools": tools}
    call = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'
    options: dict[str, Any] = {"n_ctx": 64, "n_threads": 1, "warmup": False, "cost_cache": False}
    with Engine(pocket["target"], **options) as engine:
        told, whole = (engine.apply_chat({**chat, **more}) for more in ({}, settings.defaults.chat))
        assert told.prompt == whole.prompt
        messages = [
            engine.answer_parser(prompt).parse(Completion(call, [], "stop", 0, 0, Timings(), [])).message
            for prompt in (told, whole)
        ]
        assert messages[0]["tool_calls"][0]["function"]["name"] == "get_time"
        assert messages[1] == {"role": "assistant", "content": call}
        with pytest.raises(RequestError, match="does not parse answers"):
            engine.apply_chat({**chat, **settings.defaults.chat, "tool_choice": "required"})


def test_chat_flags_that_no_request_would_survive(pocket: dict[str, Path]) -> None:
    picky = "{% if mood == 'bad' %}{{ raise_exception('no moods') }}{% endif %}{{ messages[0].content }}"
    options: dict[str, Any] = {"n_ctx": 64, "n_threads": 1, "warmup": False, "cost_cache": False}
    with Engine(pocket["target"], chat_template=picky, **options) as engine:
        check_chat_flags(engine, {"reasoning_format": "auto", "chat_template_kwargs": {"mood": "good"}})
        for chat, flag in (
            ({"reasoning_format": "loud"}, "--reasoning-format"),
            ({"chat_template_kwargs": {"enable_thinking": "false"}}, "--chat-template-kwargs"),
            ({"chat_template_kwargs": {"mood": "bad"}}, "--chat-template-kwargs"),
        ):
            with pytest.raises(RequestError, match=f"^{flag} makes every chat request fail: ") as caught:
                check_chat_flags(engine, chat)
            assert caught.value.param == flag
    shy = "{% if messages | length < 2 %}{{ raise_exception('more!') }}{% endif %}{{ messages[0].content }}"
    with Engine(pocket["target"], chat_template=shy, **options) as engine:
        check_chat_flags(engine, {"chat_template_kwargs": {"mood": "bad"}})  # not their fault


def test_a_budget_message_that_no_chat_would_survive(pocket: dict[str, Path]) -> None:
    """It has the tag that ends the thoughts, which only the template says."""
    options: dict[str, Any] = {"n_ctx": 64, "n_threads": 1, "warmup": False, "cost_cache": False}
    ended, message = (SamplingParams(reasoning_budget_message=text) for text in (" So:</think>\n", " So:\n"))
    with Engine(pocket["target"], chat_template=THINKING, **options) as engine:
        for sampling in (message, SamplingParams()):
            check_budget_message(engine, {}, sampling)
        flag = "--reasoning-budget-message"
        why = f"^{flag} makes every chat request fail: .* contains </think>"
        with pytest.raises(RequestError, match=why) as caught:
            check_budget_message(engine, {}, ended)
        assert caught.value.param == flag
    with Engine(pocket["target"], chat_template="{{ messages[0].content }}", **options) as engine:
        check_budget_message(engine, {}, ended)  # no thoughts
