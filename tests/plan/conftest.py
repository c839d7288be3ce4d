"""The devices and pairs of tests/placement."""

from tests.placement.conftest import endpoints, pairs, worker

__all__ = ["endpoints", "pairs", "worker"]
