"""The page of the coding tools says what the tools are."""

from __future__ import annotations

import re
from pathlib import Path

from tests.tables import table

from callboard.coding import search as search_module
from callboard.coding.outlines import tree_walk as tree_sitter_parsing
from callboard.coding.tools import _TOOLS, navigate, search
from callboard.coding.tools.action_tool import ActionTool
from callboard.coding.workspace.directory_walk import MAX_ENTRIES, SKIPPED
from callboard.coding.workspace.file_editor import MAX_BYTES, MAX_SHOWN
from callboard.coding.workspace.workspace import connection
from callboard.schema import derive

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "coding_tools.md").read_text("utf-8")


def rows(heading):
    """The cells of the table below a heading."""
    section = re.split(r"^#+ ", PAGE, flags=re.MULTILINE)
    text = next(part for part in section if part.startswith(f"{heading}\n"))
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def arguments_of(tool):
    required = tool.schema.get("required", ())
    return ", ".join(f"`{name}`" if name in required else f"`{name}?`" for name in tool.schema["properties"])


@table("name", _TOOLS)
def test_actions_and_arguments(name):
    tool = _TOOLS[name]
    described = [row[:3] for row in rows(name)]
    if isinstance(tool, ActionTool):
        assert described == [[f"`{key}`", f"`{each.name}`", arguments_of(each)] for key, each in tool.actions.items()]
    else:
        single = {"bash": "bash", "test": "run_tests"}[name]
        assert described == [["", f"`{single}`", arguments_of(tool)]]


def test_flags():
    told = {row[0].strip("`"): row[1] for row in rows("Flags")}
    assert told == {
        name: ", ".join(f"`{flag}` {argument}" for flag, argument in tool.cli.items() if flag.startswith("-"))
        for name, tool in _TOOLS.items()
        if any(flag.startswith("-") for flag in tool.cli)
    }


def test_options():
    block = re.search(r"^\[ensemble\]\n.*?^```", PAGE, re.MULTILINE | re.DOTALL)[0].partition("[[invokers]]")[0]
    named = re.findall(r"^(\w+) =", block, re.MULTILINE)
    assert [name for name in named if name not in ("name", "module")] == [*derive(connection).schema["properties"]]


def test_figures():
    for said in (
        f"the first {MAX_SHOWN:,} characters",
        f"files over {MAX_BYTES // 1024 // 1024} MB are refused",
        f"takes at most {search.SECONDS:g} seconds and returns at most {search.MOST} results",
        f"visits at most {MAX_ENTRIES:,} names. At most {navigate.MAX_ENTRIES} names",
        f"A file that takes more than {search_module.SECONDS:g} seconds",
        f"it has more than {tree_sitter_parsing.MAX_BYTES // 1024 // 1024} MB",
    ):
        assert said in " ".join(PAGE.split())
    assert {
        *re.findall(r"`([\w.]+)`", PAGE.partition("hidden directories, ")[2].partition(". To search")[0])
    } == SKIPPED
