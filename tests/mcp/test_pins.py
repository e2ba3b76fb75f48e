from __future__ import annotations

import pytest
from mcp_types import Tool
from tests.tables import table

from callboard.errors import CallerError
from callboard.mcp.pins import PinComparison, Pins, hash_tool
from callboard.mcp.settings import ServerSettings

S = ServerSettings(name="s", command=("s",))
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def tool(name="add", **said):
    return Tool.model_validate({"name": name, "description": "Adds.", "inputSchema": SCHEMA, **said})


@pytest.fixture
def pins(tmp_path):
    return Pins(tmp_path / "pins")


def test_the_first_use_is_trusted_and_later_ones_are_compared(pins):
    assert pins.compare(S, [tool(), tool("sub")], "Be kind.") == PinComparison(("add", "sub"))
    assert pins.compare(S, [tool("sub"), tool()], "Be kind.") == PinComparison(("sub", "add"))
    now = [tool(description="Adds, and mails it."), tool("sub"), tool("mul")]
    assert pins.compare(S, now, "Be cruel.") == PinComparison(("sub",), ("add",), ("mul",), instructions=False)
    assert pins.compare(ServerSettings(name="other", command=("s",)), now) == PinComparison(("add", "sub", "mul"))


@table(
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
    assert hash_tool(tool(**changed)) != hash_tool(tool())


def test_what_is_not_pinned():
    reordered = dict(reversed(SCHEMA.items()))
    assert hash_tool(tool(inputSchema=reordered, title="Add", icons=[])) == hash_tool(tool())


def test_of_two_with_one_name_the_first_counts(pins):
    pins.compare(S, [tool()])
    other = tool(description="Other.")
    assert pins.compare(S, [other, tool()]) == PinComparison((), ("add",))
    assert pins.compare(S, [tool(), other]) == PinComparison(("add",))


def test_accepting(pins):
    pins.compare(S, [tool(), tool("sub")], "one")
    now = [tool(description="Other."), tool("sub", description="Other."), tool("mul")]
    pins.accept(S, now[:1])
    assert pins.compare(S, now, "two") == PinComparison(("add",), ("sub",), ("mul",), instructions=False)
    pins.accept(S, now, "two")
    assert pins.compare(S, now, "two") == PinComparison(("add", "sub", "mul"))


def test_forgetting_makes_the_next_use_the_first(pins):
    pins.compare(S, [tool()])
    assert [each.server for each in pins.list_all()] == ["s"]
    assert (pins.forget("s"), pins.forget("s")) == (True, False)
    assert pins.compare(S, [tool("mul")]) == PinComparison(("mul",))


@pytest.mark.parametrize("name", ["plain", "../up", "my server/ж", ".."])
def test_any_name_has_one_private_file(pins, tmp_path, name):
    server = ServerSettings(name=name, command=("s",))
    pins.compare(server, [tool()])
    [file] = (tmp_path / "pins").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert pins.get(server).server == name


def test_a_broken_file_is_no_first_use(pins, tmp_path):
    pins.compare(S, [tool()])
    [file] = (tmp_path / "pins").iterdir()
    for content in ("{}", file.read_text().replace('"version": 1', '"version": 2')):
        file.write_text(content)
        for read in (lambda: pins.compare(S, [tool()]), pins.list_all):
            with pytest.raises(CallerError, match=r"s~\w+\.json: not a file of pins.*pins forget s`"):
                read()


def test_a_name_that_is_too_long(pins):
    with pytest.raises(CallerError, match="1 to some 60"):
        pins.compare(ServerSettings(name="ж" * 100), [tool()])


def test_two_programs_of_one_name_have_pins_of_their_own(pins):
    other = ServerSettings(name="s", command=("other",))
    web = ServerSettings(name="s", transport="http", url="https://example.com/mcp")
    assert pins.compare(S, [tool()]) == PinComparison(("add",))
    assert pins.compare(other, [tool("mul")]) == PinComparison(("mul",), replaces=True)
    assert pins.compare(web, [tool("sub")]) == PinComparison(("sub",), replaces=True)
    assert pins.compare(other, [tool()]) == PinComparison((), new=("add",))
    assert pins.compare(S, [tool()]) == PinComparison(("add",))
    assert pins.forget("s")
    assert pins.list_all() == []


def test_a_script_is_another_in_another_directory(pins, tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "server.py").touch()
    script = ServerSettings(name="s", command=("python", "server.py"))
    package = ServerSettings(name="p", command=("npx", "-y", "@scope/server"))
    for name in ("one", "two"):
        monkeypatch.chdir(tmp_path / name)
        pins.compare(script, [tool()])
        pins.compare(package, [tool()])
    assert [each.server for each in pins.list_all()] == ["p", "s", "s"]


def test_pins_that_cannot_be_kept_are_a_clear_error(tmp_path):
    (tmp_path / "pins").touch()
    with pytest.raises(CallerError, match=r"what is trusted of s cannot be kept: .*XDG_STATE_HOME .*pinned = false"):
        Pins(tmp_path / "pins").compare(S, [tool()])
