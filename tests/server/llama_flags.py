"""The flags of the pinned llama-server, read from its `common/arg.cpp`."""

from __future__ import annotations

import re
import tarfile
from dataclasses import dataclass

from dflash_local.build.log import BuildLog
from dflash_local.build.upstream import Upstream, native_source
from dflash_local.cache_dir import cache_dir

_LITERAL = r'"((?:[^"\\]|\\.)*)"'


@dataclass(frozen=True)
class LlamaFlag:
    """One option: the names that switch it on or take its value, those that switch it off, and its variable."""

    names: tuple[str, ...]
    off: tuple[str, ...]
    env: str | None

    @property
    def variables(self) -> set[str]:
        """Its variables: `common_arg::get_env()`."""
        if self.env is None:
            return set()
        return {self.env} | ({self.env.replace("LLAMA_ARG_", "LLAMA_ARG_NO_")} if self.off else set())


def pinned_source(name: str) -> str:
    """A file of llama.cpp out of the source distribution that the build fetches."""
    with BuildLog(cache_dir() / "logs" / "llama-flags.log") as log:
        archive = Upstream.read(native_source() / "patches" / "UPSTREAM").fetch(log)
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.name.endswith(f"vendor/llama.cpp/{name}"):
                file = tar.extractfile(member)
                assert file
                return file.read().decode()
    raise AssertionError(f"{archive} has no {name}")


def pinned_arguments() -> str:
    return pinned_source("common/arg.cpp")


def server_flags(source: str) -> list[LlamaFlag]:
    """All that llama-server takes: the options that are common, and those for it."""
    text = re.sub(r"//[^\n\"]*$", "", source, flags=re.MULTILINE)
    flags = []
    for call in re.split(r"\badd_opt\(common_arg\(", text)[1:]:
        names, rest = _braces(call)
        off, _ = _braces(rest) if rest.startswith("{") else ((), rest)
        examples = re.search(r"set_examples\(([^)]*)\)", call)
        wanted = examples[1] if examples else "LLAMA_EXAMPLE_COMMON"
        env = re.search(r'set_env\("(\w+)"\)', call)
        if _is_for_server(wanted) and "set_excludes({LLAMA_EXAMPLE_SERVER" not in call:
            flags.append(LlamaFlag(names, off, env[1] if env else None))
    return flags


def all_variables(source: str) -> set[str]:
    """Every variable that llama.cpp's programs read for an option."""
    return set(re.findall(r'set_env\("(\w+)"\)', source))


def _is_for_server(examples: str) -> bool:
    return bool({"LLAMA_EXAMPLE_SERVER", "LLAMA_EXAMPLE_COMMON", "mmproj_examples"} & set(re.findall(r"\w+", examples)))


def _braces(text: str) -> tuple[tuple[str, ...], str]:
    """The strings of the braces at the start of `text`, and what follows them."""
    inside, _, rest = text.partition("{")[2].partition("}")
    return tuple(re.findall(_LITERAL, inside)), rest.lstrip(" ,\n")
