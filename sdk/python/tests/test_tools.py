"""A model's arguments become params; what is no arguments is refused before anything is sent."""

from typing import Any

import pytest

import capd

TOOLS = capd.Tools({"tools": [{"name": "a"}, {"name": "b"}], "names": {"a": "com.acme.a:1.0.0", "b": "com.acme.b:1.0.0"}, "wrapped": ["b"]})


def test_tools_are_a_list_of_definitions() -> None:
    assert list(TOOLS) == TOOLS.definitions() == [{"name": "a"}, {"name": "b"}]
    assert TOOLS[0] == {"name": "a"} and TOOLS[1:] == [{"name": "b"}] and len(TOOLS) == 2


@pytest.mark.parametrize(("tool", "arguments", "params"), [
    ("a", {"x": 1}, {"x": 1}), ("a", '{"x": 1}', {"x": 1}), ("a", "", {}), ("a", None, None), ("b", {"value": "t"}, "t"), ("b", '{"value": [1]}', [1]),
])
def test_arguments_become_params(tool: str, arguments: Any, params: Any) -> None:
    assert TOOLS.params(tool, arguments) == params


@pytest.mark.parametrize(("tool", "arguments"), [("a", "{x}"), ("b", {}), ("b", '"t"'), ("b", None)])
def test_what_is_no_arguments_is_refused(tool: str, arguments: Any) -> None:
    with pytest.raises(capd.Refused) as caught:
        TOOLS.params(tool, arguments)
    assert caught.value.code == 4001


def test_a_format_that_is_none_is_a_mistake() -> None:
    with capd.Client("/nowhere") as client, pytest.raises(ValueError, match="openai, anthropic, mcp"):
        client.tools("gemini")
