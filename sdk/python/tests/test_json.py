"""JSON keeps digits and code points; what is no JSON is named with its place."""

import dataclasses
import datetime
import enum
import math
import uuid
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd import _json

# Every code point but the surrogates, which are none.
TEXT = st.text(st.characters(codec="utf-8"))
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.decimals(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(st.none() | st.booleans() | NUMBERS | TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner))


def exact(value: Any) -> Any:
    """The value with all numbers as `Decimal`, so that they are compared to the last digit."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, Decimal)):
        return Decimal(value)
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, list):
        return [exact(item) for item in value]
    return {name: exact(member) for name, member in value.items()}


@given(VALUES)
def test_what_is_written_reads_the_same_to_the_last_digit_and_code_point(value: Any) -> None:
    assert exact(_json.loads(_json.dumps(value))) == exact(value)


@given(st.integers())
def test_integers_stay_integers(number: int) -> None:
    back = _json.loads(_json.dumps(number))
    assert type(back) is int and back == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_stay_doubles(number: float) -> None:
    back = _json.loads(_json.dumps(number))
    assert type(back) is float and math.copysign(1, back) == math.copysign(1, number) and back == number


def test_a_number_that_no_double_holds_is_a_decimal() -> None:
    for text in ("0.1234567890123456789", "1E+400", "1e-400", "123456789.123456789012345678901"):
        assert _json.loads(text) == Decimal(text)
        assert isinstance(_json.loads(text), Decimal)
    assert type(_json.loads("0.1")) is float and type(_json.loads("1e2")) is float


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "", "{", "[1,]", "'a'", b"\xff", "1 2", "[" * 100_000])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        _json.loads(text)


@pytest.mark.parametrize(("value", "place"), [
    ({"a": [1, float("nan")]}, "/a/1: nan"),
    ({"a": {1: 2}}, "/a: the key 1 is a int"),
    ([object()], "/0: object has no form"),
    ({"when": datetime.datetime(2026, 1, 2)}, "/when: .* no time zone"),
    ("\ud800", r"lone surrogate, U\+D800"),
    ({"\udfff": 1}, r"lone surrogate, U\+DFFF"),
    (Decimal("Infinity"), "/: Infinity"),
    (b"bytes", "/: bytes has no form"),
])
def test_what_cannot_be_written_is_named_with_its_place(value: Any, place: str) -> None:
    with pytest.raises((TypeError, ValueError), match=place):
        _json.dumps(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    value: Any = []
    value.append(value)
    with pytest.raises(ValueError, match="contains itself"):
        _json.dumps(value)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Word(str):
    pass


@dataclasses.dataclass
class Order:
    colour: Colour
    price: Decimal
    tags: Any


def test_what_programs_have_is_written_as_json() -> None:
    order = Order(Colour.RED, Decimal("9.90"), {Level.HIGH})
    assert _json.dumps(order) == b'{"colour":"red","price":9.90,"tags":[3]}'
    assert _json.dumps(uuid.UUID(int=1)) == b'"00000000-0000-0000-0000-000000000001"'
    assert _json.dumps(datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)) == b'"2026-01-02T00:00:00+00:00"'
    assert _json.dumps((Word("a"), True, None)) == b'["a",true,null]'
