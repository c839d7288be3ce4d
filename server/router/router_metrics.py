"""The /metrics of a router: its models, and the counters of their instances, each with the model's name."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import httpx

from dflash_local.server.prometheus import head, label
from dflash_local.server.router.instance import LOADED, LOADING, SLEEPING, UNLOADED, Instance
from dflash_local.server.router.pool import Pool

# Seconds that an instance has to report its counters.
SCRAPE_SECONDS = 2.0
_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)")


async def router_metrics(pool: Pool) -> str:
    """Prometheus text. Asking for it loads no model."""
    up = [instance for instance in pool if instance.is_up]
    texts = await asyncio.gather(*(_scrape(instance) for instance in up))
    lines = [*_own(pool), *_merged(list(zip((one.model.name for one in up), texts, strict=True)))]
    return "".join(line + "\n" for line in lines)


def _own(pool: Pool) -> Iterator[str]:
    instances = [*pool]
    yield from head("dflash:router_models", "gauge", "Models by their status")
    for status in (UNLOADED, LOADING, LOADED, SLEEPING):
        yield f'dflash:router_models{{status="{status}"}} {sum(one.status == status for one in instances)}'
    yield from head(
        "dflash:router_requests_waiting", "gauge", "Requests that wait for a model to be loaded, or to finish"
    )
    yield f"dflash:router_requests_waiting {pool.n_waiting}"
    yield from head("dflash:router_evictions_total", "counter", "Models unloaded to make room for others")
    yield f"dflash:router_evictions_total {pool.n_evictions}"
    for name, text, attribute in (
        ("requests", "Requests forwarded to a model", "n_requests"),
        ("loads", "Times that a model was loaded", "n_loads"),
        ("failures", "Times that a model's process ended by itself", "n_failures"),
    ):
        yield from head(f"dflash:router_{name}_total", "counter", text)
        for one in instances:
            model = label("model", one.model.name)
            yield f"dflash:router_{name}_total{{{model}}} {getattr(one, attribute)}"


async def _scrape(instance: Instance) -> str:
    try:
        response = await instance.client.get("/metrics", timeout=SCRAPE_SECONDS)
    except httpx.HTTPError:
        return ""
    return response.text if response.status_code == 200 else ""


def _merged(texts: list[tuple[str, str]]) -> Iterator[str]:
    """The models' texts as one, with all samples of a metric together, as the format wants it."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for model, text in texts:
        name = ""
        for line in text.splitlines():
            if line.startswith("#"):
                name = line.split(" ")[2]
                if line not in heads.setdefault(name, []):
                    heads[name].append(line)
            elif match := _SAMPLE.fullmatch(line):
                labels = ",".join(filter(None, (label("model", model), match[2])))
                samples.setdefault(name, []).append(f"{match[1]}{{{labels}}} {match[3]}")
    for name, lines in heads.items():
        yield from lines
        yield from samples.get(name, ())
