"""ServerFacts: what `launch` must know of the server at an address, as its endpoints tell it."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from dflash_local.errors import DFlashError, RequestError

_OWNER = "dflash-local"
_PATIENCE = 10.0  # seconds for one answer


@dataclass(frozen=True)
class ServerFacts:
    """Of one server: its models, each with what is known about it: `n_ctx`, a slot's context, and `n_ctx_train`. Both
    are absent while a router has not loaded the model."""

    models: Mapping[str, Mapping[str, Any]]

    @classmethod
    def at(cls, url: str, key: str) -> ServerFacts | float | None:
        """The facts of the server at `url`; while it loads, how far it is, from 0 to 1; None if nothing answers.

        Raises:
            DFlashError: another program answers, or the server does not take the key.
        """
        status, body = _get(f"{url}/v1/models", key)
        if status is None:
            return None
        if status == 503:
            _, health = _get(f"{url}/health", key)
            if "progress" in health:
                return float(health["progress"])
            status, body = _get(f"{url}/v1/models", key)  # it may have loaded in between
        if status == 401:
            raise RequestError(f"the server at {url} wants a key", param="--api-key", hint="give --api-key KEY")
        models = {one.get("id"): one.get("meta") or {} for one in body.get("data", []) if one.get("owned_by") == _OWNER}
        if status != 200 or not models:
            raise DFlashError(
                f"{url} answers, but not as dflash-local does", hint="name another address: --port N, or --url URL"
            )
        return cls(models)

    def named(self, name: str | None) -> str:
        """The model of that name, or the only one. Raises RequestError."""
        if name in self.models or (name is None and len(self.models) == 1):
            return name or next(iter(self.models))
        there = ", ".join(self.models)
        what = f"there is no model {name!r}" if name else "the server has several models"
        raise RequestError(f"{what}: {there}", param="--model-name", hint="give --model-name one of these")


def _get(url: str, key: str) -> tuple[int | None, dict[str, Any]]:
    """Status and JSON object, {} if there is none; the status is None if nothing answers."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE) as response:
            return response.status, _object(response.read())
    except urllib.error.HTTPError as error:
        return error.code, _object(error.read())
    except (urllib.error.URLError, ConnectionError) as error:
        if isinstance(reason := getattr(error, "reason", None), ssl.SSLError):
            hint = "programs must trust its certificate as well; SSL_CERT_FILE names more authorities"
            raise DFlashError(f"{url}: {reason}", hint=hint) from None
        return None, {}
    except (OSError, HTTPException, ValueError):  # it answers, but not in HTTP
        return 0, {}


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
