"""Reads and writes JSON without losing a digit or a code point.

Integers are `int` of any size. A number with a fraction or an exponent is a `float` where that holds each of its digits,
else a `decimal.Decimal`.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import uuid
from collections.abc import Mapping, Set
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Callable, Union

_quote: Callable[[str], str] = json.encoder.encode_basestring


def _number(text: str) -> Union[float, Decimal]:
    number = float(text)
    exact = Decimal(text)
    if math.isfinite(number) and Decimal(repr(number)) == exact:
        return number
    return exact


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def loads(text: Union[str, bytes]) -> Any:
    """The value of one JSON text.

    Raises `ValueError` for anything else.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        return json.loads(text, parse_float=_number, parse_constant=_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except InvalidOperation:
        raise ValueError("a number with an exponent out of bounds") from None


def dumps(value: Any) -> bytes:
    """The JSON text of a value, in UTF-8.

    Takes what JSON has, and dataclasses, enums, `Decimal`, `UUID`, `datetime`, sets, and pydantic models.

    Raises `TypeError` or `ValueError` with the place of what is no JSON.
    """
    try:
        encoder = _Encoder()
        plain = encoder.plain(value, "")
        if encoder.has_decimal:
            text = _write(plain)
        else:
            text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8")
    except RecursionError:
        raise ValueError("nested too deeply, or a value that contains itself") from None
    except UnicodeEncodeError as error:
        raise ValueError(f"a text has a lone surrogate, U+{ord(error.object[error.start]):04X}, which is no code point "
                         "that JSON can carry") from None


def plain(value: Any) -> Any:
    """The value in terms of dict, list, str, numbers, bool and None."""
    return _Encoder().plain(value, "")


class _Encoder:
    """Turns a value into what JSON has, and notes whether it has decimals."""

    def __init__(self) -> None:
        self.has_decimal = False

    def plain(self, value: Any, path: str) -> Any:
        kind = type(value)
        if kind is str or kind is int or kind is bool or value is None:
            return value
        if kind is dict:
            return self._members(value, path)
        if kind is list or kind is tuple:
            return [self.plain(item, f"{path}/{index}") for index, item in enumerate(value)]
        if kind is float:
            if not math.isfinite(value):
                raise ValueError(f"{path or '/'}: {value} is not JSON")
            return value
        return self._other(value, path)

    def _members(self, value: Mapping[Any, Any], path: str) -> dict[str, Any]:
        members = {}
        for name, member in value.items():
            if not isinstance(name, str):
                raise TypeError(f"{path or '/'}: the key {name!r} is a {type(name).__name__}; JSON has only text keys")
            members[str(name)] = self.plain(member, f"{path}/{name}")
        return members

    def _other(self, value: Any, path: str) -> Any:
        if isinstance(value, Decimal):
            if not value.is_finite():
                raise ValueError(f"{path or '/'}: {value} is not JSON")
            self.has_decimal = True
            return value
        if isinstance(value, Enum):
            return self.plain(value.value, path)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: self.plain(getattr(value, field.name), f"{path}/{field.name}")
                    for field in dataclasses.fields(value)}
        dump = getattr(value, "model_dump", None)
        if callable(dump):
            return self.plain(dump(mode="json", by_alias=True), path)
        if isinstance(value, Mapping):
            return self._members(value, path)
        if isinstance(value, (list, tuple, Set)):
            return [self.plain(item, f"{path}/{index}") for index, item in enumerate(value)]
        if isinstance(value, datetime.datetime):
            if value.tzinfo is None:
                raise ValueError(f"{path or '/'}: {value!r} has no time zone, which a date-time needs")
            return value.isoformat()
        if isinstance(value, uuid.UUID):
            return str(value)
        # Subclasses of what JSON has, such as a str of a library's own.
        for base in (str, int, float):
            if isinstance(value, base):
                return self.plain(base(value), path)
        raise TypeError(f"{path or '/'}: {type(value).__name__} has no form in JSON")


def _write(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quote(name)}:{_write(member)}" for name, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_write, value)) + "]"
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
