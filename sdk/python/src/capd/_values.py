"""JSON values as values of Python's simple types, each with the schema that it fits."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import uuid
from decimal import Decimal
from typing import Any, Callable, Union

from .errors import SchemaError

Schema = dict[str, Any]
Decode = Callable[[Any, str], Any]


class DecodeError(ValueError):
    """JSON that is no value of its type, at a JSON pointer."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path or '/'}: {message}")
        self.path = path or "/"
        self.message = message


@dataclasses.dataclass(frozen=True)
class Shape:
    """A type as JSON: its schema, and how JSON that fits becomes a value of it."""

    schema: Schema
    decode: Decode


def of_values(values: list[Any], place: str) -> Shape:
    """One of these values, and no other."""
    for value in values:
        if not isinstance(value, (str, int, bool, type(None))):
            raise SchemaError(f"{place}: {value!r} is no JSON value that a schema can list")

    def decode(value: Any, path: str) -> Any:
        for each in values:
            if each == value and isinstance(each, bool) == isinstance(value, bool):
                return each
        raise DecodeError(path, f"is none of {values}")

    return Shape({"enum": values}, decode)


def of_enum(kind: type[enum.Enum], place: str) -> Shape:
    """A member of an enum, as its value."""
    shape = of_values([member.value for member in kind], f"{place} → {kind.__name__}")
    return Shape(shape.schema, lambda value, path: kind(shape.decode(value, path)))


def expect(holds: bool, path: str, message: str) -> None:
    """Raises `DecodeError` unless it holds."""
    if not holds:
        raise DecodeError(path, message)


def _decode_int(value: Any, path: str) -> int:
    expect(isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) and value == int(value), path, "is no integer")
    return int(value)


def _decode_float(value: Any, path: str) -> Union[int, float]:
    expect(isinstance(value, (int, float, Decimal)) and not isinstance(value, bool), path, "is no number")
    # An int is a float to Python's type checkers, and keeps its digits.
    return value if isinstance(value, int) else float(value)


def _decode_decimal(value: Any, path: str) -> Decimal:
    expect(isinstance(value, (int, float, Decimal)) and not isinstance(value, bool), path, "is no number")
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _decoder(kind: type, message: str) -> Decode:
    def decode(value: Any, path: str) -> Any:
        expect(isinstance(value, kind), path, message)
        return value

    return decode


def _decode_datetime(value: Any, path: str) -> datetime.datetime:
    try:
        return datetime.datetime.fromisoformat(value[:-1] + "+00:00" if value[-1:] in ("Z", "z") else value)
    except (TypeError, ValueError):
        raise DecodeError(path, "is no date-time") from None


def _decode_uuid(value: Any, path: str) -> uuid.UUID:
    try:
        return uuid.UUID(value)
    except (AttributeError, TypeError, ValueError):
        raise DecodeError(path, "is no uuid") from None


def token(name: str) -> str:
    """A name as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


#: Types whose shape needs no look inside.
SIMPLE: dict[Any, Shape] = {
    str: Shape({"type": "string"}, _decoder(str, "is no text")),
    bool: Shape({"type": "boolean"}, _decoder(bool, "is no boolean")),
    int: Shape({"type": "integer"}, _decode_int),
    float: Shape({"type": "number"}, _decode_float),
    Decimal: Shape({"type": "number"}, _decode_decimal),
    type(None): Shape({"type": "null"}, _decoder(type(None), "is not null")),
    None: Shape({"type": "null"}, _decoder(type(None), "is not null")),
    uuid.UUID: Shape({"type": "string", "format": "uuid"}, _decode_uuid),
    datetime.datetime: Shape({"type": "string", "format": "date-time"}, _decode_datetime),
    Any: Shape({}, lambda value, path: value),
    object: Shape({}, lambda value, path: value),
}
