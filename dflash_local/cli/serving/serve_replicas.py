"""Several replicas of the app on Ray Serve, from the flags of `serve`."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from dflash_local.cli.flags.logs import set_up_logs
from dflash_local.cli.flags.serve_flags import AppFlags, ServeFlags
from dflash_local.cli.serving.serve_app import make_app, make_settings
from dflash_local.errors import DFlashError, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dflash_local.server.documented_app import DocumentedApp
    from dflash_local.server.ray_app import ReplicaOptions
    from dflash_local.server.security.limits import Limits

log = logging.getLogger(__name__)


def serve_replicas(args: ServeFlags) -> int:
    """Deploy, wait for SIGINT or SIGTERM, then drain."""
    from dflash_local.server.ray_app import application, ray_serve
    from dflash_local.server.signals import ENDING

    deployed, ended = threading.Event(), threading.Event()
    host, port = _host(args), args.listening_port
    settings = make_settings(args)  # so that wrong flags fail here, not in every replica
    serve = ray_serve()
    app = application(app_factory(args), _options(args, settings.limits))
    _connect(args)
    for number in ENDING:
        signal.signal(number, lambda *_signal: _end(deployed, ended))
    try:
        serve.start(http_options={"host": host, "port": port})
        with _deployed(serve, app):
            deployed.set()
            log.info("listening on http://%s:%d%s, %d replicas", host, port, settings.api_prefix, args.replicas)
            while not ended.wait(1):
                pass
            log.info("draining")
    finally:
        _leave(serve, args)
    return 0


def app_factory(args: ServeFlags) -> Callable[[], DocumentedApp]:
    """A factory that makes the app of these flags in another process."""
    return partial(_make_app, AppFlags.of(vars(args)))


def _make_app(args: AppFlags) -> DocumentedApp:
    return make_app(args, set_up_logs(args))


def _options(args: ServeFlags, limits: Limits) -> ReplicaOptions:
    from dflash_local.server.ray_app import ReplicaOptions

    return ReplicaOptions(
        n_replicas=args.replicas,
        n_requests=args.replica_requests,
        n_cpus=args.replica_cpus,
        n_gpus=args.replica_gpus,
        drain_timeout=args.drain_timeout,
        limits=limits,
        api_prefix=args.api_prefix,
    )


def _connect(args: ServeFlags) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
    import ray

    mine = not (args.ray_address or os.environ.get("RAY_ADDRESS"))
    # For our own cluster: without Ray's dashboard, and with as many cores as the replicas need.
    cores = {"num_cpus": max(os.cpu_count() or 1, int(args.replicas * args.replica_cpus) + 1)}
    own: dict[str, Any] = {"include_dashboard": False, **cores} if mine else {}
    try:
        # Without an address, Ray would join any cluster that runs on this machine.
        ray.init(address="local" if mine else args.ray_address, logging_level=logging.WARNING, **own)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise DFlashError(f"no Ray cluster: {error}", hint="start one, or leave --ray-address out") from None


@contextmanager
def _deployed(serve: Any, app: Any) -> Iterator[None]:
    """Deploy the app until the block ends. Nothing of it stays on the cluster, also where it does not start, or the
    wait for that is interrupted. Raises DFlashError if it does not start."""
    from dflash_local.server.ray_app import NAME

    replaces, runs = NAME in serve.status().applications, False  # what it replaces goes on where this does not start
    try:
        try:
            serve.run(app, name=NAME, route_prefix="/")
        except RuntimeError as error:
            raise DFlashError(f"the replicas did not start: {error}", hint="the log above has their errors") from None
        runs = True
        yield
    except BaseException:
        if runs or not replaces:
            with suppress(Exception):  # what is raised already says more
                serve.delete(NAME)
        raise
    serve.delete(NAME)


def _leave(serve: Any, args: ServeFlags) -> None:
    import ray

    if not (args.ray_address or os.environ.get("RAY_ADDRESS")):
        serve.shutdown()
    ray.shutdown()


def _end(deployed: threading.Event, ended: threading.Event) -> None:
    """What a signal does. Before all replicas are there, nothing is to be drained; a second one does not wait for the
    drain."""
    if ended.is_set() or not deployed.is_set():
        sys.exit(130)
    ended.set()


def _host(args: ServeFlags) -> str:
    """The one address. Raises RequestError for flags that Ray's own HTTP servers do not support."""
    from dflash_local.server.sockets import is_unix

    wrong = {
        "--host": len(args.host) != 1 or is_unix(args.host[0]),
        "--port": args.port == 0,
        "--ssl-key-file": bool(args.ssl_key_file or args.ssl_cert_file),
        "--reuse-port": args.reuse_port,
    }
    for name, refused in wrong.items():
        if refused:
            raise RequestError(
                f"{name} as given does not go with --replicas: Ray Serve listens, on one address, without TLS",
                param=name,
                hint="put a proxy before it, or leave --replicas out",
            )
    return args.host[0]
