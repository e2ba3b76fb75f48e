from __future__ import annotations

import asyncio

import pytest
from tests.tables import table

from callboard import Context, Ensemble, Invoker, tool
from callboard.coding.tools.action_tool import ActionTool, action
from callboard.errors import ToolDefinitionError
from callboard.execution import run_invoker
from callboard.schema import ArgumentsInvalid


@action(idempotent=True, subjects={"path": "path"})
def read(path: str, limit: int = 10) -> str:
    """Reads.

    More of it.
    """
    return f"read {path} {limit}"


@action(aliases={"file": "path"}, subjects={"path": "path"})
def write(context: Context, path: str, content: str) -> str:
    """Writes."""
    return f"write {path} {content} {context.auxdata['who']}"


@tool(cli={"-x": "path"})
def erase(path: str) -> str:
    """Erases."""
    return f"erase {path}"


@tool
def compact(limit: int | str = 1, name: str | None = None) -> str:
    """Compacts."""
    return f"compact {limit!r} {name}"


FILE = ActionTool(
    "file",
    "Files.",
    {"read": read, "write": write, "erase": erase, "compact": compact},
    default="read",
    cli={"-f": "path"},
)


def call(arguments, made=FILE):
    async def run():
        (invoker,) = Ensemble("x", [made]).invokers.values()
        return await run_invoker(invoker, arguments, Context({"who": "me"}, {}, invoker), on_error="feedback")

    result = asyncio.run(run())
    return result.error.message if result.error else result.text


@table(
    ("arguments", "done"),
    [
        ({"action": "read", "path": "a"}, "read a 10"),
        ({"action": "read", "path": "a", "limit": "3"}, "read a 3"),
        ({"action": "read", "path": "a", "limit": None, "content": None}, "read a 10"),
        ({"action": "write", "path": "a", "content": "b"}, "write a b me"),
        ({"action": "write", "file": "a", "content": "b"}, "write a b me"),
        ({"action": "write", "-f": "a", "content": "b"}, "write a b me"),
        ({"action": "compact"}, "compact 1 None"),
        ({"action": "compact", "limit": "3:9", "name": "x"}, "compact '3:9' x"),
        # What the arguments say.
        ({"path": "a", "content": "b"}, "write a b me"),
        ({"path": "a", "limit": 1}, "read a 1"),
        ({"path": "a"}, "read a 10"),
        ({"action": "", "path": "a"}, "read a 10"),
        ({"action": None, "path": "a"}, "read a 10"),
        ({"name": "x"}, "compact 1 x"),
        # Seed 003's second most common mistake.
        ({"type": "erase", "path": "a"}, "erase a"),
        # The command `file src/a.py`.
        ({"action": "src/a.py"}, "read src/a.py 10"),
        ({"action": "src/a.py", "limit": 2}, "read src/a.py 2"),
        ({"action": "LICENSE"}, "read LICENSE 10"),
        ({"action": "read.py"}, "read read.py 10"),
    ],
)
def test_calls(arguments, done):
    assert call(arguments) == done


@table(
    ("arguments", "told"),
    [
        (
            {"content": "b"},
            "action\n  Field required: say which action; there are 'read', 'write', 'erase' or 'compact'",
        ),
        (
            {"action": "raed", "path": "a"},
            "action\n  Input should be 'read', 'write', 'erase' or 'compact'; did you mean 'read'?",
        ),
        ({"action": "raed"}, "action\n  Input should be 'read', 'write', 'erase' or 'compact'; did you mean 'read'?"),
        ({"action": "zzz", "path": "a"}, "action\n  Input should be 'read', 'write', 'erase' or 'compact'"),
        ({"action": 3}, "action\n  Input should be 'read', 'write', 'erase' or 'compact', not 3"),
        ({"action": ["read"]}, "action\n  Input should be 'read', 'write', 'erase' or 'compact', not ['read']"),
        ({"action": "write", "path": "a"}, "content\n  Field required"),
        ({"action": "read", "path": 3}, "path\n  Input should be a valid string"),
        ({"action": "read", "path": "a", "content": "b"}, "content\n  Extra inputs are not permitted"),
        ({"type": "zzz", "path": "a"}, "action\n  Field required"),
    ],
)
def test_mistakes_have_the_actions_own_words(arguments, told):
    assert call(arguments).startswith(f"ArgValidationError: {told}")


def test_arguments_that_fit_several():
    made = ActionTool("x", "X.", {"write": write, "append": action(name="append")(write.function), "erase": erase})
    assert call({"path": "a", "content": "b"}, made) == (
        "ArgValidationError: action\n  Field required: say which action; these arguments fit 'write' or 'append'"
    )


def test_what_a_model_is_shown():
    assert FILE.description == (
        "Files. Actions:\n- read(path, limit?): Reads.\n- write(path, content): Writes.\n- erase(path): Erases.\n"
        "- compact(limit?, name?): Compacts."
    )
    assert FILE.schema == {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["read", "write", "erase", "compact"], "description": "What to do"},
            "path": {"description": "(read, write, erase)", "type": "string"},
            "limit": {"description": "(read, compact)", "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "content": {"description": "(write)", "type": "string"},
            "name": {"description": "(compact)", "type": "string"},
        },
        "required": ["action"],
        "additionalProperties": False,
    }


def test_flags_and_subjects_are_those_of_the_actions():
    assert {flag: name for flag, name in FILE.cli.items() if flag.startswith("-")} == {"-x": "path", "-f": "path"}
    # The arguments that follow an action without flags.
    assert (FILE.cli["action=write"], FILE.cli["action="]) == ("path content", "path limit")
    assert "action=write" not in FILE.only(["read", "erase"]).cli
    assert FILE.subjects == {"path": "path"}


def test_names_that_are_none():
    assert FILE.calls["erase"] == "file with action='erase'"
    assert ActionTool("x", "X.", {"run": read}).calls == {"run": "x with action='run'", "read": "x with action='run'"}


def test_which_calls_may_be_repeated():
    invoker = Invoker.of(FILE)
    assert invoker.is_idempotent({"path": "a"})
    assert not invoker.is_idempotent({"action": "erase", "path": "a"})
    assert not invoker.is_idempotent({"action": "raed"})
    assert not invoker.is_idempotent({"action": ["read"]})


def test_only_some():
    made = FILE.only({"read", "compact", "other"})
    assert list(made.actions) == ["read", "compact"]
    assert made.schema["properties"].keys() == {"action", "path", "limit", "name"}
    assert call({"-f": "a"}, made) == "read a 10"
    assert FILE.only({"compact"}).schema["properties"].keys() == {"action", "limit", "name"}
    assert call({"limit": 3}, FILE.only({"compact"})) == "compact 3 None"
    assert FILE.only(set()) is None


def test_an_action_by_itself():
    assert write.validate({"file": "a", "content": "b"}) == {"path": "a", "content": "b"}
    with pytest.raises(ArgumentsInvalid):
        write.validate({"file": "a", "path": "a", "content": "b"})
    assert read("a", 3) == "read a 3"


def test_actions_that_wait_and_actions_that_do_not():
    @tool
    async def later() -> str:
        return "later"

    with pytest.raises(ToolDefinitionError, match="some of its actions are async def and others are not"):
        ActionTool("x", "X.", {"later": later, "read": read})
    made = ActionTool("x", "X.", {"later": later, "again": later})
    assert call({"action": "again"}, made) == "later"
    assert not Invoker.of(made).blocking
    assert Invoker.of(FILE).blocking


def test_unvalidated_arguments_reach_the_action():
    """Mode parsed."""

    async def run(arguments):
        return await Invoker.of(FILE).call(Context({}, {}), arguments, validated=False)

    assert asyncio.run(run({"action": "erase", "path": "a"})) == "erase a"
    with pytest.raises(ArgumentsInvalid, match="did you mean 'read'"):
        asyncio.run(run({"action": "raed", "path": "a"}))
