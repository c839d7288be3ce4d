"""EngineLoader: the native engine that options describe, checked before, while and after it loads."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dflash_local.engine_options import EngineOptions
from dflash_local.errors import RequestError
from dflash_local.fenced_calls import fenced_template
from dflash_local.lookup_corpus import read_corpus
from dflash_local.machine import costs, tuning
from dflash_local.machine.devices import warn_of_software_devices
from dflash_local.machine.hardware import core_limit, free_memory
from dflash_local.native import NativeEngine
from dflash_local.plan.check import fitted

log = logging.getLogger("dflash_local.engine")


class EngineLoader:
    """Loads one engine: checks by the files' headers when it is made, then `load`, then `check`.

    Attributes:
        options: with what --fit chose.
        template: what is used in place of the file's own chat template; None: `options.chat_template` says.
        tuned: the counts of rows that `load` set.
        cost_file: the pass times of this pair, once it is loaded; None if they are kept elsewhere or not at all.

    Raises:
        ModelError, PairError: a file is damaged or unsupported, or the two do not belong together.
        RequestError: an option is out of range, or nothing fits into memory.
    """

    tuned: tuning.Counts
    cost_file: Path | None = None

    def __init__(self, options: EngineOptions) -> None:
        if options.mmproj is not None:
            from dflash_local.diagnose import projector  # a slow import, and plain decoding of text needs none of it

            projector.check_options(options)
        if options.drafter is not None or options.accept == "block":
            from dflash_local.diagnose import pair  # likewise

            pair.check_options(options)
        own = options.chat_template is None and options.fenced_calls
        self.template = fenced_template(Path(options.model)) if own else None
        self.options = fitted(options)
        self._is_to_share = options.share_ctx
        if self.options.n_gpu_layers != 0:
            warn_of_software_devices()

    def load(self) -> NativeEngine:
        """The engine; slow. Raises NativeLibraryError, ModelError, PairError or RequestError."""
        options = self.options
        if options.n_gpu_layers != 0 and options.warmup:
            tuning.tune_missing(Path(options.model))
        self.tuned = tuning.apply()  # before pass times are measured
        params = options.native_params()
        params["host_memory"] = options.host_memory or free_memory()
        params["n_threads"] = options.n_threads or core_limit() or 0
        if self.template:
            params["chat_template"] = self.template
            log.info(
                "tool calls: the template asks for ```tool_call blocks, which this model writes, in place of "
                "<tool_call> tags (--no-fenced-calls: the file's own template)"
            )
        if options.cost_cache is True:
            self.cost_file = costs.cost_file(options.model, options.drafter, vars(options))
            params["cost_cache"] = costs.usable(self.cost_file)
        if options.progress is not None:
            options.progress(0.0)  # whether it cancels is asked again, soon
        native = NativeEngine(params, options.progress)
        try:
            self._index_corpus(native)
        except BaseException:
            native.destroy()
            raise
        return native

    def facts(self) -> dict[str, Any]:
        """Facts about the loaded engine that it does not report itself."""
        return {
            "tuned_rows": self.tuned.matrix,
            "few_rows": self.tuned.few,
            "fenced_calls": self.template is not None,
        }

    def check(self, info: Mapping[str, Any]) -> None:
        """Check what only the loaded engine knows. Raises RequestError if it cannot keep what the options promise."""
        if self._is_to_share and not info["ctx_shared"] and info["n_slots"] > 1:
            log.warning(
                "slots do not share the context: the sparse attention of %s needs a KV cache for each, %d tokens",
                info["target"]["arch"],
                info["n_ctx_slot"],
            )
        if self.options.bit_exact and info["not_bit_exact"]:
            raise RequestError(f"bit_exact cannot be promised: {info['not_bit_exact']}", param="bit_exact")

    def _index_corpus(self, native: NativeEngine) -> None:
        if not self.options.lookup_corpus:
            return
        tokens = read_corpus(
            self.options.lookup_corpus, lambda text: native.tokenize(text, add_special=False, parse_special=False)
        )
        n_bytes = native.set_corpus(tokens)
        log.info("texts to quote: indexed in %.0f MiB of memory", n_bytes / (1 << 20))


class LoadedEngine(NamedTuple):
    """A native engine and what loaded it. `Engine.of` makes an engine of them, and imports more than the load did."""

    loader: EngineLoader
    native: NativeEngine

    @classmethod
    def load(cls, options: EngineOptions) -> LoadedEngine:
        """Slow. Raises what EngineLoader and its `load` raise."""
        loader = EngineLoader(options)
        return cls(loader, loader.load())

    def close(self) -> None:
        """Free it, where no engine was made of it."""
        self.native.destroy()
