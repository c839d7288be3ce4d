"""The common parts of all benchmarks: prompts, requests, the machine, the command to repeat it, a table and a JSON
file."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.http_load import LoadError
from dflash_local import native
from dflash_local.build import peer
from dflash_local.build.commit import running_commit
from dflash_local.build.upstream import sha256
from dflash_local.convert.complete_file import complete_or_absent
from dflash_local.demo.pocket import PAIRS
from dflash_local.demo.shapes import SHAPES, TYPES
from dflash_local.errors import DFlashError
from dflash_local.machine.hardware import Machine, this_machine
from dflash_local.machine.identity import build_key

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
ORIGIN = ("machine", "devices", "commit", "build")
NOT_RECORDED, NO_DEVICES = "not recorded", "none"
_TELL_DEVICES = """
import json
from dflash_local import native
from dflash_local.machine.devices import gpus
print()
print(json.dumps([f"{device['name']}: {device['description']}" for device in gpus(native.library_info())]))
"""
# llama.cpp's default chain and values, explicit so that no server's defaults matter. Temperature 0 makes it greedy.
SAMPLING: dict[str, Any] = {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "typical_p": 1.0, "repeat_penalty": 1.0}


def parser(doc: str | None, stem: str, *, n_predict: int, repeats: int, **defaults: Any) -> argparse.ArgumentParser:
    """An argument parser with the common options of all scripts, some with other `defaults`; `doc` is the module's
    docstring, `stem` the name of its results."""
    ap = _bare_parser(doc)
    ap.add_argument("-t", "--threads", type=int, default=2, metavar="N", help="threads of every server or engine")
    ap.add_argument("-n", "--n-predict", type=int, default=n_predict, metavar="N", help="most new tokens per answer")
    ap.add_argument("--repeats", type=int, default=repeats, metavar="N", help="times that everything is measured")
    ap.add_argument(
        "--prompts", type=Path, default=HERE / "prompts.jsonl", metavar="FILE", help="chat requests, one a line"
    )
    ap.add_argument("--limit", type=int, metavar="N", help="only N of the prompts, spread evenly: does it run at all?")
    ap.add_argument(
        "-o", "--out", type=Path, default=RESULTS / stem, metavar="STEM", help="writes STEM.json and STEM.md"
    )
    ap.set_defaults(**defaults)
    return ap


def kernel_parser(doc: str | None, stem: str) -> argparse.ArgumentParser:
    """An argument parser for scripts that measure kernels, of one target at a time."""
    ap = _bare_parser(doc)
    ap.add_argument("--work", type=Path, metavar="DIR", help="where the targets are and stay (default: the cache)")
    out, what = RESULTS / f"{stem}.json", "writes OUT and beside it a .md"
    ap.add_argument("--json", type=Path, default=out, dest="out", metavar="OUT", help=what)
    return ap


def _bare_parser(doc: str | None) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        description=(doc or "").partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )


def add_pair_options(ap: argparse.ArgumentParser, shape: str = "0.6b") -> None:
    """Options of scripts that make inflated pairs."""
    ap.add_argument("--shape", choices=SHAPES, default=shape, help="what the pocket pairs are inflated to")
    add_work_option(ap)
    ap.add_argument("--ngl", type=int, metavar="N", help="layers of target and drafter on the GPU (default: all)")


def add_pair_choices(ap: argparse.ArgumentParser, drafters: Sequence[str], types: Sequence[str]) -> None:
    """Options of scripts that measure several pairs; the defaults are `drafters` and `types`."""
    ap.add_argument("--drafters", nargs="+", choices=PAIRS, default=list(drafters), help="bundled pairs, by drafter")
    ap.add_argument("--types", nargs="+", choices=TYPES, default=list(types), help="quantizations of the pair")


def add_temperatures_option(ap: argparse.ArgumentParser, *default: float) -> None:
    ap.add_argument("--temperatures", nargs="+", type=float, default=list(default), metavar="T")


def add_work_option(ap: argparse.ArgumentParser) -> None:
    ap.add_argument("--work", type=Path, metavar="DIR", help="where inflated pairs are and stay (default: the cache)")


def add_pair_choice(ap: argparse.ArgumentParser) -> None:
    """Options of scripts that measure one of the pairs."""
    ap.add_argument("--drafter", choices=PAIRS, default="dflash", help="bundled pair, by drafter")
    ap.add_argument("--type", choices=TYPES, default="q4_0", help="quantization of the pair, if it is inflated")


def read_prompts(path: Path, limit: int | None = None) -> list[dict[str, Any]]:
    """The chat requests of a file, at most `limit` of them, spread evenly."""
    prompts = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return spread(prompts, limit)


def spread(prompts: list[dict[str, Any]], limit: int | None) -> list[dict[str, Any]]:
    """At most `limit` of them, evenly."""
    if limit is None or limit >= len(prompts):
        return prompts
    return [prompts[i * len(prompts) // limit] for i in range(limit)]


def seed_of(prompt: int, repeat: int = 0) -> int:
    """The seed of a prompt in a repeat, the same for all systems."""
    return 1000 * (repeat + 1) + prompt


def requests(
    prompts: Sequence[dict[str, Any]], n: int, temperature: float, repeat: int = 0, **extra: Any
) -> list[dict[str, Any]]:
    """Request bodies, equal for all systems, without reuse of cached prompts."""
    common = {**SAMPLING, "max_tokens": n, "temperature": temperature, "cache_prompt": False, **extra}
    return [{**prompt, **common, "seed": seed_of(i, repeat)} for i, prompt in enumerate(prompts)]


def options(args: argparse.Namespace) -> dict[str, Any]:
    """The options that a figure depends on; paths of this machine are left out."""
    found = {
        key: value for key, value in vars(args).items() if not isinstance(value, Path) and key not in ("work", "resume")
    }
    if prompts := getattr(args, "prompts", None):
        found["prompts_sha256"] = sha256(prompts)[:12]
    return found


def command(ap: argparse.ArgumentParser, args: argparse.Namespace) -> str:
    """The command line to repeat a measurement, without default values and paths of this machine."""
    script = Path(sys.argv[0]).resolve()
    words = ["python", f"benchmarks/{script.relative_to(HERE) if script.is_relative_to(HERE) else script.name}"]
    for action in ap._actions:
        value = getattr(args, action.dest, None)
        if action.dest not in options(args) or value is None or value == action.default:
            continue
        words.append(action.option_strings[-1])
        if action.nargs != 0:
            words += [
                f"{v:g}" if isinstance(v, float) else str(v) for v in (value if isinstance(value, list) else [value])
            ]
    return shlex.join(words)


def origin() -> dict[str, Any]:
    """The origin of a record, for the JSON file: the machine, its GPUs, the running commit and the native build."""
    return {
        "machine": this_machine().to_json(),
        "devices": devices(),
        "commit": running_commit(),
        "build": build_key(),
    }


@cache
def devices() -> list[str]:
    """The GPUs that the native build finds, asked in a separate process so that the benchmark's own holds no device."""
    done = subprocess.run([sys.executable, "-c", _TELL_DEVICES], capture_output=True, text=True)
    if done.returncode != 0:
        raise DFlashError(f"the native build tells no devices: {done.stderr.strip()[-500:]}", hint=native.BUILD_HINT)
    return json.loads(done.stdout.splitlines()[-1])


def origin_words(record: Mapping[str, Any]) -> dict[str, str]:
    """The origin of any record, in words; an old record may lack some of it."""
    words = dict.fromkeys(ORIGIN, NOT_RECORDED) | {name: record[name] for name in ORIGIN if record.get(name)}
    if record.get("machine"):
        words["machine"] = str(Machine.from_json(record["machine"]))
    if "devices" in record:
        words["devices"] = "; ".join(record["devices"]) or NO_DEVICES
    return words


def check_same(out: Path, record: Mapping[str, Any], now: Mapping[str, Any], names: Sequence[str] = ORIGIN) -> None:
    """Check that figures of `now` may be added to `record`, which is in `out`. Raises LoadError if one of `names`
    differs or was not recorded."""
    before, after = origin_words(record), origin_words(now)
    if different := [name for name in names if before[name] != after[name] or before[name] == NOT_RECORDED]:
        what = "; ".join(f"{name}: {before[name]}, now {after[name]}" for name in different)
        raise LoadError(f"{out.name}.json is of something else ({what}): leave it as it is and give another -o")


def environment(ap: argparse.ArgumentParser, args: argparse.Namespace) -> dict[str, Any]:
    """Origin, versions, options and command, for the JSON file."""
    pinned = peer.pin()
    return {
        **origin(),
        "upstream": {"package": f"{pinned.package}=={pinned.version}", "llama.cpp": pinned.commit},
        "options": options(args),
        "command": command(ap, args),
    }


def footer(record: Mapping[str, Any]) -> str:
    """The line under a table: machine, code, and the command to repeat it."""
    threads = record["options"]["threads"]
    named = ", ".join(map(str, threads)) if isinstance(threads, (list, tuple)) else str(threads)
    return f"{place(record)}; {named} thread{'s' if named != '1' else ''}; {code(record)}. `{record['command']}`"


def place(record: Mapping[str, Any]) -> str:
    """The machine of a record and its GPUs, for pages."""
    words = origin_words(record)
    gpus = "" if words["devices"] in (NO_DEVICES, NOT_RECORDED) else f"; {words['devices']}"
    return words["machine"] + gpus


def code(record: Mapping[str, Any]) -> str:
    """The commit and the build of a record, for pages."""
    words = origin_words(record)
    return f"commit {words['commit']}, build {words['build']}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def ratio_row(base: Sequence[float], other: Sequence[float], limit: float) -> dict[str, Any]:
    """What a row has of two speeds in several repeats: `ratios` of the other to the base, their median `ratio`, and
    whether it is above the limit."""
    found = ratios(base, other)
    ratio = statistics.median(found)
    return {"ratio": ratio, "ratios": [round(one, 4) for one in found], "held": ratio > limit}


def ratios(base: Sequence[float], other: Sequence[float]) -> list[float]:
    """Of the other to the base, in each repeat."""
    return [b / a for a, b in zip(base, other, strict=True)]


def ratio_cells(row: Mapping[str, Any], limit: float) -> tuple[str, str, str]:
    """Three cells of a `ratio_row`: the median with the range, the limit, and whether it holds."""
    found = row["ratios"]
    return f"{row['ratio']:.3f} ({min(found):.3f}-{max(found):.3f})", f"more than {limit}", verdict(row["held"])


def verdict(held: bool) -> str:
    """A cell: whether a limit holds."""
    return "held" if held else "MISSED"


def save(out: Path, record: Mapping[str, Any], text: str) -> None:
    """Write `out`.json and `out`.md atomically, so that an interrupt cannot destroy hours of measurements."""
    out.parent.mkdir(parents=True, exist_ok=True)
    for path, content in ((out.with_suffix(".json"), dump(record)), (out.with_suffix(".md"), text)):
        with complete_or_absent(path) as file:
            file.write(content.encode())


def publish(out: Path, record: Mapping[str, Any], text: str) -> int:
    """Write a record, and print its text. Returns the exit status."""
    save(out, record, text)
    print(text)
    return 0


def dump(record: Mapping[str, Any]) -> str:
    """JSON with a line per item of the outer lists, so that it is short but diffs are readable."""

    def part(value: Any) -> str:
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return "[\n  " + ",\n  ".join(json.dumps(item) for item in value) + "\n ]"
        return json.dumps(value)

    return "{\n " + ",\n ".join(f"{json.dumps(key)}: {part(value)}" for key, value in record.items()) + "\n}\n"


class Table:
    """A script's rows, written with their origin as they come; `markdown(rows, footer)` is their text."""

    def __init__(
        self,
        ap: argparse.ArgumentParser,
        args: argparse.Namespace,
        markdown: Callable[[list[dict[str, Any]], str], str],
        **more: Any,
    ) -> None:
        self.rows: list[dict[str, Any]] = []
        self._out, self._markdown = args.out, markdown
        self._origin = {**environment(ap, args), **more}
        self._footer = footer(self._origin)
        say(self._footer)

    def add(self, row: dict[str, Any]) -> None:
        """Write all rows so far."""
        self.rows.append(row)
        save(self._out, {**self._origin, "rows": self.rows}, self._text)

    def show(self) -> int:
        """Print the table. Returns the exit status: 1 if a row has missed its limit, that is, is not `held`."""
        print(self._text)
        return int(not all(row.get("held", True) for row in self.rows))

    @property
    def _text(self) -> str:
        return self._markdown(self.rows, self._footer)


def load(out: Path) -> dict[str, Any]:
    """The record that `save` wrote; {} if there is none."""
    path = out.with_suffix(".json")
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def run(main: Callable[[], int]) -> None:
    """Run a script's `main` and exit. Errors take one line, and SIGTERM ends the servers like Ctrl-C."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except (DFlashError, LoadError) as error:
        sys.exit(f"error: {error}")


def say(text: str) -> None:
    """Print progress to stderr; stdout is for the table."""
    print(text, file=sys.stderr, flush=True)
