"""A stub of the package capd for compiling generated code: sdk/CONTRACT.md, as declarations."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional


class Schema(NamedTuple):
    sha256: str
    json: str


class BuiltAgainst(NamedTuple):
    input: Optional[Schema]
    output: Optional[Schema]


class Client:
    def call(
        self,
        name: str,
        params: Any = None,
        *,
        version: Optional[str] = None,
        timeout: Optional[float] = None,
        key: Optional[str] = None,
        thread: Optional[str] = None,
        affinity: Optional[str] = None,
        built_against: Optional[BuiltAgainst] = None,
    ) -> Any:
        raise NotImplementedError


class AsyncClient:
    async def call(
        self,
        name: str,
        params: Any = None,
        *,
        version: Optional[str] = None,
        timeout: Optional[float] = None,
        key: Optional[str] = None,
        thread: Optional[str] = None,
        affinity: Optional[str] = None,
        built_against: Optional[BuiltAgainst] = None,
    ) -> Any:
        raise NotImplementedError
