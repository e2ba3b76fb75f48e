import asyncio
import os
import shutil

import pytest

from callboard.coding.git.github import issue_text, open_pull_request
from callboard.errors import CallerError

ANSWER = '{"title": "A fault", "body": "It is wrong.", "comments": [{"body": "Indeed."}]}'


@pytest.fixture
def gh(tmp_path, monkeypatch):
    """A program of that name; gives what it writes down: its environment, and what git tells it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "gh"
    script.write_text(
        f"#!/bin/sh\nenv > {tmp_path}/env\npwd > {tmp_path}/pwd\n"
        f"git remote -v > {tmp_path}/git\ngit status --porcelain >> {tmp_path}/git\ngit log -p -1 >> {tmp_path}/git\n"
        f"echo '{ANSWER}'\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def read(name):
        return (tmp_path / name).read_text()

    return read


def test_gh_gets_what_an_issue_says(gh, repo, git):
    git(repo, "remote", "add", "origin", "https://github.com/a/b")
    assert asyncio.run(issue_text(1, repo)) == "A fault\n\nIt is wrong.\n\nIndeed."
    assert gh("git").startswith("origin\thttps://github.com/a/b (fetch)")
    assert gh("pwd").strip() == str(repo)


def test_gh_runs_nothing_that_a_repository_names(gh, repo, git, tmp_path):
    """It asks git what changed, which would run filters and monitors."""
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    trap.chmod(0o755)
    for key in ("core.fsmonitor", "filter.x.clean", "diff.external", "core.pager", "core.sshCommand", "gpg.program"):
        git(repo, "config", key, str(trap))
    git(repo, "config", "log.showSignature", "true")
    (repo / ".gitattributes").write_text("* filter=x\n")
    (repo / "a.py").write_text("ONE\nMORE\n")
    asyncio.run(open_pull_request(repo, branch="x", title="x", body="x", draft=True))
    assert "a.py" in gh("git")
    assert not (tmp_path / "ran").exists()


@pytest.mark.usefixtures("gh")
def test_a_pull_request_that_is_open_already_is_found(repo, tmp_path):
    """Who opened it was killed before it could write that down."""
    answer = '{"state": "%s", "url": "https://github.com/a/b/pull/7"}'
    script = tmp_path / "bin" / "gh"
    for state in ("OPEN", "CLOSED"):
        script.write_text(f"#!/bin/sh\n[ $2 = view ] && echo '{answer % state}' && exit\necho 'not now' >&2; exit 1\n")
        opening = open_pull_request(repo, branch="x", title="x", body="x", draft=False)
        if state == "OPEN":
            assert asyncio.run(opening) == "https://github.com/a/b/pull/7"
        else:
            with pytest.raises(CallerError, match="not now"):
                asyncio.run(opening)


def test_gh_gets_nothing_of_the_environment_but_how_to_sign_in(gh, repo, monkeypatch):
    monkeypatch.setenv("GH_TOKEN", "token")
    monkeypatch.setenv("SOME_API_KEY", "secret")
    monkeypatch.setenv("GIT_SSH_COMMAND", "evil")
    monkeypatch.setenv("GH_EDITOR", "evil")
    asyncio.run(issue_text(1, repo))
    given = gh("env")
    assert "GH_TOKEN=token" in given
    assert "SOME_API_KEY" not in given
    assert "GIT_SSH_COMMAND" not in given
    assert "evil" not in given


def test_a_gh_of_the_current_directory_is_not_run(repo, tmp_path, monkeypatch):
    planted = repo / "node_modules" / ".bin" / "gh"
    planted.parent.mkdir(parents=True)
    planted.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    planted.chmod(0o755)
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "git").symlink_to(shutil.which("git"))
    monkeypatch.chdir(repo)
    monkeypatch.setenv("PATH", f"node_modules/.bin:.:{empty}")
    with pytest.raises(CallerError, match="gh is not installed"):
        asyncio.run(issue_text(1, repo))
    assert not (tmp_path / "ran").exists()
