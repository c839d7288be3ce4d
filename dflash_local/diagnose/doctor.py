"""`dflash-local doctor`: is everything here that a fast answer needs, and, given a pair, do the two fit each other and
this machine?

Each look is a generator of findings and needs nothing but what it looks at, so one broken part does not hide the next.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dflash_local import __version__
from dflash_local.cli.flags import add_engine_flags, engine_options
from dflash_local.diagnose.finding import Finding, Level, fail, ok, warn, worst
from dflash_local.diagnose.machine import GIB, Machine, cpu_flags, this_machine
from dflash_local.errors import BuildError, DFlashError, ModelError, RequestError

# /proc/cpuinfo's name -> ggml's: instruction sets that change the speed of quantized matrices, or stop the process if
# they are missing.
CPU_FEATURES = {
    "avx": "AVX",
    "avx2": "AVX2",
    "fma": "FMA",
    "f16c": "F16C",
    "bmi2": "BMI2",
    "avx_vnni": "AVX_VNNI",
    "avx512f": "AVX512",
    "avx512_vnni": "AVX512_VNNI",
    "avx512_vbmi": "AVX512_VBMI",
    "avx512_bf16": "AVX512_BF16",
    "amx_int8": "AMX_INT8",
    "asimddp": "DOTPROD",
    "i8mm": "MATMUL_INT8",
    "sve": "SVE",
}
BUILD = "dflash-local build"
# Types to tune unasked: those of most models.
TYPES = ("q4_0", "q4_K", "q5_K", "q6_K", "q8_0")
# The engine's defaults, in tokens of a slot.
DEFAULT_CTX, DRAFT_CTX = 16384, 4096
KV_BYTES = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `doctor` to the command line."""
    parser = subparsers.add_parser(
        "doctor",
        help="check the build, the devices and a pair; one line of advice per finding",
        description="Checks the native library, the devices that it really loaded and this machine; with -m and -md "
        "also whether the two models fit each other and what memory they need. Exits with 1 if anything FAILs.",
    )
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="print the findings as JSON, or write them to FILE"
    )
    tune = parser.add_argument_group("tuning")
    tune.add_argument(
        "--tune",
        action="store_true",
        help="measure from how many rows on a device's matrix kernel beats its vector kernel, and keep that",
    )
    tune.add_argument(
        "--device", metavar="NAME", help="the device to tune: CPU, CUDA0, ... (the first that has both kernels)"
    )
    tune.add_argument(
        "--types", type=_names, metavar="TYPE,...", help=f"quantized types (those that have both of {','.join(TYPES)})"
    )
    tune.add_argument(
        "--shape", type=_names, default=["8b"], metavar="8b|27b|MxK,...", help="shapes of the matrices (8b)"
    )
    add_engine_flags(parser, model_required=False)
    parser.set_defaults(func=run)


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.tune:
        return tune(args)
    machine = this_machine()
    info: dict[str, Any] = {}
    findings = [*look_at_machine(machine, args.n_threads or 0), *look_at_build(), *look_at_library(info)]
    if info:
        findings += look_at_tuning(info)
    if args.model:
        findings += look_at_models(args, machine, info)
    elif args.drafter:
        findings.append(fail("models", "a drafter alone says nothing", "give the target too: -m TARGET.gguf"))
    _report(args.json, findings, machine, library=info)
    return 1 if worst(findings) is Level.FAIL else 0


def _report(file: str | None, findings: Sequence[Finding], machine: Machine, **more: Any) -> None:
    """Findings as lines, or with everything else as JSON: to a file, or "-": printed."""
    text = json.dumps({"machine": machine.to_json(), **more, "findings": [f.to_json() for f in findings]}, indent=1)
    if file and file != "-":
        try:
            Path(file).write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise RequestError(f"cannot write {file}: {error.strerror}", param="--json") from None
    print(text if file == "-" else "\n".join(map(str, findings)))


# ---- tuning ----


def tune(args: argparse.Namespace) -> int:
    """Measure where the two kernels of a device cross, print the times, and keep what was found for every later
    start."""
    from dflash_local.diagnose import tuning

    machine = this_machine()
    info: dict[str, Any] = {}
    findings = [*look_at_machine(machine), *look_at_library(info)]
    runs: list[dict[str, Any]] = []
    if info:
        tuning.apply()
        findings += _tune(args, info, runs)
    _report(args.json, findings, machine, library=info, runs=runs)
    return 1 if worst(findings) is Level.FAIL else 0


def _tune(args: argparse.Namespace, info: dict[str, Any], runs: list[dict[str, Any]]) -> Iterator[Finding]:
    """What becomes of each type; `runs` gets the times."""
    from dflash_local.diagnose import tuning

    names = (
        [args.device]
        if args.device
        else [device["name"] for device in sorted(info["devices"], key=lambda d: d["type"] == "cpu")]
    )
    device, types = next(
        ((name, types) for name in names if (types := tuning.choices(name, args.types or TYPES))), (names[0], [])
    )
    for missing in [name for name in args.types or () if name not in types]:
        yield warn("tuned rows", f"{device} has one kernel only for {missing}", "leave it out of --types")
    if not types:
        yield fail(
            "tuned rows",
            f"{device} has nothing to choose",
            "see docs/doctor.md for the devices and types that have two kernels",
        )
        return
    table: tuning.Table = {device: {}}
    for weights in types:
        mine = []
        for shape in args.shape:
            run = tuning.measure(
                device, weights, shape, n_threads=args.n_threads or 0, progress=_progress(f"{weights} {shape}")
            )
            run["measured"] = tuning.crossover([run], run["now"])
            mine.append(run)
            if args.json != "-":
                print(*_time_table(run), "", sep="\n", flush=True)
        runs += mine
        rows = table[device][mine[0]["type"]] = tuning.crossover(mine, mine[0]["now"])
        each = ", ".join(f"{run['shape']}: {run['measured']}" for run in mine)
        yield ok(
            "tuned rows",
            f"{device} {mine[0]['type']}: matrix kernel from {mine[0]['now']} rows on -> from {rows} ({each})",
        )
    try:
        yield ok("tuned rows", f"kept in {tuning.keep(table)}")
    except OSError as error:
        yield warn("tuned rows", f"could not be kept: {error}", "point DFLASH_CACHE elsewhere")


def _progress(what: str) -> Callable[[float], None]:
    """A line that tells how far a measurement is, on terminals only."""

    def show(done: float) -> None:
        if sys.stderr.isatty():
            print(f"\r{what}: {done:4.0%}", end="" if done < 1 else "\r\033[K", file=sys.stderr, flush=True)

    return show


def _time_table(run: dict[str, Any]) -> Iterator[str]:
    kernel = f"matrix kernel from {run['now']} rows on -> from {run['measured']}"
    yield f"{run['type']}, {run['shape']}, {run['device']}: {kernel}"
    yield f"{'rows':>6}{'vector ms':>12}{'matrix ms':>12}"
    shown = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 32, 40, 48, 56, 64, run["now"], run["measured"]}
    for n, (vector, matrix) in enumerate(zip(run["vector_ms"], run["matrix_ms"], strict=True), 1):
        if n in shown:
            yield f"{n:>6}{'-' if vector is None else f'{vector:.3f}':>12}{matrix:>12.3f}"


def look_at_tuning(info: dict[str, Any]) -> Iterator[Finding]:
    """Was it measured here where the two kernels of a device cross? Says nothing where no device has a choice and
    nothing is kept."""
    from dflash_local.diagnose import tuning

    table, ignored = tuning.read_table()
    if ignored:
        yield warn("tuned rows", f"{ignored}: ignored", "measure again: dflash-local doctor --tune")
    elif table:
        rows = "; ".join(
            f"{device} {', '.join(f'{t} from {n}' for t, n in types.items())}" for device, types in table.items()
        )
        yield ok("tuned rows", f"{rows}; kept in {tuning.tuned_file()}")
    elif two := [device["name"] for device in info["devices"] if tuning.choices(device["name"])]:
        yield ok("tuned rows", f"the defaults of {', '.join(two)}; dflash-local doctor --tune measures them here")


def look_at_machine(machine: Machine, n_threads: int = 0) -> Iterator[Finding]:
    """The computer, and whether something else keeps it busy."""
    if machine.load > machine.cores:
        advice = "end what else runs: drafting pays by using idle compute, and there is none"
        yield warn("machine", f"{machine}; load {machine.load:.1f}", advice)
    else:
        yield ok("machine", str(machine))
    if n_threads > machine.cores:
        yield warn(
            "threads",
            f"-t {n_threads} on {machine.cores} physical cores",
            f"use -t {machine.cores}: more threads wait for each other",
        )


def look_at_build() -> Iterator[Finding]:
    """The stamp that `dflash-local build` left, against this processor, this checkout and the devices here."""
    from dflash_local.build.recipe import detect_backend, make_recipe
    from dflash_local.build.upstream import native_source
    from dflash_local.build.wheel import installed_stamp

    yield ok("dflash-local", __version__)
    if override := os.environ.get("DFLASH_LIBRARY"):
        yield warn("build", f"DFLASH_LIBRARY points at {override}", "unset it to use the installed build")
        return
    stamp = installed_stamp()
    if stamp is None:
        yield fail(
            "build", "no patched llama.cpp is installed here (a stock llama-cpp-python does not count)", f"run: {BUILD}"
        )
        return
    backend = str(stamp.get("backend"))
    yield ok("build", f"{stamp.get('version')}, backend {backend}, {' '.join(stamp.get('flags', []))}")
    try:
        source = native_source()
        recipe = make_recipe(source, backend)
        if (recipe.native, recipe.patches) != (stamp.get("native"), stamp.get("patches")):
            yield warn(
                "build",
                f"patches/ or ggml_ops/ in {source} have changed since this build",
                f"run: {BUILD} --backend {backend}",
            )
    except BuildError:
        pass  # no compiler: nothing could be built anew, and what is installed runs without one
    best, why = detect_backend()
    if backend == "cpu" and best != "cpu":
        yield warn("build", f"the build is for the CPU, but {why}", f"run: {BUILD} --backend {best}")
    compiled = str(stamp.get("machine", ""))
    if missing := [flag for flag in CPU_FEATURES if flag in compiled.split() and flag not in cpu_flags()]:
        yield fail(
            "build",
            f"it uses instructions that this processor lacks: {', '.join(missing)}",
            f"build on this machine: {BUILD} --force",
        )


def look_at_library(info: dict[str, Any]) -> Iterator[Finding]:
    """Load libdflash and ask it; what it says about itself is added to `info`."""
    from dflash_local import native

    try:
        info.update(native.library_info())
    except DFlashError as error:
        yield fail("library", error.message, error.hint or f"run: {BUILD}")
        return
    yield ok("library", f"ABI {info['abi']}, llama.cpp {info.get('llama', 'unknown')}, {native.library_path()}")
    yield ok("backends", ", ".join(info["backends"]) or "none")
    for device in info["devices"]:
        size = (
            f", {_human(device['memory_free'])} of {_human(device['memory_total'])} free"
            if device["memory_total"]
            else ""
        )
        yield ok("device", f"{device['name']} ({device['type']}): {device['description']}{size}")
    if set(info["backends"]) - {"CPU", "BLAS", "RPC"} and not gpus(info):
        advice = (
            "check the driver (nvidia-smi, rocminfo, vulkaninfo) and the container's device access; until then "
            "everything runs on the CPU"
        )
        yield warn("device", "a GPU backend is loaded, but it found no GPU", advice)
    yield from look_at_cpu_features(info.get("features", {}).get("CPU", {}), cpu_flags())


def look_at_cpu_features(compiled: dict[str, str], here: Iterable[str]) -> Iterator[Finding]:
    """What the CPU code was compiled for (ggml's names) against what this processor has (Linux's names)."""
    used = [name for name in CPU_FEATURES.values() if compiled.get(name, "0") != "0"]
    unused = [name for flag, name in CPU_FEATURES.items() if flag in here and name not in used]
    # ggml reports AVX_VNNI only where its AVX-512 twin is missing.
    if "AVX512_VNNI" in used and "AVX_VNNI" in unused:
        unused.remove("AVX_VNNI")
    if unused:
        text = f"compiled without {', '.join(unused)}, which this processor has"
        yield warn("cpu features", text, f"build on this machine without -DGGML_NATIVE=OFF: {BUILD} --force")
    else:
        yield ok("cpu features", ", ".join(used) or "none that matter")


def gpus(info: dict[str, Any]) -> list[dict[str, Any]]:
    """Devices that are not the CPU."""
    return [device for device in info.get("devices", ()) if "gpu" in str(device["type"]).lower()]


def look_at_models(args: argparse.Namespace, machine: Machine, info: dict[str, Any]) -> Iterator[Finding]:
    """The target, and the drafter if there is one: are the files sound, do they fit, what memory do they need."""
    from dflash_local import native
    from dflash_local.convert.target import Target
    from dflash_local.diagnose.pair import Drafter, compare

    target_path, drafter_path = Path(args.model), Path(args.drafter) if args.drafter else None
    try:
        for path in filter(None, (target_path, drafter_path)):
            size = _size(path)
            if info:  # the strict check of every tensor needs the library
                native.check_gguf(path)
            yield ok("file", f"{path.name}, {_human(size)}")
    except ModelError as error:
        yield fail("file", error.message, error.hint or "download or convert the file again", error.field)
        return
    try:
        target = Target.read(target_path)
        if drafter_path:
            drafter = Drafter.read(drafter_path)
            yield from compare(target, drafter)
            if args.accept == "block" and not drafter.is_dflash2:
                yield fail(
                    "accept",
                    "--accept block needs a DFlash 2 drafter, and this one is a DFlash drafter",
                    "leave --accept away",
                )
        else:
            yield warn(
                "pair", "no drafter: decoding will be plain", "give the drafter of this target: -md DRAFTER.gguf"
            )
        yield from look_at_memory(args, target_path, drafter_path, machine, info)
        if info and drafter_path:
            yield look_at_costs(args)
    except ModelError as error:
        yield fail("pair", error.message, error.hint or "see docs/doctor.md", error.field)


def look_at_memory(
    args: argparse.Namespace, target: Path, drafter: Path | None, machine: Machine, info: dict[str, Any]
) -> Iterator[Finding]:
    """What weights and caches take, against what is free where they go. An estimate: compute buffers come on top."""
    slots = args.n_slots
    parts = {
        "weights": _size(target),
        "context": _cache_bytes(target, slots, args.n_ctx, args.cache_type_k, args.cache_type_v),
    }
    if drafter:
        parts["drafter"] = _size(drafter)
        per_slot = min(args.draft_ctx or DRAFT_CTX, args.n_ctx // slots or DRAFT_CTX)
        parts["drafter context"] = _cache_bytes(
            drafter, slots, per_slot * slots, args.cache_type_k_draft, args.cache_type_v_draft
        )
    need = sum(parts.values())
    on_gpu = bool(gpus(info)) and args.n_gpu_layers != 0
    free = sum(device["memory_free"] for device in gpus(info)) if on_gpu else machine.memory_available
    listed = ", ".join(f"{name} {_human(size)}" for name, size in parts.items())
    text = f"about {_human(need)} ({listed}); {_human(free)} free"
    if not free or need < 0.9 * free:
        yield ok("memory", text)
    elif parts["weights"] + parts.get("drafter", 0) < 0.9 * free:
        yield warn(
            "memory", text, "use a smaller context (-c), fewer slots (-np) or a quantized cache (-ctk q8_0 -ctv q8_0)"
        )
    else:
        advice = "offload fewer layers (-ngl N)" if on_gpu else "take a smaller model or quantization"
        yield fail("memory", text, advice)


def look_at_costs(args: argparse.Namespace) -> Finding:
    """Are the pass times of this pair, with these flags, here from an earlier start? Without a drafter there is nothing
    to choose."""
    from dflash_local.diagnose import costs

    if not args.cost_cache or not args.warmup:
        return ok("pass times", "measured at every start" if args.warmup else "not measured (--no-warmup)")
    file = costs.cost_file(args.model, args.drafter, engine_options(args))
    try:
        age = time.time() - file.stat().st_mtime
    except OSError:
        if costs.usable(file) is None:
            return warn(
                "pass times",
                f"{file.parent} cannot be written: every start measures anew",
                "point DFLASH_CACHE elsewhere",
            )
        return ok("pass times", f"not measured yet; the first start will keep them in {file}")
    return ok("pass times", f"kept {_ago(age)} ago in {file}")


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}{'s' * (seconds >= 2 * size)}"
    return "less than a minute"


def _cache_bytes(path: Path, slots: int, n_ctx: int, type_k: str, type_v: str) -> int:
    """K/V bytes of `n_ctx` tokens in all (0: the engine's choice). An upper bound: windows and recurrent layers take
    less."""
    from dflash_local.convert.gguf_metadata import read_metadata

    keys = read_metadata(path)
    arch = bytes(keys["general.architecture"].data).decode(errors="replace")

    def size(key: str, default: Any = 0) -> Any:
        value = keys.get(f"{arch}.{key}")
        return default if value is None else value.data

    layers, heads = size("block_count"), size("attention.head_count", 1)
    heads_kv = size("attention.head_count_kv", heads)
    total_heads = sum(heads_kv) if isinstance(heads_kv, (list, tuple)) else heads_kv * layers
    first = heads[0] if isinstance(heads, (list, tuple)) else heads
    head = size("embedding_length") // max(first, 1)
    per_token = size("attention.key_length", head) * KV_BYTES.get(type_k, 2.0) + size(
        "attention.value_length", head
    ) * KV_BYTES.get(type_v, 2.0)
    return int(total_heads * per_token * (n_ctx or min(size("context_length"), DEFAULT_CTX) * slots))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}", hint="check the path") from None


def _human(size: float) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / 2**20:.0f} MiB"
