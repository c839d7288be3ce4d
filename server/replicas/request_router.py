"""ConversationRouter: chooses a replica of Ray Serve by who has the conversation."""

from __future__ import annotations

import random
from typing import Any

from ray.serve.request_router import RequestRouter

from dflash_local.server.replicas.asked import Asked
from dflash_local.server.replicas.places import Places


class ConversationRouter(RequestRouter):  # type: ignore[misc]  # ray is untyped here
    """A conversation returns to its replica; a new one goes to the replica with the fewest requests.

    If its replica has as many requests as it takes, another one gets the conversation, and keeps it.
    """

    def initialize_state(self, **_options: Any) -> None:
        """Begin without places."""
        self._places = Places()

    async def choose_replicas(self, candidate_replicas: list[Any], pending_request: Any = None) -> list[list[Any]]:
        """Replicas by rank. Ray asks each whether it has room, and takes the first that has."""
        asked = _asked(pending_request)
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # all are tried at once; then wait a little
        replicas = {replica.replica_id.unique_id: replica for replica in self._by_requests(candidate_replicas)}
        first = None
        if asked is not None:
            if asked.replica in replicas:
                return [[replicas[asked.replica]]]
            first = self._places.find(asked.keys, replicas)
        home = [] if first is None else [replicas.pop(first)]
        return [[replica] for replica in (*home, *replicas.values())]

    def _by_requests(self, replicas: list[Any]) -> list[Any]:
        """The replicas, those with the fewest requests first. One that was not asked lately counts as having none."""
        shuffled = random.sample(replicas, k=len(replicas))
        return sorted(shuffled, key=lambda replica: self.replica_queue_len_cache.get(replica.replica_id) or 0)

    def on_request_routed(self, pending_request: Any, replica_id: Any, result: Any) -> None:
        asked = _asked(pending_request)
        if asked is not None:
            self._places.keep(asked.keys, replica_id.unique_id)


def _asked(pending_request: Any) -> Asked | None:
    if pending_request is None or not pending_request.args:
        return None
    asked = pending_request.args[0]
    return asked if isinstance(asked, Asked) else None
