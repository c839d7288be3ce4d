"""GPUs, and software devices, which look like them."""

from __future__ import annotations

import logging
from typing import Any

from dflash_local import native
from dflash_local.engine_options import EngineOptions

# Mesa's and Google's software drivers, which ggml lists as GPUs.
_SOFTWARE = ("llvmpipe", "softpipe", "swiftshader")
ADVICE = "keep the layers off it (-ngl 0), or unset GGML_VK_VISIBLE_DEVICES: a CPU build computes several times faster"

log = logging.getLogger(__name__)


def gpus(info: dict[str, Any]) -> list[dict[str, Any]]:
    """Devices that `native.library_info()` lists as GPUs."""
    return [device for device in info.get("devices", ()) if "gpu" in str(device["type"]).lower()]


def used_gpus(options: EngineOptions, info: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that the target may use."""
    if options.n_gpu_layers == 0 or options.device == "none":
        return []
    named = options.device.split(",") if options.device else []
    return [device for device in gpus(info) if not named or device["name"] in named]


def software_devices(info: dict[str, Any]) -> list[dict[str, Any]]:
    """Devices whose driver computes on the CPU."""
    return [device for device in info.get("devices", ()) if str(device["description"]).lower().startswith(_SOFTWARE)]


def warn_of_software_devices() -> None:
    """Log a warning for an engine that may put layers on one."""
    for device in software_devices(native.library_info()):
        log.warning("%s is %s, a driver that computes on the CPU: %s", device["name"], device["description"], ADVICE)
