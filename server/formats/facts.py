"""llama-server's facts about models and properties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dflash_local import __version__
from dflash_local.media.abilities import NO_MEDIA, Abilities
from dflash_local.server.engine_life import State
from dflash_local.server.formats.generation_settings import default_settings
from dflash_local.server.service import Service
from dflash_local.server.shapes.answer import pick
from dflash_local.server.shapes.facts import Architecture, CommonProps, Model, ModelMeta, Models, Props

OWNER = "dflash-local"
# llama-server's page wants one, even if the model reads no media.
MEDIA_MARKER = "<__media__>"


def models(service: Service, created: int) -> Models:
    """`/v1/models`: OpenAI's list, and beside it Ollama's."""
    entries = [*_entries(service, created)]
    return {"object": "list", "data": entries, "models": [*map(_ollama, entries)]}


def _entries(service: Service, created: int) -> Iterator[Model]:
    settings = service.settings
    if service.has_engine:
        aliases = settings.aliases or (settings.alias,)
        facts = {**service.engine.info["target"], "n_ctx": service.engine.n_ctx_slot}
        entry = _entry(settings.alias, created, facts, aliases=aliases, tags=settings.tags)
        yield {**entry, "architecture": architecture(service.engine.abilities)}
    for process in service.processes:
        name = process.options.name
        yield _entry(name, created, process.facts, aliases=(name,), tags=())


def _entry(name: str, created: int, facts: Mapping[str, Any], *, aliases: Sequence[str], tags: Sequence[str]) -> Model:
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": OWNER,
        "aliases": [*aliases],
        "tags": [*tags],
        "meta": pick(ModelMeta, facts),
    }


def architecture(abilities: Abilities) -> Architecture:
    """What a model reads and writes."""
    found: Architecture = {"input_modalities": ["text"], "output_modalities": ["text"]}
    found["input_modalities"] += ["image"] if abilities.vision else []
    found["input_modalities"] += ["audio"] if abilities.audio else []
    return found


def _ollama(entry: Model) -> dict[str, Any]:
    """What Ollama's clients look for in a list of models, as llama-server fills it."""
    name, reads = entry["id"], entry.get("architecture", {"input_modalities": ()})["input_modalities"]
    details = {
        "parent_model": "", "format": "gguf", "family": "", "families": [""], "parameter_size": "",
        "quantization_level": "",
    }  # fmt: skip
    return {
        "name": name,
        "model": name,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "",
        "tags": [""],
        "capabilities": ["completion", "multimodal"] if len(reads) > 1 else ["completion"],
        "parameters": "",
        "details": details,
    }


def props(service: Service) -> Props:
    """`/props`; without an engine only what every server has."""
    settings = service.settings
    abilities = service.engine.abilities if service.has_engine else NO_MEDIA
    common: CommonProps = {
        "modalities": {"vision": abilities.vision, "audio": abilities.audio, "video": False},
        "media_marker": settings.media_marker or abilities.marker or MEDIA_MARKER,
        "endpoint_slots": settings.slots_endpoint and service.has_engine,
        "endpoint_props": False,
        "endpoint_metrics": settings.metrics_endpoint,
        "ui": settings.webui,
        "ui_settings": dict(settings.ui_settings),
        "build_info": f"dflash-local {__version__}",
        "is_sleeping": service.life.state is State.SLEEPING,
        "cors_proxy_enabled": False,
    }
    if not service.has_engine:
        first = service.processes[0]
        return {"total_slots": 0, "model_alias": first.options.name, "model_path": first.options.path, **common}
    engine = service.engine
    return {
        "default_generation_settings": {
            "params": default_settings(engine, settings.defaults),
            "n_ctx": engine.n_ctx_slot,
        },
        "total_slots": engine.n_slots,
        "model_alias": settings.alias,
        "model_ftype": engine.info["target"].get("ftype"),
        "model_path": settings.model_path,
        "chat_template": engine.info.get("chat_template", ""),
        "chat_template_caps": engine.info.get("chat_template_caps", {}),
        "bos_token": service.control_texts["bos_token"],
        "eos_token": service.control_texts["eos_token"],
        **common,
        "dflash": {name: value for name, value in engine.info.items() if not name.startswith("chat_template")},
    }
