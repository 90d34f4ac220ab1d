"""pydantic models are taken as they are, where pydantic is installed."""

from typing import List, Optional

import pydantic
import pytest

import capd
from capd import _json
from capd._hints import Shapes
from capd._values import DecodeError


class Line(pydantic.BaseModel):
    text: str = pydantic.Field(min_length=1)


class Letter(pydantic.BaseModel):
    """A letter."""

    to: str
    lines: List[Line] = []
    parent: Optional["Letter"] = None

    @pydantic.field_validator("to")
    @classmethod
    def known(cls, value: str) -> str:
        if value == "nobody":
            raise ValueError("nobody is at home")
        return value


class Bad(pydantic.BaseModel):
    point: "tuple[int, int]"


def test_a_model_is_declared_with_its_own_schema() -> None:
    shapes = Shapes()
    schema = shapes.document(shapes.of(Letter, "here").schema)
    assert set(schema["definitions"]) == {"Letter", "Line"} and "$defs" not in str(schema)
    assert "#/definitions/Line" in str(schema)


def test_a_model_validates_and_is_written() -> None:
    letter = Shapes().of(Letter, "here").decode({"to": "a", "lines": [{"text": "x"}]}, "")
    assert isinstance(letter, Letter) and letter.lines[0].text == "x"
    assert _json.loads(_json.dumps(letter)) == {"to": "a", "lines": [{"text": "x"}], "parent": None}


def test_what_only_the_model_knows_is_refused_at_its_place() -> None:
    with pytest.raises(DecodeError, match="/to: .*nobody is at home"):
        Shapes().of(Letter, "here").decode({"to": "nobody"}, "")


def test_a_model_beyond_the_strict_profile_is_an_error_with_its_place() -> None:
    with pytest.raises(capd.SchemaError, match="here → Bad: the strict profile does not have the keyword 'prefixItems' .*at /properties/point/prefixItems"):
        Shapes().of(Bad, "here")
