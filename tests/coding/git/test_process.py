import asyncio
import os
import signal
import stat
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from tests.tables import table

from callboard.coding.git.process import check_version, git_path, run_git
from callboard.errors import CallerError
from callboard.sandbox.landlock_process import landlock_version

SHELL = Path("/bin/sh")


def assert_gone(process):
    with suppress(ProcessLookupError):
        while True:
            os.kill(process, signal.SIG_DFL)


def run(arguments, directory, **options):
    return asyncio.run(run_git(arguments, directory, **options))


def test_git_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CallerError, match="git is not installed; install git"):
        run(["version"], tmp_path)


def test_a_program_of_the_current_directory_is_not_taken_for_git(monkeypatch, tmp_path):
    planted = tmp_path / "git"
    planted.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    planted.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")
    assert Path(git_path()).parent != tmp_path
    assert run(["version"], tmp_path).text.startswith("git version")
    assert not (tmp_path / "ran").exists()


@table("said", ["git version 2.32.0\n", "git version 2.50.1 (Apple Git-155)\n", "git version 3.0\n"])
def test_versions_that_will_do(said):
    check_version(said)


@table(
    ("said", "words"),
    [("git version 2.31.9\n", "2.31.9 is too old"), ("hub\n", "'hub' is no version"), ("", "no version")],
)
def test_versions_that_will_not_do(said, words):
    with pytest.raises(CallerError, match=words):
        check_version(said)


def test_what_is_more_than_the_limit_is_cut_while_it_is_read(repo):
    (repo / "large").write_bytes(b"0123456789\n" * 100_000)
    outcome = run(["hash-object", "-w", "large"], repo, writable=[repo])
    read = run(["cat-file", "blob", outcome.text.strip()], repo, limit=1000)
    assert (len(read.output), read.cut, read.code) == (1000, True, 0)


def test_a_call_that_takes_too_long_is_ended(repo):
    # It waits for its input, which the fifo never gives.
    os.mkfifo(repo / "fifo")
    with pytest.raises(CallerError, match="git took more than"):
        run(["hash-object", "fifo"], repo, seconds=0.2)


def waiting_script(folder, first):
    script = folder / "slow"
    os.mkfifo(folder / "fifo")
    script.write_text(f"#!/bin/sh\n{first}echo $$ > {folder}/pid\nread -r _ < {folder}/fifo\n")
    script.chmod(0o755)
    return script


def cancel(repo, pid, arguments, **options):
    """Cancel git when its program has written its id; the program is gone then."""

    async def cancelled():
        task = asyncio.create_task(run_git(arguments, repo, writable=[pid.parent], **options))
        while not task.done() and not pid.exists():  # noqa: ASYNC110  # for another process
            await asyncio.sleep(0.01)
        assert task.cancel()
        await asyncio.wait([task], timeout=120)
        assert task.cancelled()

    asyncio.run(cancelled())
    assert_gone(int(pid.read_text()))


def test_a_call_that_is_cancelled_takes_its_lock_away(repo, tmp_path, git):
    """A filter of the user's own that waits: git holds the lock of the index, and is ended."""
    script = waiting_script(tmp_path, f"test -e {repo}/.git/index.lock && ")
    git(repo, "config", "filter.slow.clean", str(script))
    (repo / ".gitattributes").write_text("*.slow filter=slow\n")
    (repo / "x.slow").write_text("x\n")
    cancel(repo, tmp_path / "pid", ["add", "x.slow"], programs=[script, SHELL])
    assert not (repo / ".git" / "index.lock").exists()


def test_a_program_of_git_that_ignores_the_signal_is_ended_too(repo, tmp_path):
    """Git ends at the signal; its program keeps the output open."""
    script = waiting_script(tmp_path, "trap '' TERM; ")
    (repo / "a.py").write_text("changed\n")
    environment = {"GIT_EXTERNAL_DIFF": str(script), "TMPDIR": str(tmp_path)}
    cancel(repo, tmp_path / "pid", ["diff", "--ext-diff"], environment=environment, programs=[script, SHELL])


def test_much_is_written_and_read_at_once(repo):
    """More than a pipe holds, both ways, of many calls at a time."""
    names = [f"{number:040x}".encode() for number in range(1, 2_001)]  # 82,000 characters; a pipe holds 65,536

    async def many():
        given = b"\n".join(names) + b"\n"
        return await asyncio.gather(*[run_git(["cat-file", "--batch-check"], repo, stdin=given) for _ in range(8)])

    for outcome in asyncio.run(many()):
        assert outcome.output == b"".join([name + b" missing\n" for name in names])


def test_what_git_does_not_read_is_no_error(repo):
    assert run(["version"], repo, stdin=b"x" * 1_000_000).code == 0


@pytest.mark.parametrize("turns", range(6))
def test_a_call_may_be_cancelled_at_any_time(repo, turns):
    """Also before its thread has begun."""

    async def cancelled():
        task = asyncio.create_task(run_git(["cat-file", "--batch"], repo, stdin=b"HEAD\n" * 100_000))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    before = len([*Path("/proc/self/fd").iterdir()])
    asyncio.run(cancelled())
    assert len([*Path("/proc/self/fd").iterdir()]) == before


@pytest.mark.usefixtures("git")
def test_nothing_of_the_environment_gets_through(monkeypatch, repo, tmp_path):
    """What would make git run something, or work elsewhere, is not passed on."""
    script = tmp_path / "run"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    script.chmod(0o755)
    for name in ("GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_EDITOR", "GIT_SSH_COMMAND", "GIT_ASKPASS", "PAGER", "EDITOR"):
        monkeypatch.setenv(name, str(script))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", f"'core.fsmonitor={script}'")
    (repo / "a.py").write_text("changed\n")
    assert "+changed" in run(["diff"], repo).text
    assert "a.py" in run(["status", "--short"], repo).text
    assert "second" in run(["log", "-p"], repo).text
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("allowed", ["", "always"])
def test_the_network_is_not_reached_unless_it_is_asked_for(repo, tmp_path, git, allowed):
    """Whatever the repository says of the protocol that is to be used."""
    script = tmp_path / "ssh"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n")
    script.chmod(stat.S_IRWXU)
    git(repo, "config", "core.sshCommand", str(script))
    git(repo, "remote", "add", "origin", "ssh://host/repository")
    if allowed:
        git(repo, "config", "protocol.ssh.allow", allowed)
        git(repo, "config", "protocol.ext.allow", allowed)
    assert "not allowed" in run(["ls-remote", "origin"], repo).error
    assert "not allowed" in run(["ls-remote", f"ext::{script}"], repo, online=True).error
    assert not (tmp_path / "ran").exists()


needs_landlock = pytest.mark.skipif(not landlock_version(), reason="Landlock: the kernel has none that can do this")


@needs_landlock
@pytest.mark.parametrize("how", ["hook", "monitor", "filter", "editor"])
def test_git_can_run_nothing_but_itself(repo, tmp_path, how):
    """Where every setting that keeps it from running something is taken away."""
    script = tmp_path / "trap"
    script.write_text(f"#!/bin/sh\ntouch {repo}/ran\ncat\n")
    script.chmod(0o755)
    (tmp_path / "hooks").mkdir()
    for name in ("post-commit", "pre-commit", "post-index-change"):
        (tmp_path / "hooks" / name).symlink_to(script)
    (repo / ".gitattributes").write_text("* filter=x\n")
    settings, arguments = {
        "hook": ([("core.hooksPath", str(tmp_path / "hooks"))], ["commit", "--allow-empty", "-m", "x"]),
        "monitor": ([("core.fsmonitor", str(script))], ["status"]),
        "filter": ([("filter.x.clean", f"sh {script}"), ("filter.x.process", str(script))], ["add", "."]),
        "editor": ([("core.editor", str(script))], ["commit", "--allow-empty", "--edit"]),
    }[how]
    environment = {"GIT_EDITOR": str(script)} if how == "editor" else {}
    given = {"GIT_CONFIG_PARAMETERS": " ".join([f"'{name}={value}'" for name, value in settings])}
    run(arguments, repo, environment={**environment, **given}, writable=[repo])
    assert not (repo / "ran").exists()
    # It is a trap.
    subprocess.run(
        ["git", *[part for setting in settings for part in ("-c", "=".join(setting))], *arguments],
        cwd=repo,
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
    )
    assert (repo / "ran").exists()


@needs_landlock
def test_git_can_write_nothing_but_the_repository(repo, tmp_path):
    """Such as a reflog that is a link to a file of the user's."""
    victim = tmp_path / "victim"
    victim.write_text("mine\n")
    log = repo / ".git" / "logs" / "HEAD"
    log.unlink()
    log.symlink_to(victim)
    run(["commit", "--allow-empty", "-m", "x"], repo, writable=[repo])
    assert victim.read_text() == "mine\n"
    assert run(["diff", f"--output={victim}", "HEAD~1"], repo, writable=[repo]).code
    assert victim.read_text() == "mine\n"


@needs_landlock
def test_a_git_that_is_a_script_runs_without_the_wall(monkeypatch, tmp_path, repo):
    """As version managers install it; the settings alone hold then."""
    script = tmp_path / "bin" / "git"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {git_path()} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    assert git_path() == str(script)
    assert run(["log", "-1", "--format=%s"], repo).text == "second\n"


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(CallerError, match="no such folder"):
        run(["version"], tmp_path / "nothing")
