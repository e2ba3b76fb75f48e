"""What may be read, and what never is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from callboard.errors import CallerError
from callboard.sandbox import Confinement
from callboard.sandbox.readable_paths import find_readable_paths, worktree_paths


@pytest.fixture
def home(tmp_path, monkeypatch):
    directory = tmp_path / "home"
    directory.mkdir()
    monkeypatch.setenv("HOME", str(directory))
    monkeypatch.delenv("RUSTUP_HOME", raising=False)
    return directory


def readable_below(place, path, **more):
    """What is shown of a home directory."""
    places = find_readable_paths(Confinement(workspace=place / "workspace", environment={"PATH": path}, **more))
    return {str(each.relative_to(place)) for each in places if each.is_relative_to(place)}


def made(home, *names):
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()


@pytest.mark.parametrize(
    ("files", "entry", "places"),
    [
        (["bin/tool"], "bin", {"bin"}),
        (["v/pyvenv.cfg", "v/bin/python"], "v/bin", {"v"}),
        (["go/bin/go", "go/src/runtime/x"], "go/bin", {"go"}),
        (["n/bin/node", "n/lib/node_modules/x"], "n/bin", {"n/bin", "n/lib"}),
        (["c/bin/x", "c/conda-meta/x"], "c/bin", {"c"}),
        ([".pyenv/shims/python"], ".pyenv/shims", {".pyenv"}),
        (
            [".cargo/bin/rustup", ".cargo/credentials.toml", ".rustup/toolchains/x", ".rustup/settings.toml"],
            ".cargo/bin",
            {".cargo/bin", ".rustup"},
        ),
        (
            [".local/bin/x", ".local/lib/node_modules/x", ".local/share/keyrings/x"],
            ".local/bin",
            {".local/bin", ".local/lib"},
        ),
        ([".ssh/id"], ".ssh", set()),
        ([".ssh/bin/x"], ".ssh/bin", set()),
        ([".config/x/bin/y"], ".config/x/bin", set()),
        ([".cargo/credentials.toml"], ".cargo", set()),
        (["pyvenv.cfg", "bin/python"], "bin", {"bin"}),
        (["x"], ".", set()),
        (["x"], "..", set()),
        ([], "absent", set()),
    ],
)
def test_path(home, files, entry, places):
    made(home, *files)
    assert readable_below(home, f"/usr/bin:{home / entry}") == places


def test_link_to_a_secret(home):
    made(home, ".ssh/id")
    (home / "bin").symlink_to(home / ".ssh")
    assert readable_below(home, str(home / "bin")) == set()


def test_base_of_an_environment(home):
    made(home, "base/bin/python", "v/bin/python")
    (home / "v/pyvenv.cfg").write_text(f"home = {home}/base/bin\n")
    assert readable_below(home, f"{home}/v/bin") == {"v", "base"}
    (home / "v/pyvenv.cfg").write_text(f"home = {home}/bin\n")
    assert readable_below(home, f"{home}/v/bin:{home}") == {"v"}


def test_what_commands_can_write_says_nothing(home):
    """An environment in the workspace, or one that a link leads to there: a model may have written it."""
    made(home, "base/bin/python", "workspace/v/bin/python", "job/v/bin/python")
    for name in ("workspace", "job"):
        (home / name / "v/pyvenv.cfg").write_text(f"home = {home}/base/bin\n")
    (home / "link").symlink_to(home / "workspace/v/bin")
    entries = [home / name for name in ("workspace/v/bin", "job/v/bin", "link")]
    assert readable_below(home, ":".join(map(str, entries)), home=home / "job") == set()


def test_what_the_caller_names(home):
    made(home, ".config/tool/x")
    assert readable_below(home, "/usr/bin", readable=(home / ".config/tool",)) == {".config/tool"}


def test_our_python(home):
    places = find_readable_paths(Confinement(workspace=home, environment={"PATH": ""}))
    for prefix in (sys.prefix, sys.base_prefix):
        assert any(Path(prefix).is_relative_to(place) for place in (*places, Path("/usr")))


def test_worktree(tmp_path):
    def git(*arguments):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a", "-C", str(tmp_path / "main"), *arguments],
            check=True,
            capture_output=True,
        )

    (tmp_path / "main").mkdir()
    git("init", "-q", ".")
    git("commit", "-qm", "first", "--allow-empty")
    git("worktree", "add", str(tmp_path / "tree"))
    assert worktree_paths(tmp_path / "tree") == [tmp_path / "main/.git"]
    assert worktree_paths(tmp_path / "main") == []
    # It points there, but nothing points back.
    other = tmp_path / "other"
    other.mkdir()
    (other / ".git").write_text((tmp_path / "tree/.git").read_text())
    assert worktree_paths(other) == []


@pytest.mark.parametrize(
    "text", ["", "gitdir: /etc", "gitdir: .", "gitdir: /proc/self", "gitdir: " + "a" * 100000, "\0\xff"]
)
def test_no_worktree(tmp_path, text):
    (tmp_path / ".git").write_text(text)
    assert worktree_paths(tmp_path) == []


def test_a_directory_on_path_that_cannot_be_read_is_left_out(home, monkeypatch):
    """As another user sees it, who may not search the directory that it is in."""
    made(home, "closed/bin/tool", "bin/tool")

    def unsearchable(path, *arguments, **options):
        if str(path).startswith(str(home / "closed")):
            raise PermissionError(13, "Permission denied", str(path))
        return original(path, *arguments, **options)

    original = os.stat
    monkeypatch.setattr(os, "stat", unsearchable)
    assert readable_below(home, f"{home}/closed/bin:{home}/bin") == {"bin"}


def test_what_the_caller_names_and_cannot_be_read_is_told(home, monkeypatch):
    made(home, "closed/x")
    monkeypatch.setattr(os, "access", lambda path, _: not str(path).startswith(str(home / "closed")))
    with pytest.raises(CallerError, match="cannot be read"):
        readable_below(home, "/usr/bin", readable=(home / "closed",))
