from __future__ import annotations

import asyncio

import pytest

from callboard import Context, Ensemble, Invoker, tool
from callboard.coding.workspace.workspace import ReadTracker, Workspace, connection, get_workspace
from callboard.errors import CallerError


def test_it_lives_as_long_as_it_is_connected(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "f").write_text("x")
    workspace = Workspace(tmp_path / "link", sandbox=object())
    asyncio.run(workspace.connect())
    assert workspace.root == tmp_path.resolve()
    assert workspace.files.read("f", 1) == b"x"
    assert workspace.confinement.workspace == workspace.root
    assert workspace.confinement.read_only == (".git",)
    assert workspace.confinement.hosts == ()
    asyncio.run(workspace.disconnect())
    with pytest.raises(RuntimeError, match="not connected"):
        workspace.files.read("f", 1)


def test_a_root_that_is_none(tmp_path):
    with pytest.raises(CallerError, match="No such file"):
        asyncio.run(connection(str(tmp_path / "nothing")).connect())


def test_options(tmp_path):
    made = connection(str(tmp_path), hosts=["example.org"], readable=["/opt"])
    assert made.confinement.hosts == ("example.org",)
    assert [str(path) for path in made.confinement.readable] == ["/opt"]
    assert made.confinement.workspace == tmp_path


def test_no_sandbox_is_no_reason_not_to_read(tmp_path, monkeypatch):
    from callboard import sandbox

    async def none(**_):
        raise sandbox.SandboxUnavailable("there is none", hint="--no-sandbox")

    monkeypatch.setattr(sandbox, "find_sandbox", none)
    workspace = connection(str(tmp_path))
    asyncio.run(workspace.connect())
    assert workspace.sandbox is None
    assert workspace.sandbox_error == "there is none; --no-sandbox"
    asyncio.run(workspace.disconnect())


def test_a_sandbox_that_is_none(tmp_path):
    workspace = connection(str(tmp_path), sandbox="none")
    asyncio.run(workspace.connect())
    assert workspace.sandbox.name == "none"
    asyncio.run(workspace.disconnect())


def test_the_workspace_of_a_tool(tmp_path):
    @tool
    def act() -> str:
        return ""

    workspace = Workspace(tmp_path)
    (invoker,) = Ensemble("x", [act], connection=workspace).invokers.values()
    assert get_workspace(Context({}, {}, invoker)) is workspace
    for context in (Context(), Context({}, {}, Invoker.of(act))):
        with pytest.raises(TypeError, match="belongs to an ensemble with a workspace"):
            get_workspace(context)


def test_what_was_shown_is_seen():
    seen = ReadTracker()
    assert seen.compare("f", 1, ["a"]) == "unseen"
    seen.record("f", 3, ["a", "b", "c"])
    assert seen.compare("f", 3, ["a", "b", "c"]) == "seen"
    assert seen.compare("f", 4, ["b"]) == "seen"
    assert seen.compare("f", 4, ["B"]) == "changed"
    assert seen.compare("f", 2, ["x", "a"]) == "unseen"
    assert seen.compare("g", 3, ["a"]) == "unseen"
    assert seen.compare("f", 99, []) == "seen"


def test_what_was_shown_last_counts():
    seen = ReadTracker()
    seen.record("f", 1, ["a", "b"])
    seen.record("f", 2, ["B"])
    assert seen.compare("f", 1, ["a", "B"]) == "seen"


def test_what_moved_is_forgotten():
    seen = ReadTracker()
    seen.record("f", 1, ["a", "b", "c"])
    seen.forget("f", 2)
    assert [seen.compare("f", line, [text]) for line, text in ((1, "a"), (2, "b"), (3, "c"))] == [
        "seen",
        "unseen",
        "unseen",
    ]
    seen.forget("f")
    assert seen.compare("f", 1, ["a"]) == "unseen"
    seen.forget("nothing")


def test_a_copy_goes_its_own_way():
    seen = ReadTracker()
    seen.record("f", 1, ["a"])
    copied = seen.copy()
    copied.record("f", 2, ["b"])
    seen.forget("f")
    assert (copied.compare("f", 1, ["a", "b"]), seen.compare("f", 1, ["a"])) == ("seen", "unseen")
