"""The app on Ray Serve: several replicas behind one address, each conversation with one of them. Needs ray[serve]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware

from dflash_local.errors import DFlashError
from dflash_local.server.documented_app import DocumentedApp
from dflash_local.server.middleware.failures import Failures
from dflash_local.server.middleware.root_path import RootPath
from dflash_local.server.replicas.asked import Asked
from dflash_local.server.replicas.gateway import Gateway
from dflash_local.server.replicas.replica import Replica
from dflash_local.server.security.body_limits import BodyLimits
from dflash_local.server.security.limits import Limits

NAME = "dflash-local"
# Requests that the gateway handles at once: all, since replicas have queues of their own.
MANY = 100_000


@dataclass(frozen=True)
class ReplicaOptions:
    """How the app is replicated.

    Attributes:
        n_replicas: processes with an engine each.
        n_requests: requests that one replica has at once, those that wait for its slots counted. If the replica of a
            conversation has that many, another one takes it.
        n_cpus, n_gpus: what Ray reserves for each.
        drain_timeout: seconds that running requests have when their replica ends.
        patience: seconds that a request waits for a replica.
        health_period: seconds between two checks of a replica.
        limits: of bodies, which the gateway reads.
        api_prefix: below which everything is served.
    """

    n_replicas: int = 2
    n_requests: int = 16
    n_cpus: float = 1.0
    n_gpus: float = 0.0
    drain_timeout: float = 60.0
    patience: float = 60.0
    health_period: float = 5.0
    limits: Limits = field(default_factory=Limits)
    api_prefix: str = ""


def application(make_app: Callable[[], DocumentedApp], options: ReplicaOptions | None = None) -> Any:
    """What `ray.serve.run` deploys. `make_app` is called in each replica's process, and must be picklable.

    Raises:
        DFlashError: ray is not installed.
    """
    options = options or ReplicaOptions()
    serve = ray_serve()
    from ray.serve.config import RequestRouterConfig

    from dflash_local.server.replicas.request_router import ConversationRouter

    ending = {"graceful_shutdown_timeout_s": options.drain_timeout, "graceful_shutdown_wait_loop_s": 0.2}
    replica = serve.deployment(
        name="Replica",
        num_replicas=options.n_replicas,
        max_ongoing_requests=options.n_requests,
        ray_actor_options={"num_cpus": options.n_cpus, "num_gpus": options.n_gpus},
        health_check_period_s=options.health_period,
        request_router_config=RequestRouterConfig(request_router_class=ConversationRouter),
        **ending,
    )(_Deployed)
    ingress = serve.deployment(
        name="Gateway", num_replicas=1, max_ongoing_requests=MANY, ray_actor_options={"num_cpus": 0}, **ending
    )(serve.ingress()(_Ingress))
    return ingress.bind(replica.bind(make_app), options)


class _Deployed(Replica):
    """A replica that Ray can end."""

    async def __del__(self) -> None:
        """Ray awaits this once requests have ended."""
        await self.close()


class _Ingress:
    """The gateway as Ray Serve's ingress."""

    def __init__(self, replicas: Any, options: ReplicaOptions) -> None:
        self._replicas, self._options = replicas.options(stream=True), options

    def __serve_build_asgi_app__(self) -> Starlette:
        def answer(asked: Asked) -> Any:
            return self._replicas.answer.remote(asked)

        middleware = [
            Middleware(RootPath, root=self._options.api_prefix),
            Middleware(Failures),
            Middleware(BodyLimits, limits=self._options.limits),
            Middleware(Gateway, answer=answer, patience=self._options.patience),
        ]
        return Starlette(middleware=middleware)


def ray_serve() -> Any:
    """The module ray.serve. Raises DFlashError if it is not installed."""
    try:
        from ray import serve
    except ImportError:
        raise DFlashError("replicas need Ray Serve", hint="pip install 'dflash-local[ray]'") from None
    return serve
