"""The programs that `launch` can start. To add one, add it to PROGRAMS; docs/clients.md has a section for each."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dflash_local.cli.launch.setup import Place, Setup
from dflash_local.environment_proxy import bypass_variables

# Tokens. What an agent says before the user's first word takes a third to two thirds of this.
AGENT = 32768


@dataclass(frozen=True)
class Program:
    """A program.

    Attributes:
        title: its name, for people.
        command: its executable.
        install: the line that installs it.
        context: fewest tokens of context that it can work with.
        setup: what it needs to use a server that it can reach.
    """

    title: str
    command: str
    install: str
    context: int
    setup: Callable[[Place], Setup]

    def setup_at(self, place: Place) -> Setup:
        """What it needs here, where a proxy may stand before the server."""
        setup = self.setup(place)
        return replace(setup, variables={**setup.variables, **bypass_variables(place.url)})


def _claude(place: Place) -> Setup:
    names = ("ANTHROPIC_MODEL", *(f"ANTHROPIC_DEFAULT_{size}_MODEL" for size in ("OPUS", "SONNET", "HAIKU")))
    return Setup(
        {
            "ANTHROPIC_BASE_URL": place.url,
            "ANTHROPIC_AUTH_TOKEN": place.key,
            "ANTHROPIC_API_KEY": "",  # it would be used in place of the token
            **dict.fromkeys(names, place.model),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
    )


def _codex(place: Place) -> Setup:
    provider = {
        "name": "dflash-local",
        "base_url": f"{place.url}/v1",
        "env_key": "DFLASH_API_KEY",
        "wire_api": "responses",
    }
    settings = {
        "model": place.model,
        "model_provider": "dflash",
        "model_context_window": place.context,
        **{f"model_providers.dflash.{name}": value for name, value in provider.items()},
    }
    # A value is TOML, whose strings and numbers are written as in JSON.
    arguments = [word for name, value in settings.items() for word in ("-c", f"{name}={json.dumps(value)}")]
    return Setup({"DFLASH_API_KEY": place.key}, arguments)


def _opencode(place: Place) -> Setup:
    name = f"dflash/{place.model}"
    model = {"name": place.model, "limit": {"context": place.context, "output": place.context // 4}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "dflash-local",
        "options": {"baseURL": f"{place.url}/v1", "apiKey": place.key},
        "models": {place.model: model},
    }
    config = {"model": name, "small_model": name, "provider": {"dflash": provider}}
    return Setup({"OPENCODE_CONFIG_CONTENT": _json(config)})


def _qwen(place: Place) -> Setup:
    # The lowest of its settings files: all of the user's own stay in force.
    path = place.folder / "qwen-defaults.json"
    defaults = {"model": {"generationConfig": {"contextWindowSize": place.context}}}
    return Setup(
        {
            "OPENAI_BASE_URL": f"{place.url}/v1",
            "OPENAI_API_KEY": place.key,
            "QWEN_CODE_SYSTEM_DEFAULTS_PATH": str(path),
        },
        ("--auth-type", "openai", "--model", place.model),
        {path: _json(defaults) + "\n"},
    )


def _aider(place: Place) -> Setup:
    return Setup(
        {"OPENAI_API_BASE": f"{place.url}/v1", "OPENAI_API_KEY": place.key},
        ("--model", f"openai/{place.model}", "--no-show-model-warnings"),
    )


def _open_webui(place: Place) -> Setup:
    return Setup(
        {"OPENAI_API_BASE_URL": f"{place.url}/v1", "OPENAI_API_KEY": place.key, "ENABLE_OLLAMA_API": "false"},
        ("serve", "--port", "3000"),  # its own default is ours, 8080
    )


def _continue(place: Place) -> Setup:
    path = place.folder / "continue.yaml"
    model = {
        "name": place.model,
        "provider": "openai",
        "model": place.model,
        "apiBase": f"{place.url}/v1",
        "apiKey": place.key,
        "roles": ["chat", "edit", "apply"],
        "capabilities": ["tool_use"],
        "defaultCompletionOptions": {"contextLength": place.context, "maxTokens": place.context // 4},
    }
    config = {"name": "dflash-local", "version": "1.0.0", "schema": "v1", "models": [model]}
    return Setup({}, ("--config", str(path)), {path: _json(config) + "\n"})  # JSON is YAML


def _json(config: dict[str, Any]) -> str:
    return json.dumps(config, indent=2)


def _npm(package: str) -> str:
    return f"npm install -g {package}"


PROGRAMS = {
    "claude": Program("Claude Code", "claude", _npm("@anthropic-ai/claude-code"), AGENT, _claude),
    "codex": Program("Codex", "codex", _npm("@openai/codex"), AGENT, _codex),
    "opencode": Program("OpenCode", "opencode", _npm("opencode-ai"), AGENT, _opencode),
    "qwen": Program("Qwen Code", "qwen", _npm("@qwen-code/qwen-code"), AGENT, _qwen),
    "aider": Program("aider", "aider", "pipx install aider-chat", 8192, _aider),
    "open-webui": Program("Open WebUI", "open-webui", "pipx install open-webui", 4096, _open_webui),
    "continue": Program("Continue", "cn", _npm("@continuedev/cli"), AGENT, _continue),
}
