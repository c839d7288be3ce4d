"""Router: a server without a model of its own, from finding the models to the end of all instances."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from dflash_local.errors import RequestError
from dflash_local.server.router.catalog import Catalog
from dflash_local.server.router.instance import Instance, Launch
from dflash_local.server.router.model import Model
from dflash_local.server.router.model_events import Events
from dflash_local.server.router.pool import Pool, event_data
from dflash_local.server.settings import Settings

log = logging.getLogger(__name__)

NO_MODELS = "there are no models yet: --models-dir FOLDER, --models-preset FILE, or 'dflash-local pull USER/NAME:QUANT'"


@dataclass(frozen=True)
class RouterOptions:
    """What the command line sets for a router.

    Attributes:
        models_max: loaded at once; 0: any number.
        autoload: whether a request loads its model.
        max_queue: requests that may wait for a model.
    """

    models_max: int = 4
    autoload: bool = True
    max_queue: int = 64


class Router:
    """Serves models by their names; `stop` ends the server, as a Service's does."""

    def __init__(self, catalog: Catalog, launch: Launch, options: RouterOptions, settings: Settings) -> None:
        self.settings, self.options = settings, options
        self.stop: Callable[[], None] = lambda: None
        self.failure: Exception | None = None
        self.events = Events()
        self.stopping = asyncio.Event()
        self.pool = Pool(launch, options.models_max, options.max_queue, self._on_change)
        self._catalog, self._launch = catalog, launch
        self._models: dict[str, Model] = {}
        self._reading = asyncio.Lock()

    def read(self) -> None:
        """Find the models before the server starts. Raises RequestError if that fails."""
        self._models = self._catalog.read()
        eager = [model.name for model in self._models.values() if model.on_startup]
        if 0 < self.options.models_max < len(eager):
            raise RequestError(
                f"{len(eager)} models are to be loaded at the start, and --models-max is {self.options.models_max}",
                param="--models-max",
                hint="raise it, or take load-on-startup from some",
            )
        for model in self._models.values():
            names = f" ({', '.join(model.aliases)})" if model.aliases else ""
            log.info("model from %s: %s%s%s", model.source, model.name, names, ", hidden" if model.hidden else "")
        if not self._models:
            log.warning(NO_MODELS)

    def start(self) -> None:
        """Load the models that are wanted from the start."""
        self.pool.set_models(self._models)
        for instance in self.pool:
            if instance.model.on_startup:
                self.pool.load(instance)

    async def reload(self) -> None:
        """Find the models again. Raises RequestError if that fails, and changes nothing then."""
        async with self._reading:
            models = await asyncio.to_thread(self._catalog.read)
            if models != self._models:
                self._models = models
                self.pool.set_models(models)
            self.events.publish("models_reload", "*")

    def drain(self) -> None:
        """No more requests will come; listeners have had their last event."""
        self.stopping.set()

    async def close(self) -> None:
        await self.pool.close()
        shutil.rmtree(self._launch.folder, ignore_errors=True)

    def _on_change(self, instance: Instance, event: str) -> None:
        self.events.publish(event, instance.model.name, event_data(instance))
