"""fit(): the context and the placement of layers with which a pair fits its devices.

Like llama-server's --fit, but with drafters and tapes: given options stay; the context shrinks first, down to
--fit-ctx; then layers are redistributed over the devices, and experts (mixtures) or whole layers stay on the host. Each
candidate is a dry run (MemoryPlan), so everything that the engine allocates is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from dflash_local.engine_options import DEFAULTS, EngineOptions
from dflash_local.plan.memory_plan import Device, MemoryPlan
from dflash_local.words import MIB

STEP = 256  # caches grow in such steps
_LAYOUT = ("n_gpu_layers", "tensor_split", "override_tensor", "cpu_moe", "n_cpu_moe", "n_cpu_ffn")
_MOVES = 8  # attempts to distribute layers better


@dataclass(frozen=True)
class Fitted:
    """The result of fit()."""

    plan: MemoryPlan  # of the options that fit, or, if none do, of those that come nearest
    margins: Mapping[str, int]  # bytes to keep free, by device
    given_up: MemoryPlan | None = None  # with everything on the devices, if in the end no weights are there

    @property
    def options(self) -> EngineOptions:
        """The options, with a context and a placement."""
        return self.plan.options

    @property
    def devices(self) -> Sequence[Device]:
        """All devices, used or not."""
        return (self.given_up or self.plan).devices

    @property
    def fits(self) -> bool:
        """Whether all devices keep their margins."""
        return self.plan.fits(self.margins)


def margins_of(targets: Sequence[int], devices: Sequence[Device]) -> dict[str, int]:
    """Bytes to keep free on each device, from the MiB of --fit-target: one for all or one for each."""
    each = [targets[i] if len(targets) > 1 and i < len(targets) else targets[0] for i in range(len(devices))]
    return {device.name: mib * MIB for device, mib in zip(devices, each, strict=True)}


def fit(
    options: EngineOptions,
    devices: Mapping[str, int] | None = None,
    *,
    plan: Callable[[EngineOptions, Mapping[str, int] | None], MemoryPlan] = MemoryPlan.of,
) -> Fitted:
    """Fit to this machine's devices, or to other `devices`, given by name with their bytes.

    Raises:
        ModelError, PairError, RequestError: as `Engine` would.
    """
    return _Fit(options, devices, plan).run()


class _Fit:
    def __init__(
        self,
        options: EngineOptions,
        devices: Mapping[str, int] | None,
        plan: Callable[[EngineOptions, Mapping[str, int] | None], MemoryPlan],
    ) -> None:
        self.options, self.others, self._plan = options, devices, plan
        self.first = self.plan(options)
        if options.share_ctx and not self.first.facts["ctx_shared"]:  # the target's attention does not allow it
            self.options = replace(options, kv_unified=False, share_ctx=False)
            self.first = self.plan(self.options)
        self.margins = margins_of(options.fit_targets, self.first.devices)

    def plan(self, options: EngineOptions) -> MemoryPlan:
        return self._plan(options, self.others)

    def run(self) -> Fitted:
        plan, least = self.first, self.first
        if plan.devices and not (plan.fits(self.margins) and self.has_full_context(plan)):
            least = placed = self.with_context(self.options, self.least_context())
            if not least.fits(self.margins) and self.may_move():
                placed = self.place(least)
            elif self.may_share(least):  # the fullest device bounds the context, so distribute the layers better
                placed = self.share(least)
            plan = self.grow(placed) if placed.fits(self.margins) else placed
            if self.may_share(plan) and plan.fits(self.margins) and plan.n_ctx < self.full_context():
                plan = self.share_again(plan)
        return Fitted(plan, self.margins, least if self.first.on_devices and not plan.on_devices else None)

    def share_again(self, plan: MemoryPlan) -> MemoryPlan:
        """If only some layers have K and V, a longer context needs another distribution than a short one."""
        shared = self.share(plan)
        longer = self.grow(shared) if shared.fits(self.margins) else plan
        return longer if longer.n_ctx > plan.n_ctx else plan

    # ---- context ----

    def has_full_context(self, plan: MemoryPlan) -> bool:
        return self.options.n_ctx > 0 or plan.facts["ctx_limit"] == "training"

    def full_context(self) -> int:
        """The largest useful context: the given one, or the trained one, for each slot unless they share it."""
        options, trained = self.options, int(self.first.facts["target"]["n_ctx_train"])
        each = not options.share_ctx or options.n_ctx_slot > 0
        one = min(options.n_ctx_slot or trained, trained)
        return options.n_ctx or one * (options.n_slots if each else 1)

    def least_context(self) -> int:
        if self.options.n_ctx:
            return self.options.n_ctx
        n_streams = 1 if self.options.share_ctx else self.options.n_slots
        return min(self.full_context(), self.options.fit_ctx * n_streams)

    def with_context(self, options: EngineOptions, n_ctx: int) -> MemoryPlan:
        return self.plan(replace(options, n_ctx=n_ctx))

    def grow(self, least: MemoryPlan) -> MemoryPlan:
        """The placement of `least` with the largest context that fits."""
        full = self.full_context()
        if least.n_ctx >= full:
            return least
        step = STEP * (1 if self.options.share_ctx else self.options.n_slots)
        low, high = least, self.with_context(least.options, full)
        while not high.fits(self.margins):
            # a device's need grows about linearly with the context
            most = float(high.n_ctx - step)
            left, over = low.headroom(self.margins), high.headroom(self.margins)
            for name, lack in over.items():
                if lack < 0:
                    most = min(most, low.n_ctx + (high.n_ctx - low.n_ctx) * left[name] / (left[name] - lack))
            n_ctx = int(most) // step * step
            if n_ctx <= low.n_ctx:
                return low
            high = self.with_context(least.options, n_ctx)
        return high

    # ---- places ----

    def may_move(self) -> bool:
        """Whether the user gave no placement."""
        whole = self.options.split_mode in (None, "layer", "none")
        return whole and all(getattr(self.options, name) == DEFAULTS[name] for name in _LAYOUT)

    def may_share(self, plan: MemoryPlan) -> bool:
        return self.may_move() and len(plan.devices) > 1 and self.options.split_mode in (None, "layer")

    def place(self, plan: MemoryPlan) -> MemoryPlan:
        """Put as much on the devices as fits."""
        plan = self.share(plan)
        if plan.fits(self.margins):
            return plan
        if plan.is_moe:
            all_of_it = plan.options
            plan = self.fewest(plan.n_layers - 1, lambda n: replace(all_of_it, n_cpu_moe=n))
        if not plan.fits(self.margins):
            n_layers = plan.n_layers
            some = plan.options
            plan = self.fewest(n_layers, lambda n: replace(some, n_gpu_layers=n_layers - n))
        if not plan.fits(self.margins):  # even without weights, passes take buffers on a device
            plan = self.plan(replace(plan.options, device="none", n_gpu_layers=-1, n_cpu_moe=0, tensor_split=None))
        return plan

    def fewest(self, most: int, options: Callable[[int], EngineOptions]) -> MemoryPlan:
        """The plan of the smallest n in 1..most for which options(n) fit; else of most."""

        def at(n: int) -> MemoryPlan:
            return self.share(self.plan(replace(options(n), tensor_split=None)))

        low, high, best = 0, most, at(most)
        if not best.fits(self.margins):
            return best
        while high - low > 1:
            middle = (low + high) // 2
            tried = at(middle)
            if tried.fits(self.margins):
                high, best = middle, tried
            else:
                low = middle
        return best

    def share(self, plan: MemoryPlan) -> MemoryPlan:
        """Distribute the layers so that the fullest device has as much left as possible."""
        n_layers = plan.n_layers if plan.options.n_gpu_layers < 0 else min(plan.n_layers, plan.options.n_gpu_layers)
        if not self.may_share(plan) or n_layers < len(plan.devices) or not all(d.free for d in plan.devices):
            return plan
        if sum(plan.headroom(self.margins).values()) < 0:
            return plan
        counts = _proportional(n_layers, [max(0, d.free - self.margins[d.name]) for d in plan.devices])
        best = self.with_shares(plan, counts)
        for _ in range(_MOVES):
            left = list(best.headroom(self.margins).values())
            fullest, emptiest = left.index(min(left)), left.index(max(left))
            if counts[fullest] <= 0:
                break
            name = best.devices[fullest].name
            layer = sum(best.column(name, column) for column in ("weights", "KV", "tapes")) / counts[fullest]
            n = min(counts[fullest], max(1, round((left[emptiest] - left[fullest]) / 2 / max(layer, 1.0))))
            improved = False
            while n > 0 and not improved:
                moved = list(counts)
                moved[fullest] -= n
                moved[emptiest] += n
                tried = self.with_shares(plan, moved)
                improved = min(tried.headroom(self.margins).values()) > min(left)
                if improved:
                    best, counts = tried, moved
                n //= 2
            if not improved:
                break
        return best

    def with_shares(self, plan: MemoryPlan, counts: Sequence[int]) -> MemoryPlan:
        return self.plan(replace(plan.options, tensor_split=",".join(map(str, counts))))


def _proportional(total: int, weights: Sequence[int]) -> list[int]:
    """Integers with this sum, roughly proportional to `weights`."""
    everything = sum(weights) or 1
    counts = [total * weight // everything for weight in weights]
    counts[-1] += total - sum(counts)
    return counts
