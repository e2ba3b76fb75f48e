from __future__ import annotations

import pytest
from mcp_types import Tool

from callboard.errors import CallerError
from callboard.mcp.pins import Compared, Pins, tool_hash

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def tool(name="add", **said):
    return Tool.model_validate({"name": name, "description": "Adds.", "inputSchema": SCHEMA, **said})


@pytest.fixture
def pins(tmp_path):
    return Pins(tmp_path / "pins")


def test_the_first_use_is_trusted_and_later_ones_are_compared(pins):
    assert pins.compare("s", [tool(), tool("sub")], "Be kind.") == Compared(("add", "sub"))
    assert pins.compare("s", [tool("sub"), tool()], "Be kind.") == Compared(("sub", "add"))
    now = [tool(description="Adds, and mails it."), tool("sub"), tool("mul")]
    assert pins.compare("s", now, "Be cruel.") == Compared(("sub",), ("add",), ("mul",), instructions=False)
    assert pins.compare("other", now) == Compared(("add", "sub", "mul"))


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "Add"},
        {"description": "Adds"},
        {"inputSchema": {**SCHEMA, "required": ["a"]}},
        {"outputSchema": SCHEMA},
        {"annotations": {"readOnlyHint": True}},
    ],
)
def test_what_is_pinned(changed):
    assert tool_hash(tool(**changed)) != tool_hash(tool())


def test_what_is_not_pinned():
    reordered = dict(reversed(SCHEMA.items()))
    assert tool_hash(tool(inputSchema=reordered, title="Add", icons=[])) == tool_hash(tool())


def test_of_two_with_one_name_the_first_counts(pins):
    pins.compare("s", [tool()])
    other = tool(description="Other.")
    assert pins.compare("s", [other, tool()]) == Compared((), ("add",))
    assert pins.compare("s", [tool(), other]) == Compared(("add",))


def test_accepting(pins):
    pins.compare("s", [tool(), tool("sub")], "one")
    now = [tool(description="Other."), tool("sub", description="Other."), tool("mul")]
    pins.accept("s", now[:1])
    assert pins.compare("s", now, "two") == Compared(("add",), ("sub",), ("mul",), instructions=False)
    pins.accept("s", now, "two")
    assert pins.compare("s", now, "two") == Compared(("add", "sub", "mul"))


def test_forgetting_makes_the_next_use_the_first(pins):
    pins.compare("s", [tool()])
    assert [each.server for each in pins.every()] == ["s"]
    assert (pins.forget("s"), pins.forget("s")) == (True, False)
    assert pins.compare("s", [tool("mul")]) == Compared(("mul",))


@pytest.mark.parametrize("name", ["plain", "../up", "my server/ж", ".."])
def test_any_name_has_one_private_file(pins, tmp_path, name):
    pins.compare(name, [tool()])
    [file] = (tmp_path / "pins").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert pins.of(name).server == name


def test_a_broken_file_is_no_first_use(pins, tmp_path):
    pins.compare("s", [tool()])
    (tmp_path / "pins" / "s.json").write_text("{}")
    with pytest.raises(CallerError, match=r"s\.json: not a file of pins.*pins forget s"):
        pins.compare("s", [tool()])


def test_a_name_that_is_too_long(pins):
    with pytest.raises(CallerError, match="1 to some 60"):
        pins.compare("ж" * 100, [tool()])
