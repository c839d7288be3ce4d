"""Documented: the type that the docs show of a field whose values are taken as they are."""

from __future__ import annotations

from typing import Any

from pydantic import GetJsonSchemaHandler


class Documented:
    """Metadata of a field of type Any: libdflash reads and checks its values, and the docs show the type `name` of
    documents.py. That module is imported for the docs alone: to make its classes takes longer than all others of a
    chat completion."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get_pydantic_json_schema__(self, _schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        from pydantic import TypeAdapter

        from dflash_local.server.fields import documents

        return handler(TypeAdapter(getattr(documents, self._name)).core_schema)
