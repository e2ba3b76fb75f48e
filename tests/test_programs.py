"""No program of a repository is started outside of the sandbox, whatever PATH says."""

import os
import subprocess
import sys

import pytest

from callboard import programs
from callboard.coding.git.process import git_path
from callboard.mcp.settings import ServerSettings, build_environment
from callboard.programs import absolute_search_path, exclude_repository, find_program, trusted_search_path

NAMES = ("git", "gh", "bwrap", "node")


def plant(directory, pwned):
    """Programs of all these names, which leave a mark."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        program = directory / name
        program.write_text(f"#!/bin/sh\ntouch '{pwned}'\n")
        program.chmod(0o755)


@pytest.fixture
def pwned(tmp_path):
    return tmp_path / "pwned"


@pytest.fixture
def repository(tmp_path, pwned, monkeypatch):
    """A hostile repository, in a folder of which we are."""
    monkeypatch.setattr(programs, "_repositories", set())
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    for name in (".", "node_modules/.bin", ".venv/bin", "sub"):
        plant(root / name, pwned)
    monkeypatch.chdir(root / "sub")
    return root


def find_programs():
    return [find_program(name) for name in NAMES]


def assert_none_of(repository):
    for path in [*find_programs(), git_path()]:
        assert not path or not os.path.realpath(path).startswith(str(repository)), path
        assert not path or path.startswith("/")


@pytest.mark.parametrize(
    "entry", ["", ".", "..", "node_modules/.bin", "./node_modules/.bin", "../node_modules/.bin", "sub"]
)
@pytest.mark.parametrize("where", ["{0}:{1}", "{1}:{0}:/nowhere"])
def test_no_program_is_taken_from_a_relative_directory_of_the_path(repository, monkeypatch, entry, where):
    monkeypatch.setenv("PATH", where.format(entry, os.environ["PATH"]))
    assert_none_of(repository)
    assert all(map(os.path.isabs, trusted_search_path().split(os.pathsep)))


@pytest.mark.parametrize("inside", [".", ".venv/bin", "node_modules/.bin", "sub"])
def test_no_program_is_taken_from_within_the_repository_that_is_worked_in(repository, monkeypatch, tmp_path, inside):
    (tmp_path / "link").symlink_to(repository / inside)
    for entry in (str(repository / inside), f"{repository}/sub/../{inside}", str(tmp_path / "link")):
        monkeypatch.setenv("PATH", f"{entry}:{os.environ['PATH']}")
        assert_none_of(repository)
    monkeypatch.chdir("/")
    assert find_program("node") == str(tmp_path / "link" / "node")
    exclude_repository(repository / "sub")
    assert_none_of(repository)


def test_a_program_that_is_a_link_into_the_repository_is_not_taken(repository, monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gh").symlink_to(repository / "gh")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    assert find_program("gh") != str(tmp_path / "bin" / "gh")


@pytest.mark.usefixtures("repository")
def test_programs_elsewhere_are_found(monkeypatch, tmp_path, pwned):
    plant(tmp_path / "tools", pwned)
    monkeypatch.setenv("PATH", f".:{tmp_path}/missing:{tmp_path}/tools:/usr/bin")
    assert find_programs() == [str(tmp_path / "tools" / name) for name in NAMES]
    monkeypatch.setenv("PATH", "")
    assert (trusted_search_path(), absolute_search_path()) == (os.defpath, os.defpath)


@pytest.mark.parametrize("place", ["/", "/usr", "~", "~/.."])
def test_a_home_and_the_system_are_no_repositories(monkeypatch, tmp_path, place, pwned):
    home = tmp_path / "above" / "home"
    plant(home / ".local" / "bin", pwned)
    (home / ".git").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(programs, "_repositories", set())
    monkeypatch.setenv("PATH", f"{home}/.local/bin:/usr/bin:/bin")
    monkeypatch.chdir(os.path.expanduser(place))  # noqa: PTH111
    assert find_program("gh") == str(home / ".local" / "bin" / "gh")
    assert find_program("sh")


def test_a_current_directory_that_is_gone_is_no_reason_to_fail(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert find_program("sh")


@pytest.mark.usefixtures("repository")
def test_what_we_start_searches_no_relative_directory_either(monkeypatch):
    monkeypatch.setenv("PATH", f"node_modules/.bin::.:{os.environ['PATH']}")
    server = build_environment(ServerSettings(name="x", command=("node",)), os.environ)
    assert all(map(os.path.isabs, server["PATH"].split(os.pathsep)))


@pytest.mark.usefixtures("repository")
def test_no_program_of_a_repository_is_started_by_the_command_line(pwned):
    """What a library starts by its name, such as a browser, is not to be found there either."""
    script = "import os; from callboard.cli import main; import sys; sys.argv = ['callboard', '--version']\n"
    script += "try:\n    main()\nexcept SystemExit:\n    print(os.environ['PATH'])\n"
    environ = {**os.environ, "PATH": f".:node_modules/.bin::{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "-I", "-c", script], env=environ, capture_output=True, text=True, check=True)
    assert all(map(os.path.isabs, done.stdout.splitlines()[-1].split(os.pathsep)))
    assert not pwned.exists()
