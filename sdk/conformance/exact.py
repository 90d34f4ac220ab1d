"""Reads and writes JSON without losing a digit: integers are `int`, other numbers `decimal.Decimal`."""

import json
from decimal import Decimal
from typing import Any


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def loads(text: str) -> Any:
    """The value of one JSON text."""
    return json.loads(text, parse_float=Decimal, parse_constant=_constant)


def dumps(value: Any) -> str:
    """The JSON text of a value, with the members in their order."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{dumps(member)}" for name, member in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(dumps, value)) + "]"
    return json.dumps(value, allow_nan=False)


def equal(left: Any, right: Any) -> bool:
    """Whether two JSON values are the same: numbers by value to the last digit, objects whatever their order."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, (int, Decimal)) and isinstance(right, (int, Decimal)):
        return Decimal(left) == Decimal(right)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(member, right[name]) for name, member in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    return type(left) is type(right) and bool(left == right)
