"""Paths that a command neither reads nor changes."""

import asyncio

import pytest

from callboard.errors import SandboxUnavailable
from callboard.sandbox import Confinement, find_sandbox


@pytest.fixture
def sandbox():
    try:
        found = asyncio.run(find_sandbox(prefer="bubblewrap"))
    except SandboxUnavailable as error:
        pytest.skip(f"no sandbox: {error}")
    if found.name != "bubblewrap":
        pytest.skip("no sandbox: only bubblewrap can hide what lies in the workspace")
    return found


def test_a_hidden_path_is_neither_read_nor_changed_nor_made(sandbox, tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "app" / "private").mkdir(parents=True)
    (tmp_path / "app" / "private" / "key").write_text("hunter2")
    (tmp_path / "app" / "plain").write_text("plain")
    (tmp_path / ".env").write_text("hunter2")
    confinement = Confinement(workspace=tmp_path, hidden=(".env", "app/private", ".github"))
    lines = [
        "cat .env app/private/key app/plain",
        "echo mine > .env; echo mine > app/private/key; rm -rf .env app/private",
        "mv app elsewhere; ln .env hard; mkdir -p .github/workflows; echo mine > .github/x; echo mine > app/new",
        "find . -type f | xargs cat",
    ]
    outcome = asyncio.run(sandbox.run(["/bin/sh", "-c", "\n".join(lines)], confinement))
    assert b"plain" in outcome.output
    assert b"hunter2" not in outcome.output
    assert (tmp_path / ".env").read_text() == (tmp_path / "app" / "private" / "key").read_text() == "hunter2"
    assert (tmp_path / "app" / "new").read_text() == "mine\n"
    assert {path.name for path in tmp_path.iterdir()} == {".git", ".env", "app"}
