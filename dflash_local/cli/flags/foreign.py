"""llama-server's flags and variables that `serve` does not implement: which change nothing, which are refused, and why.

All others are our own flags. Entries that the parser already knows are skipped, so a flag that becomes real needs no
change in this table. tests/server/test_llama_flags.py compares both with `common/arg.cpp` of the pinned source.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from dflash_local.cli.flags.flag import SILENT, variables_for
from dflash_local.cli.flags.values import truth
from dflash_local.cli.parser_actions import actions_by_name, actions_of, set_variables, variables_of
from dflash_local.cli.typed_path import exists
from dflash_local.errors import RequestError


class Effect(Enum):
    """The effect of a flag."""

    SAME = "already the behaviour here"
    NONE = "accepted, with a note that it changes nothing"
    REFUSED = "an error"


SAME, NONE, REFUSED = Effect.SAME, Effect.NONE, Effect.REFUSED


@dataclass(frozen=True)
class Foreign:
    """One flag of llama-server: its names, its number of values, and its variable; `why` is for the message.

    `off` names switch it off, with `off_effect`; `effect` is for switching it on.
    """

    names: tuple[str, ...]
    effect: Effect
    why: str
    env: str | None = None
    values: int = 0
    off: tuple[str, ...] = ()
    off_effect: Effect = SAME

    @property
    def variables(self) -> tuple[str, ...]:
        return variables_for(self.env, self.off)


def _switch(names: str, effect: Effect, why: str, env: str | None = None, **more: Any) -> Foreign:
    return Foreign(tuple(names.split()), effect, why, f"LLAMA_ARG_{env}" if env else None, **more)


_value = partial(_switch, values=1)


def _pair(names: str, off: str, effect: Effect, off_effect: Effect, why: str, env: str | None = None) -> Foreign:
    return _switch(names, effect, why, env, off=tuple(off.split()), off_effect=off_effect)


_PINNED = "threads are not pinned and keep their priority: start the process with taskset, numactl or nice"
_ROPE = "target and drafter use the rotation that they were trained with"
_VIDEO = "videos are not supported: send some of their frames as images"
_LORA = "adapters are not supported: merge them into the GGUF"
_VECTORS = "control vectors are not supported: drafters were trained without them"
_TOOLS = "tools run in the client: this server runs no commands for those who can reach it"
_LOOKUP = "prompt lookup has no such settings: the budget controller measures what pays (--lookup off switches it off)"
_NGRAM_FILES = "llama.cpp's files of n-grams are not read: give texts to quote with --lookup-corpus FILE|DIR"
_TREE = "the draft tree is sized by measured times: there is no such threshold"
_DENSE = "drafters have no experts"
_DRAFTER = "the drafter computes on the target's threads"
_NAMED = "give the model by name: -hf USER/NAME:QUANT"
_REMOVED = "llama.cpp has removed it"
_SYNTHETIC = "drafts are never accepted by chance: that would change the text"

FOREIGN: tuple[Foreign, ...] = (
    # switches of llama-server that are fixed here
    _pair(
        "-cb --cont-batching", "-nocb --no-cont-batching", SAME, REFUSED,
        "requests always share passes; -np 1 runs one at a time", "CONT_BATCHING",
    ),
    _pair("--perf", "--no-perf", SAME, SAME, "", "PERF"),
    _pair("--jinja", "--no-jinja", SAME, NONE, "templates are Jinja, with or without it", "JINJA"),
    _pair(
        "--context-shift", "--no-context-shift", REFUSED, SAME,
        "no token can be dropped from a full context: drafter and trees need fixed positions; raise -c",
        "CONTEXT_SHIFT",
    ),
    _value("--keep", NONE, "the context is never shifted"),
    _value(
        "--cache-reuse", NONE,
        "K and V behind the first difference belong to other words and positions: they are read again", "CACHE_REUSE",
    ),
    _value("--threads-http", NONE, "one event loop serves all connections", "THREADS_HTTP"),
    _switch("--props", NONE, "there is no property that POST /props could change", "ENDPOINT_PROPS"),
    _switch("-bs --backend-sampling", NONE, "tokens are sampled on the CPU", "BACKEND_SAMPLING"),
    _value("-dt --defrag-thold", NONE, "llama.cpp itself no longer uses it", "DEFRAG_THOLD"),
    _value("-lzm --lazy-mode", NONE, "the file is mapped: what is never used is not read (--load-mode)", "LAZY_MODE"),
    _pair("--repack", "-nr --no-repack", SAME, NONE, "weights are packed for this machine's kernels", "REPACK"),
    _switch("--no-host", NONE, "weights are in the buffers that the kernels need", "NO_HOST"),
    _pair("--op-offload", "--no-op-offload", SAME, NONE, "llama.cpp decides where large products are computed"),
    # threads
    _value("-C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll", NONE, _PINNED),
    _value("-Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch --prio-batch --poll-batch", NONE, _PINNED),
    _value("--numa", NONE, _PINNED, "NUMA"),
    _value("--spec-draft-threads -td --threads-draft", NONE, _DRAFTER),
    _value("--spec-draft-threads-batch -tbd --threads-batch-draft", NONE, _DRAFTER),
    _value("--spec-draft-cpu-mask -Cd --cpu-mask-draft --spec-draft-cpu-range -Crd --cpu-range-draft", NONE, _DRAFTER),
    _value("--spec-draft-cpu-strict --cpu-strict-draft --spec-draft-prio --prio-draft", NONE, _DRAFTER),
    _value("--spec-draft-poll --poll-draft --spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft", NONE, _DRAFTER),
    _value("--spec-draft-cpu-strict-batch --cpu-strict-batch-draft", NONE, _DRAFTER),
    _value("--spec-draft-prio-batch --prio-batch-draft --spec-draft-poll-batch --poll-batch-draft", NONE, _DRAFTER),
    # devices and memory
    _switch("--spec-draft-cpu-moe -cmoed --cpu-moe-draft", NONE, _DENSE, "SPEC_DRAFT_CPU_MOE"),
    _value("--spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft", NONE, _DENSE, "SPEC_DRAFT_N_CPU_MOE"),
    # the model
    _switch("--check-tensors", REFUSED, "tensors are not searched for NaN values"),
    _value("--override-kv", REFUSED, "a model is served with the metadata of its file: change them there"),
    _value("--rope-scaling", REFUSED, _ROPE, "ROPE_SCALING_TYPE"),
    _value("--rope-scale", REFUSED, _ROPE, "ROPE_SCALE"),
    _value("--rope-freq-base", REFUSED, _ROPE, "ROPE_FREQ_BASE"),
    _value("--rope-freq-scale", REFUSED, _ROPE, "ROPE_FREQ_SCALE"),
    *(
        _value("--yarn-" + name, REFUSED, _ROPE, "YARN_" + name.replace("-", "_").upper())
        for name in ("orig-ctx", "ext-factor", "attn-factor", "beta-slow", "beta-fast")
    ),
    _value("--lora --lora-scaled", REFUSED, _LORA),
    _switch("--lora-init-without-apply", REFUSED, _LORA),
    _value("--control-vector --control-vector-scaled", REFUSED, _VECTORS),
    _value("--control-vector-layer-range", REFUSED, _VECTORS, values=2),
    _value("-mu --model-url", REFUSED, _NAMED, "MODEL_URL"),
    _value("-dr --docker-repo", REFUSED, _NAMED, "DOCKER_REPO"),
    _switch("-cl --cache-list", REFUSED, "'hf cache ls' lists the models in the cache"),
    _switch("--embd-gemma-default --gpt-oss-20b-default --gpt-oss-120b-default", REFUSED, _NAMED),
    _switch("--fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default", REFUSED, _NAMED),
    _switch("--fim-qwen-7b-spec --fim-qwen-14b-spec --fim-qwen-30b-default", REFUSED, _NAMED),
    _switch("--vision-gemma-4b-default --vision-gemma-12b-default", REFUSED, _NAMED),
    # images and audio
    Foreign(
        ("-mmdev", "--mmproj-device"), REFUSED,
        "the projector is on the first device of --device on this machine, or with --no-mmproj-offload on the CPU",
        "MTMD_BACKEND_DEVICE", values=1,
    ),
    _value("--mtmd-batch-max-tokens", NONE, "this is no setting of the encoder here", "MTMD_BATCH_MAX_TOKENS"),
    _value("--video-fps", NONE, _VIDEO, "VIDEO_FPS"),
    _value("--video-timestamp-interval", NONE, _VIDEO, "VIDEO_TIMESTAMP_INTERVAL"),
    _value("--video-ffmpeg-dir", NONE, _VIDEO, "VIDEO_FFMPEG_DIR"),
    # drafts
    _value("--spec-draft-n-min", NONE, _TREE, "SPEC_DRAFT_N_MIN"),
    _value("--spec-draft-p-min --draft-p-min", NONE, _TREE, "SPEC_DRAFT_P_MIN"),
    _value("--spec-draft-p-split --draft-p-split", NONE, _TREE, "SPEC_DRAFT_P_SPLIT"),
    _pair(
        "--spec-draft-backend-sampling", "--no-spec-draft-backend-sampling", NONE, NONE,
        "the drafter's candidates are chosen inside its graph", "SPEC_DRAFT_BACKEND_SAMPLING",
    ),
    _value("--spec-synth-len", REFUSED, _SYNTHETIC, "SPEC_SYNTH_LEN"),
    _value("--spec-synth-rates", REFUSED, _SYNTHETIC, "SPEC_SYNTH_RATES"),
    _switch("--spec-default", SAME, ""),  # llama.cpp's prompt lookup: ours is on by default
    _value("-lcs --lookup-cache-static -lcd --lookup-cache-dynamic", REFUSED, _NGRAM_FILES),
    _value("--spec-ngram-mod-n-min --spec-ngram-mod-n-max --spec-ngram-mod-n-match", NONE, _LOOKUP),
    *(
        _value(f"--spec-ngram-{kind}-size-n --spec-ngram-{kind}-size-m --spec-ngram-{kind}-min-hits", NONE, _LOOKUP)
        for kind in ("simple", "map-k", "map-k4v")
    ),
    _value("--spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits", REFUSED, f"{_REMOVED}; {_LOOKUP}"),
    _value("--draft-n", REFUSED, f"{_REMOVED}: use --spec-draft-n-max", "DRAFT_MAX"),
    _value("--draft-min --draft-n-min", REFUSED, f"{_REMOVED}; {_TREE}", "DRAFT_MIN"),
    # tools, logs, the shell
    _pair(
        "--ui-mcp-proxy --webui-mcp-proxy", "--no-ui-mcp-proxy --no-webui-mcp-proxy", REFUSED, SAME, _TOOLS,
        "UI_MCP_PROXY",
    ),
    _value("--tools", REFUSED, _TOOLS, "TOOLS"),
    _value("--tools-runtime", REFUSED, _TOOLS, "TOOLS_RUNTIME"),
    _value("--mcp-servers-config", REFUSED, _TOOLS, "MCP_SERVERS_CONFIG"),
    _value("--mcp-servers-json", REFUSED, _TOOLS, "MCP_SERVERS_JSON"),
    _pair("-ag --agent", "-no-ag --no-agent", REFUSED, SAME, _TOOLS, "AGENT"),
    _value("--log-prompts-dir", REFUSED, "prompts are written only with their answers, by --record DIR"),
    _switch("--completion-bash", REFUSED, "'dflash-local completion bash' prints the script"),
    # only variables: their flags belong to other programs of llama.cpp
    *(_value("", SAME, "", env) for env in ("FIT_ESTIMATE", "GRP_ATTN_N", "GRP_ATTN_W", "SHOW_TIMINGS")),
)  # fmt: skip


class GivenForeign(argparse.Action):
    """A foreign flag on the command line; `foreign_flags` collects those that are accepted, with their notes."""

    def __init__(self, option_strings: list[str], dest: str, *, foreign: Foreign, effect: Effect, nargs: int) -> None:
        super().__init__(option_strings, dest, nargs=nargs, default=SILENT, help=SILENT)
        self.foreign, self.effect = foreign, effect
        set_variables(self, foreign.variables)

    def __call__(
        self, _parser: object, namespace: argparse.Namespace, _values: object, name: str | None = None
    ) -> None:
        if self.effect is REFUSED:
            raise argparse.ArgumentError(self, self.foreign.why)
        note = f"{name}: {self.foreign.why}" if self.effect is NONE else ""
        namespace.foreign_flags = {**namespace.foreign_flags, self.foreign: note}


def add_foreign_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that the parser does not have; `foreign_flags` are those that were given, with their notes."""
    parser.set_defaults(foreign_flags={})
    known = actions_by_name(parser).keys()
    for foreign in FOREIGN:
        for names, effect in ((foreign.names, foreign.effect), (foreign.off, foreign.off_effect)):
            for name in names:
                if name not in known:
                    parser.add_argument(
                        name, action=GivenForeign, foreign=foreign, effect=effect, nargs=foreign.values, dest=SILENT
                    )


def known_variables(parser: argparse.ArgumentParser) -> set[str]:
    """All variables with an effect here, even if it is a refusal."""
    actions = {name for action in actions_of(parser) for name in variables_of(action)}
    return actions.union(*(foreign.variables for foreign in FOREIGN if not foreign.names))


def check_variables(
    parser: argparse.ArgumentParser, given: Mapping[Foreign, str], environ: Mapping[str, str]
) -> Iterator[str]:
    """Notes about everything given without effect: foreign flags, their variables, and unknown variables with
    llama.cpp's prefix. A flag takes precedence over its variable.

    Raises:
        RequestError: a refused variable is set.
    """
    yield from filter(None, given.values())
    actions = [action for action in actions_of(parser) if isinstance(action, GivenForeign)]
    for foreign in dict.fromkeys(action.foreign for action in actions):
        variable = next((name for name in reversed(foreign.variables) if name in environ), None)
        if variable is None or foreign in given:
            continue
        effect = _effect(foreign, variable, environ[variable])
        if effect is REFUSED:
            raise RequestError(f"{variable} is set: {foreign.why}", param=variable, hint=f"unset {variable}")
        if effect is NONE:
            yield f"{variable}: {foreign.why}"
    for name in sorted(environ.keys() - known_variables(parser)):
        if name.startswith("LLAMA_ARG_"):
            yield f"{name}: neither the pinned llama-server nor this server has such a variable"


def check_config_files(environ: Mapping[str, str]) -> Iterator[str]:
    """Notes about llama-server's config files, of the machine and of the user, which are not read here: a key that one
    of them demands would be missed."""
    if os.name == "nt":
        folders = [environ.get("PROGRAMDATA"), environ.get("APPDATA")]
    else:
        home = environ.get("HOME")
        folders = ["/etc", environ.get("XDG_CONFIG_HOME") or (home and str(Path(home, ".config")))]
    for folder in filter(None, folders):
        path = Path(folder, "llama.cpp", "config.ini")
        if exists(path):
            yield f"{path} is llama-server's and is not read here: give its keys as flags or variables"


def _effect(foreign: Foreign, variable: str, value: str) -> Effect:
    """The effect of a variable. For switches any value of the LLAMA_ARG_NO_ form means off."""
    if foreign.values:
        return foreign.effect
    if variable != foreign.env:
        return foreign.off_effect
    try:
        on = truth(value)
    except argparse.ArgumentTypeError as error:
        raise RequestError(f"{variable} {error}", param=variable, hint=f"unset {variable}") from None
    return foreign.effect if on else foreign.off_effect
