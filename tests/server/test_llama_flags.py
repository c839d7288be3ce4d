"""Every flag and variable of the pinned llama-server is used, changes nothing, or is refused: none is unknown."""

from __future__ import annotations

import argparse
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dflash_local import cli
from dflash_local.cli.command_parser import UsageError
from dflash_local.cli.commands import serve as serve_command
from dflash_local.cli.flags.foreign import (
    FOREIGN,
    Effect,
    Foreign,
    check_config_files,
    check_variables,
    known_variables,
)
from dflash_local.cli.flags.http_flags import http_settings
from dflash_local.cli.flags.request_flags import request_defaults
from dflash_local.cli.flags.serve_flags import ServeFlags
from dflash_local.cli.parser_actions import actions_by_name
from dflash_local.cli.serving.serve_app import make_settings
from dflash_local.errors import RequestError
from dflash_local.media.media_sources import MediaSources
from dflash_local.server.fields.chat import ChatRequest
from dflash_local.server.fields.completion import CompletionRequest
from dflash_local.server.fields.request import parse_chat, parse_fields
from tests.server.llama_flags import LlamaFlag, all_variables, pinned_arguments, pinned_source, server_flags


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("LLAMA_ARG_", "LLAMA_API_")):
            monkeypatch.delenv(name)


def parse(*flags: str) -> ServeFlags:
    args: ServeFlags = cli.parse(["serve", "-m", "T.gguf", *flags])[1]
    return args


@pytest.fixture(scope="module")
def command() -> argparse.ArgumentParser:
    """One parser for many tests, made without any variable."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "environ", {})
        return parse().line.parser


@pytest.fixture(scope="module")
def source() -> str:
    return pinned_arguments()


@pytest.fixture(scope="module")
def flags(source: str) -> list[LlamaFlag]:
    return server_flags(source)


# ---- the table ----


def test_no_flag_of_llama_server_is_unknown(flags: list[LlamaFlag]) -> None:
    assert len(flags) > 200
    known = actions_by_name(parse().line.parser)
    assert [name for flag in flags for name in flag.names + flag.off if name not in known] == []


def test_no_variable_of_llama_server_is_unknown(source: str, flags: list[LlamaFlag]) -> None:
    variables = all_variables(source)
    assert len(variables) == 152
    known = known_variables(parse().line.parser)
    assert variables | {name for flag in flags for name in flag.variables} <= known
    ours = {name for name in known - variables if name.startswith("LLAMA_ARG_")}
    assert [name for name in ours if not name.startswith("LLAMA_ARG_NO_")] == []


def test_the_table_says_what_llama_server_says(flags: list[LlamaFlag]) -> None:
    """Names that switch off do so there, and a flag's variable is its own."""
    sides = {name: (flag, name in flag.off) for flag in flags for name in flag.names + flag.off}
    for foreign in FOREIGN:
        for name in foreign.names + foreign.off:
            if name in sides:
                flag, is_off = sides[name]
                assert (name in foreign.off) == is_off, name
                assert foreign.env == flag.env, name


def test_the_table_names_nothing_that_nobody_has(flags: list[LlamaFlag]) -> None:
    theirs = {name for flag in flags for name in flag.names + flag.off}
    assert {name for foreign in FOREIGN for name in foreign.names + foreign.off} <= theirs


# ---- what they come to ----


def notes(args: ServeFlags, **environ: str) -> list[str]:
    return list(check_variables(args.line.parser, args.foreign_flags, environ))


@pytest.mark.parametrize(
    "foreign", [entry for entry in FOREIGN if entry.effect is Effect.REFUSED], ids=lambda it: it.names[0]
)
def test_a_refused_flag_says_why(command: argparse.ArgumentParser, foreign: Foreign) -> None:
    for name in foreign.names:
        if getattr(actions_by_name(command)[name], "foreign", None) is not foreign:
            continue  # it has become a flag of our own
        with pytest.raises(UsageError) as caught:
            command.parse_args(["-m", "T.gguf", name, *["7"] * foreign.values])
        assert caught.value.message == f"argument {name}: {foreign.why}"
        if foreign.env:
            with pytest.raises(RequestError, match=foreign.env) as refused:
                list(check_variables(command, {}, {foreign.env: "1"}))
            assert refused.value.hint == f"unset {foreign.env}"


def test_reasons_name_flags_and_commands_of_ours(command: argparse.ArgumentParser) -> None:
    own = {name for name, action in actions_by_name(command).items() if not hasattr(action, "foreign")}
    named = 0
    for foreign in FOREIGN:
        flags = {*re.findall(r"(?<![\w-])-{1,2}[a-z][a-z-]*", foreign.why)}
        commands = {*re.findall(r"'dflash-local ([a-z-]+)", foreign.why)}
        assert flags <= own and commands <= {*cli.COMMANDS}, foreign.why
        named += len(flags) + len(commands)
    assert named


@pytest.mark.parametrize(
    ("flag", "instead"),
    [
        (("--completion-bash",), "'dflash-local completion bash'"),
        (("--lookup-cache-static", "x.bin"), "--lookup-corpus"),
        (("--log-prompts-dir", "x"), "--record"),
        (("--draft-min", "2"), "there is no such threshold"),
        (("--spec-ngram-min-hits", "2"), "--lookup off"),
    ],
)
def test_a_refusal_names_what_serves_instead(flag: tuple[str, ...], instead: str) -> None:
    with pytest.raises(UsageError, match=instead):
        parse(*flag)


def test_a_flag_without_effect_is_told() -> None:
    args = parse("--threads-http", "4", "--cont-batching", "--no-jinja", "--cpu-mask", "ff", "--no-mmproj")
    assert [note.partition(":")[0] for note in notes(args)] == ["--threads-http", "--no-jinja", "--cpu-mask"]


def test_underscores_are_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["serve", "-m", "T.gguf", "--ctx_size=many_a_token"])
    assert "-c/--ctx-size: must be an integer, got 'many_a_token'" in capsys.readouterr().err


def test_variables_without_effect_are_told() -> None:
    given = notes(parse(), LLAMA_ARG_THREADS_HTTP="4", LLAMA_ARG_PERF="1", LLAMA_ARG_GRP_ATTN_N="2", HOME="/")
    assert given == ["LLAMA_ARG_THREADS_HTTP: one event loop serves all connections"]


def test_an_unknown_variable_is_told() -> None:
    assert "LLAMA_ARG_CTX_SIZES: neither" in notes(parse(), LLAMA_ARG_CTX_SIZES="1")[0]


@pytest.mark.parametrize(
    ("variable", "value", "refused"),
    [
        ("LLAMA_ARG_CONTEXT_SHIFT", "1", True),
        ("LLAMA_ARG_CONTEXT_SHIFT", "0", False),
        ("LLAMA_ARG_NO_CONTEXT_SHIFT", "1", False),
        ("LLAMA_ARG_CONT_BATCHING", "on", False),
        ("LLAMA_ARG_CONT_BATCHING", "off", True),
        ("LLAMA_ARG_NO_CONT_BATCHING", "0", True),  # whatever its value
        ("LLAMA_ARG_UI_MCP_PROXY", "false", False),
        ("LLAMA_ARG_UI_MCP_PROXY", "perhaps", True),
    ],
)
def test_switches_in_variables(variable: str, value: str, refused: bool) -> None:
    if refused:
        with pytest.raises(RequestError, match=variable):
            notes(parse(), **{variable: value})
    else:
        assert notes(parse(), **{variable: value}) == []


def test_a_flag_beats_a_refused_variable() -> None:
    assert notes(parse("--no-context-shift"), LLAMA_ARG_CONTEXT_SHIFT="1") == []


@pytest.mark.parametrize(
    ("variable", "value", "name", "expected"),
    [
        ("LLAMA_ARG_NO_KV_UNIFIED", "1", "kv_unified", False),
        ("LLAMA_ARG_UI", "0", "webui", False),
        ("LLAMA_ARG_NO_UI", "1", "webui", False),
        ("LLAMA_ARG_ENDPOINT_SLOTS", "0", "slots", False),
        ("LLAMA_ARG_ENDPOINT_METRICS", "off", "metrics", False),
        ("LLAMA_ARG_CORS_CREDENTIALS", "0", "cors_credentials", False),
        ("LLAMA_ARG_HOST", "0.0.0.0, ::1", "host", ("0.0.0.0", "::1")),
        ("LLAMA_ARG_TIMEOUT", "30", "timeout", 30),
        ("LLAMA_ARG_REASONING", "0", "reasoning", "off"),
        ("LLAMA_ARG_NO_PREFILL_ASSISTANT", "x", "prefill_assistant", False),
        ("LLAMA_ARG_LOG_VERBOSITY", "1", "verbosity", 1),
        ("LLAMA_ARG_SPEC_TYPE", "none", "spec_type", "none"),
    ],
)
def test_variables(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, name: str, expected: Any) -> None:
    monkeypatch.setenv(variable, value)
    args = parse()
    assert {**args.options, **vars(args)}[name] == expected


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("LLAMA_ARG_SWA_FULL", "perhaps", "must be on or off, got 'perhaps'"),
        ("LLAMA_ARG_CTX_SIZE", "16k", "must be an integer, got '16k'"),
        ("LLAMA_ARG_PORT", "", "must be an integer, got ''"),
        ("LLAMA_ARG_API_PREFIX", "llm", "must begin with /, got 'llm'"),
    ],
)
def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, why: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(UsageError) as caught:
        parse()
    assert caught.value.message == f"the variable {variable} is wrong: {why}"
    assert caught.value.hint == f"correct or unset {variable}"


def test_a_typed_flag_beats_a_bad_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "16k")
    assert parse("-c", "64").n_ctx == 64
    with pytest.raises(UsageError, match="argument -c/--ctx-size: must be an integer, got '16k'"):
        parse("-c", "16k")


def test_all_uses_of_a_list_count(monkeypatch: pytest.MonkeyPatch) -> None:
    args = parse("--api-key", "a", "--api-key", "b,c", "-a", "y", "--alias", "x,y", "--tags", "s", "--tags", "t")
    settings = http_settings(args)
    assert (settings.api_keys, settings.aliases, settings.tags) == (("a", "b", "c"), ("x", "y"), ("s", "t"))
    for variable in ("LLAMA_API_KEY", "LLAMA_ARG_ALIAS", "LLAMA_ARG_TAGS"):
        monkeypatch.setenv(variable, "v")
    assert http_settings(parse("--api-key", "a")).api_keys == ("a",)
    assert (parse("-a", "x").alias, parse().alias, parse().tags) == (("x",), ("v",), ("v",))


# ---- values ----


def test_no_load_mode_of_llama_server_is_unknown(source: str) -> None:
    modes = re.findall(r'value == "([^"]+)"', source.partition('{"-lm", "--load-mode"}')[2].partition("set_env")[0])
    assert {parse("--load-mode", mode).load_mode for mode in modes} == {*modes} >= {"auto", "dio"}
    assert [mode for mode in modes if parse("-lm", mode).maps_files] == ["auto", "mmap", "mmap+mlock"]


def test_no_spec_type_of_llama_server_is_unknown() -> None:
    table = pinned_source("common/speculative.cpp").partition("common_speculative_type_from_name_map = {")[2]
    names = re.findall(r'\{"([a-z0-9-]+)",', table.partition("};")[0])
    assert len(names) == 11
    for name in names:
        if name in ("draft-simple", "draft-eagle3"):
            with pytest.raises(UsageError, match=f"{name} is not supported: docs/drafters.md"):
                parse("--spec-type", name)
        else:
            assert parse("--spec-type", name).spec_type == name


# ---- flags of HTTP ----


def test_flags_of_http(tmp_path: Path) -> None:
    (tmp_path / "ui.json").write_text('{"theme": "dark"}', encoding="utf-8-sig")  # as Windows' editors do
    line = """--api-prefix /llm/ --alias zoo,ape --tags chat,small --no-slots --no-metrics --timeout 20 --max-body 1
        --cors-origins localhost,https://a.example/ --cors-methods GET --no-cors-credentials --max-connections 9"""
    files = ("--path", str(tmp_path), "--ui-config-file", str(tmp_path / "ui.json"))
    settings = make_settings(parse(*line.split(), *files))
    assert (settings.api_prefix, settings.static, settings.ui_settings) == ("/llm", tmp_path, {"theme": "dark"})
    assert (settings.alias, settings.aliases, settings.tags) == ("ape", ("ape", "zoo"), ("chat", "small"))
    assert (settings.slots_endpoint, settings.metrics_endpoint) == (False, False)
    assert (settings.limits.timeout, settings.limits.head_timeout, settings.limits.connections) == (20, 20, 9)
    assert settings.limits.body == 2**20
    assert settings.cors.origins == ("localhost", "https://a.example")
    assert (settings.cors.methods, settings.cors.credentials) == ("GET", False)


def test_where_media_may_come_from(tmp_path: Path) -> None:
    assert make_settings(parse()).media == MediaSources()
    media = make_settings(parse("--media-path", str(tmp_path), "--media-hosts", "Example.com,*.example.org")).media
    assert (media.folder, media.hosts.names) == (tmp_path, ("example.com", "*.example.org"))
    with pytest.raises(RequestError, match="--media-path"):
        make_settings(parse("--media-path", str(tmp_path / "none")))
    with pytest.raises(UsageError, match=r"'https://example\.com' is no host name"):
        parse("--media-hosts", "https://example.com")


@pytest.mark.parametrize(
    ("flags", "origins", "hosts"),
    [
        ("", ("localhost",), ("127.0.0.1",)),
        ("--api-key k", ("*",), None),
        ("--host 0.0.0.0", ("localhost",), None),
        ("--host 127.0.0.1,::1,/tmp/x.sock", ("localhost",), ("127.0.0.1", "::1", "/tmp/x.sock")),
        ("--allowed-hosts llm.example --api-key k", ("*",), ("llm.example", "127.0.0.1")),
        ("--cors-origins *", ("*",), ("127.0.0.1",)),
    ],
)
def test_who_may_ask_by_default(flags: str, origins: tuple[str, ...], hosts: tuple[str, ...] | None) -> None:
    settings = http_settings(parse(*flags.split()))
    assert (settings.cors.origins, settings.allowed_hosts) == (origins, hosts)


@pytest.mark.parametrize(
    ("flags", "warning"),
    [
        ("", None),
        ("--host 0.0.0.0", "everybody who can reach 0.0.0.0"),
        ("--host 0.0.0.0 --api-key k", None),
        ("--cors-origins *", "every web page"),
        ("--host /tmp/x.sock", None),
    ],
)
def test_an_open_server_is_warned_of(caplog: pytest.LogCaptureFixture, flags: str, warning: str | None) -> None:
    with caplog.at_level(logging.WARNING):
        http_settings(parse(*flags.split()))
    assert len(caplog.messages) == (warning is not None)
    assert (warning or "") in caplog.text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--path /no/such/folder", "is no folder"),
        ("--ui-config [1]", "--ui-config must be a JSON object"),
        ("--ui-config-file /no/file", "cannot read /no/file"),
    ],
)
def test_bad_values(flags: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        http_settings(parse(*flags.split()))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--host ,", "at least one address"),
        ("--api-prefix llm", "must begin with /"),
        ("--spec-type draft-mtp,draft-eagle3", "draft-eagle3 is not supported: docs/drafters.md"),
        ("--spec-type ngram-mod,tpyo", "must be names of none, draft-dflash, .*, got 'tpyo'"),
        ("--reasoning-format tpyo", "must be one of none, auto, deepseek, deepseek-legacy"),
        ("-l 5", "must be a token id, \\+ or -, and a number"),
        ("-l x+1", "must be a token id"),
    ],
)
def test_usage_errors(flags: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(*flags.split())


@pytest.mark.parametrize("flags", ["--spec-type none,draft-mtp", "--spec-type none --spec-type ngram-mod"])
def test_nothing_drafts_alone(flags: str) -> None:
    with pytest.raises(RequestError, match="none means that nothing drafts"):
        _ = parse(*flags.split()).drafting


# ---- flags of requests ----


def test_defaults_of_requests(tmp_path: Path) -> None:
    (tmp_path / "g.gbnf").write_text('root ::= "a"')
    flags = [
        "-n", "-2", "-r", "A\\n\\x41", "-r", "B", "--ignore-eos", "--samplers", "top_k;temperature", "-l", "5+1.5",
        "-l", "7-inf", "--dry-sequence-breaker", "x", "--dry-sequence-breaker", "none", "--dry-sequence-breaker", "\\t",
        "--grammar-file", str(tmp_path / "g.gbnf"), "--reasoning", "off", "--reasoning-effort", "low",
        "--reasoning-preserve", "--no-prefill-assistant", "--chat-template-kwargs", '{"a": 1}', "-sp", "--top-nsigma",
        "2",
    ]  # fmt: skip
    defaults = request_defaults(parse(*flags))
    sampling = defaults.sampling
    assert (defaults.max_tokens, defaults.stop, defaults.special) == (-1, ("A\nA", "B"), True)
    assert (sampling.ignore_eos, sampling.samplers, sampling.top_n_sigma) == (True, ["top_k", "temperature"], 2)
    assert (sampling.logit_bias, sampling.dry_sequence_breakers) == ([(5, 1.5), (7, float("-inf"))], ["\t"])
    assert sampling.grammar == 'root ::= "a"'
    assert defaults.chat == {
        "reasoning_format": "auto",
        "chat_template_kwargs": {
            "a": 1, "reasoning_effort": "low", "preserve_reasoning": True, "enable_thinking": False,
        },
        "continue_final_message": False,
    }  # fmt: skip


def test_other_spellings_of_requests(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"type": "object"}')
    line = ("-r", "A\\n", "--no-escape", "--sampler-seq", "kt", "-jf", str(tmp_path / "s.json"), "--reasoning", "auto")
    defaults = request_defaults(parse(*line))
    assert (defaults.stop, defaults.sampling.samplers) == (("A\\n",), "kt")
    assert defaults.sampling.json_schema == {"type": "object"}
    assert defaults.chat == {"reasoning_format": "auto"}
    assert [request_defaults(parse(*level)).verbose for level in ((), ("-lv", "4"), ("-v",))] == [False, False, True]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--grammar", "x", "-j", "{}"), "--grammar and --json-schema exclude each other"),
        (("--grammar-file", "/no/file"), "cannot read /no/file"),
        (("-j", "{"), "--json-schema is not valid JSON"),
        (("--chat-template-kwargs", '{"enable_thinking": "false"}'), "enable_thinking must be true or false"),
    ],
)
def test_bad_defaults_of_requests(flags: tuple[str, ...], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        request_defaults(parse(*flags))


def test_a_request_says_more_than_a_default() -> None:
    """Of a grammar and a schema there is one at most; a chat has them in its conversation."""
    defaults = request_defaults(parse("--grammar", 'root ::= "a"', "-r", "END", "-sp"))
    fields = parse_fields(CompletionRequest.of({"prompt": "x"}), defaults)
    assert (fields.sampling.grammar, fields.options["stop"]) == ('root ::= "a"', ("END",))
    assert fields.options["special"] is True
    fields = parse_fields(CompletionRequest.of({"prompt": "x", "json_schema": {}, "stop": "X"}), defaults)
    assert (fields.sampling.grammar, fields.sampling.json_schema, fields.options["stop"]) == (None, {}, ("X",))
    chat = ChatRequest.of({"messages": []})
    assert parse_fields(chat, defaults).sampling.grammar is None
    assert parse_chat(chat, defaults)["grammar"] == 'root ::= "a"'
    own: dict[str, Any]
    for own in ({"grammar": "x"}, {"json_schema": {}}, {"response_format": {"type": "text"}}, {"tools": [1]}):
        assert parse_chat(ChatRequest.of({"messages": [], **own}), defaults).get("grammar") == own.get("grammar")


def test_no_effort_ends_every_other_effort() -> None:
    """A template that knows `reasoning_effort` alone must not read one that the request has taken back."""
    defaults = request_defaults(parse("--chat-template-kwargs", '{"reasoning_effort": "low"}'))
    for own in ({}, {"chat_template_kwargs": {"reasoning_effort": "high"}}):
        chat = parse_chat(ChatRequest.of({"messages": [], "reasoning_effort": "none", **own}), defaults)
        assert (chat["enable_thinking"], "chat_template_kwargs" in chat) == (False, False)


# ---- the command ----


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """The command, in this process: its status and what it says. No model is ever loaded."""
    monkeypatch.setattr(serve_command, "set_up_logs", lambda _args: logging.WARNING)  # pytest has its own

    def run(*flags: str) -> tuple[int, str]:
        return cli.main(["serve", "-m", "/no/model.gguf", "--port", "0", *flags]), capsys.readouterr().err

    return run


def test_the_command_refuses_a_variable(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[..., tuple[int, str]], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LLAMA_ARG_MODEL_URL", "x.gguf")
    with caplog.at_level(logging.WARNING):
        status, said = serve("--threads-http", "4")
    assert status == 1
    assert "error: LLAMA_ARG_MODEL_URL is set: give the model by name: -hf USER/NAME:QUANT" in said
    assert "  fix: unset LLAMA_ARG_MODEL_URL" in said
    assert caplog.messages == ["--threads-http: one event loop serves all connections"]


@pytest.mark.skipif(os.name == "nt", reason="it has other folders")
def test_the_command_tells_of_config_files(
    monkeypatch: pytest.MonkeyPatch,
    serve: Callable[..., tuple[int, str]],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    """llama-server reads them: a key may be in one."""
    path = tmp_path / ".config" / "llama.cpp" / "config.ini"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(path.parents[1]))
    serve()
    assert str(path) not in caplog.text
    path.parent.mkdir(parents=True)
    path.write_text("api-key = secret\n")
    serve()
    assert f"{path} is llama-server's and is not read here" in caplog.text
    for environ in ({"HOME": str(tmp_path)}, {"HOME": str(tmp_path), "XDG_CONFIG_HOME": ""}):
        assert [note for note in check_config_files(environ) if str(path) in note]
    assert [note for note in check_config_files({}) if str(path) in note] == []


def test_the_command_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse("--version")
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("dflash-local ")


@pytest.mark.parametrize(
    ("flags", "message", "fix"),
    [
        (("--ssl-key-file", "/no/key"), "--ssl-cert-file is missing", "give --ssl-cert-file"),
        (("--ssl-cert-file", "/no/cert"), "--ssl-key-file is missing", "give --ssl-key-file"),
        (("--ssl-key-file", "/no/key", "--ssl-cert-file", "/no/cert"), "cannot read /no/key", "a PEM file"),
        (("--ssl-key-file", __file__, "--ssl-cert-file", __file__), "no certificate and its key", "give the PEM"),
        (("--api-key", ""), "is given, but empty", "give a key, or leave --api-key out"),
        (("--api-key-file", "/no/keys"), "cannot read the API keys", None),
        (("--path", "/no/folder"), "/no/folder is no folder", "index.html"),
    ],
)  # fmt: skip
def test_what_keeps_a_server_from_starting(
    serve: Callable[..., tuple[int, str]], flags: tuple[str, ...], message: str, fix: str | None
) -> None:
    status, said = serve(*flags)
    assert status == 1
    assert said.startswith("error: ")
    assert message in said
    assert (fix or "") in said.partition("\n  fix: ")[2]
