"""Tools have other names in a prompt only if the dialect cannot spell their own."""

from __future__ import annotations

from tests.tables import table

from callboard.core import InvocationCanister, NamedTool, Request, ToolDeclaration, UserCanister
from callboard.dialects import DIALECTS
from callboard.providers.restore_arguments import spell_names

ODD = "read a file"
CALL = InvocationCanister("c", ODD, {"path": "a.txt"})


def request(*names, choice="auto"):
    return Request("m", (UserCanister("Hi"), CALL), tuple(map(ToolDeclaration, names)), choice)


@table("dialect", ["json", "hermes", "qwen3_coder", "pythonic", "glm45", "kimi_k2"])
@table("name", ["read", "ns.read", "ns/read", "读取文件", "a" * 200])
def test_names_that_can_be_spelled_stay(dialect, name):
    asked = request(name)
    assert spell_names(asked, DIALECTS[dialect]) == (asked, {})


def test_a_name_with_spaces_is_another_one_in_tools_choice_and_history():
    spelled, names = spell_names(request(ODD, "read_a_file", choice=NamedTool(ODD)), DIALECTS["qwen3_coder"])
    (sent,) = names
    assert names == {sent: ODD}
    assert [tool.name for tool in spelled.tools] == [sent, "read_a_file"]
    assert sent not in {"read_a_file", ODD}
    assert spelled.tool_choice == NamedTool(sent)
    assert spelled.canisters[1] == InvocationCanister("c", sent, {"path": "a.txt"})


def test_json_spells_every_name():
    asked = request(ODD)
    assert spell_names(asked, DIALECTS["json"]) == (asked, {})
