"""Capabilities as tools of a language model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Mapping, Union, overload

from . import _json
from .errors import Refused

FORMATS = ("openai", "anthropic", "mcp")


class Tools(Sequence[Any]):
    """Tool definitions, ready to be given to a model's SDK, and the capability behind each name."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._tools: list[Any] = list(document["tools"])
        #: The capability id behind each tool name.
        self.names: dict[str, str] = dict(document["names"])
        self._wrapped = frozenset(document.get("wrapped") or ())

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...

    def __getitem__(self, index: Union[int, slice]) -> Any:
        return self._tools[index]

    def __len__(self) -> int:
        return len(self._tools)

    def definitions(self) -> list[Any]:
        """The definitions as a list of their own."""
        return list(self._tools)

    def capability(self, tool: str) -> str:
        """The capability id behind a tool name.

        Raises `Refused`, code 4002, for a name that is not among the definitions.
        """
        try:
            return self.names[tool]
        except KeyError:
            known = ", ".join(sorted(self.names)) or "none"
            raise Refused(f"there is no tool {tool!r}; the tools are: {known}", code=4002, name="CAPABILITY_NOT_FOUND") from None

    def params(self, tool: str, arguments: Any) -> Any:
        """The params that a model's arguments are: an object, or its JSON text.

        Raises `Refused`, code 4001, for arguments that are none.
        """
        if isinstance(arguments, (str, bytes)):
            try:
                arguments = _json.loads(arguments) if arguments else {}
            except ValueError as error:
                raise Refused(f"the arguments are not JSON: {error}", code=4001, name="BAD_REQUEST") from None
        if tool not in self._wrapped:
            return arguments
        # A tool's arguments are always an object; params that are none are a member of it.
        if not isinstance(arguments, Mapping) or "value" not in arguments:
            raise Refused(f"the arguments of {tool} have no member 'value'", code=4001, name="BAD_REQUEST")
        return arguments["value"]


def checked_format(format: str) -> str:
    """The format, if there is such a one."""
    if format not in FORMATS:
        raise ValueError(f"format: {format!r} is none of {', '.join(FORMATS)}")
    return format
