"""The shape of each answer, once: `server/formats/` builds it, mypy checks that, and the OpenAPI document shows it."""
