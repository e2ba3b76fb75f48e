"""What a command sees and does in each sandbox that works here. The ways out are test_probes'."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from callboard.errors import CallerError
from callboard.sandbox import CommandLimits, Confinement

MIB = 1024 * 1024
PYTHON = os.path.realpath(sys.executable)


def run(sandbox, *command, stdin=b"", **confinement):
    return asyncio.run(sandbox.run(command, Confinement(**confinement), stdin=stdin))


def shell(sandbox, script, **more):
    return run(sandbox, "sh", "-c", script, **more)


def python(sandbox, program, **more):
    return run(sandbox, PYTHON, "-c", program, **more)


def processes(marker):
    """Those that have this argument."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker in path.read_text("utf-8", "replace").split("\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def names(directory):
    return [path.name for path in directory.iterdir()]


def until(condition, seconds=20):
    """A bound for what must come true, not a wait."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def marker(request):
    """A number of seconds that nobody else sleeps."""
    return f"{100000 + os.getpid()}.{abs(hash(request.node.nodeid)) % 10**9}"


class TestCommand:
    def test_what_comes_of_it(self, sandbox, workspace):
        outcome = shell(sandbox, "echo out; echo err >&2; exit 3", workspace=workspace)
        assert (outcome.code, outcome.output, outcome.total, outcome.stop_reason) == (3, b"out\nerr\n", 8, "")

    @pytest.mark.parametrize(
        ("script", "code"), [("kill -TERM $$", 143), ("exit 71", 71), ("exec nothing-here", 127), ("exit 1", 1)]
    )
    def test_status(self, sandbox, workspace, script, code):
        assert shell(sandbox, script, workspace=workspace).code == code

    def test_input(self, sandbox, workspace):
        data = bytes(range(256)) * 4096
        outcome = run(sandbox, "cat", workspace=workspace, stdin=data, limits=CommandLimits(output_bytes=2 * MIB))
        assert outcome.output == data

    def test_input_that_nobody_reads(self, sandbox, workspace):
        assert run(sandbox, "true", workspace=workspace, stdin=bytes(MIB)).code == 0

    def test_no_input_is_no_pipe(self, sandbox, workspace):
        """Programs such as rg would read it."""
        assert run(sandbox, "readlink", "/proc/self/fd/0", workspace=workspace).output == b"/dev/null\n"

    def test_nothing_of_ours_is_inherited(self, sandbox, workspace):
        assert shell(sandbox, "ls /proc/self/fd | wc -l", workspace=workspace).output.strip() == b"4"

    def test_files_are_its_owners(self, sandbox, workspace):
        (workspace / "private").write_text("mine")
        (workspace / "private").chmod(0o600)
        outcome = shell(sandbox, "cat private; mkdir -p a/b; echo x > a/b/new; pwd", workspace=workspace, read_only=())
        assert outcome.output == f"mine{workspace}\n".encode()
        assert (workspace / "a/b/new").stat().st_uid == workspace.stat().st_uid

    def test_environment(self, sandbox, workspace, monkeypatch):
        monkeypatch.setenv("SOME_API_KEY", "secret")
        monkeypatch.setenv("CALLBOARD_MODEL", "secret")
        monkeypatch.setenv("LC_TIME", "C")
        outcome = run(sandbox, "env", workspace=workspace, environment={"COLOUR": "green"})
        names = {line.partition("=")[0] for line in outcome.output.decode().splitlines()}
        assert b"secret" not in outcome.output
        assert {"PATH", "HOME", "LC_TIME", "COLOUR"} <= names

    def test_home_is_private_and_goes_away(self, sandbox, workspace):
        first = shell(sandbox, 'echo x > "$HOME/left"; ls -A "$HOME"', workspace=workspace)
        assert first.output == b"left\n"
        assert shell(sandbox, 'ls -A "$HOME"', workspace=workspace).output == b""

    def test_home_that_stays(self, sandbox, workspace, tmp_path):
        home = tmp_path / "home"
        home.mkdir()
        shell(sandbox, 'echo x > "$HOME/left"', workspace=workspace, home=home)
        assert (home / "left").read_text() == "x\n"

    def test_no_command(self, sandbox, workspace):
        with pytest.raises(CallerError, match="is no command"):
            run(sandbox, "echo", "a\0b", workspace=workspace)

    def test_a_workspace_that_is_none(self, sandbox, tmp_path):
        with pytest.raises(CallerError, match="no such directory"):
            run(sandbox, "true", workspace=tmp_path / "absent")

    def test_not_a_home_directory(self, sandbox, workspace, monkeypatch):
        monkeypatch.setenv("HOME", str(workspace))
        with pytest.raises(CallerError, match="every key"):
            run(sandbox, "true", workspace=workspace)


class TestPrograms:
    @pytest.mark.parametrize(
        ("program", "script", "output"),
        [
            ("node", "node -e 'console.log(6 * 7)'", b"42"),
            ("cc", "printf 'int main(){return 42;}' > a.c && cc a.c -o a && ./a; echo $?", b"42"),
            (
                "git",
                "git init -q . && git -c user.name=a -c user.email=a commit -qm x --allow-empty && git log",
                b"commit",
            ),
            ("cargo", "cargo init -q --vcs none --name a . && cargo run -q --offline", b"Hello, world!"),
            ("rg", "echo needle > a.txt; rg needle", b"a.txt:needle"),
        ],
    )
    def test_run(self, sandbox, workspace, program, script, output):
        if not shutil.which(program):
            pytest.skip(f"there is no {program}")
        assert output in shell(sandbox, script, workspace=workspace, read_only=()).output

    def test_virtual_environment(self, sandbox, workspace):
        script = f"{PYTHON} -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix)'"
        assert shell(sandbox, script, workspace=workspace).output == f"{workspace}/v\n".encode()

    def test_multiprocessing(self, sharing, workspace):
        program = "import multiprocessing as m\nwith m.Pool(2) as pool: print(sum(pool.map(abs, range(-9, 0))))"
        assert python(sharing, program, workspace=workspace).output == b"45\n"

    def test_our_own_python(self, sandbox, workspace):
        outcome = run(sandbox, sys.executable, "-c", "import sys; print(sys.prefix)", workspace=workspace)
        assert outcome.output == f"{sys.prefix}\n".encode()

    def test_processes_share_memory_by_a_name(self, sharing, workspace):
        program = (
            "import multiprocessing as m\nfrom multiprocessing import shared_memory as s\n"
            "one = s.SharedMemory(create=True, size=8)\nother = s.SharedMemory(name=one.name)\n"
            "one.buf[0] = 42\nprint(other.buf[0])\nother.close()\none.close()\none.unlink()\n"
            "lock = m.get_context('spawn').Lock()\nprint(lock.acquire(timeout=60))"
        )
        assert python(sharing, program, workspace=workspace).output == b"42\nTrue\n"

    def test_permissions_and_times_are_set_in_the_workspace(self, sandbox, workspace):
        (workspace / "d").mkdir()
        script = "cd d; touch a; chmod 640 a; touch -d 2001-02-03T04:05:06Z a; ln -s a b; touch -h -d 2002-01-01Z b; cp -p a c"
        outcome = shell(sandbox, script + "; stat -c '%a %Y' a c; stat -c %Y b", workspace=workspace)
        assert outcome.output == b"640 981173106\n640 981173106\n1009843200\n"

    def test_a_link_to_a_directory_outside_does_not_keep_tests_from_running(self, bubblewrap, workspace, tmp_path):
        """Here is no such directory, or nothing in it; what lists a tree goes on, also what does not expect that."""
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "test_other.py").write_text("def test_other(): assert False")
        (workspace / "inner").mkdir()
        (workspace / "inner/test_it.py").write_text("def test_it(): pass")
        script = f"{sys.executable} -m pytest -q -p no:cacheprovider || exit"
        for place in ("link", "inner/link"):
            (workspace / place).symlink_to(outside)
            script += f"; {{ ls {place}/ || test ! -d {place}; }} || exit"
        quick = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        outcome = shell(bubblewrap, script, workspace=workspace, environment=quick)
        assert b"1 passed" in outcome.output
        assert outcome.code == 0
        assert b"test_other" not in outcome.output


class TestLimits:
    def test_time(self, sandbox, workspace, marker):
        script = f"(setsid sleep {marker} &); sleep {marker}"
        outcome = shell(sandbox, script, workspace=workspace, limits=CommandLimits(seconds=0.6))
        assert (outcome.code, outcome.stop_reason) == (None, "timeout")
        assert processes(marker) == []

    def test_output(self, sandbox, workspace):
        outcome = shell(
            sandbox, "yes | head -c 3000000000", workspace=workspace, limits=CommandLimits(output_bytes=1000)
        )
        assert (outcome.code, outcome.stop_reason) == (None, "output")
        assert outcome.total < MIB
        assert len(outcome.output) < 1100

    def test_output_that_is_cut(self, sandbox, workspace):
        outcome = shell(sandbox, "seq 1000", workspace=workspace, limits=CommandLimits(output_bytes=100))
        assert (outcome.code, outcome.stop_reason, outcome.total) == (0, "", 3893)
        assert outcome.output.decode().splitlines()[:3] == ["1", "2", "3"]
        assert "\n[3793 bytes are missing here]\n" in outcome.output.decode()
        assert outcome.output.endswith(b"999\n1000\n")

    def test_memory_of_a_process(self, sandbox, workspace):
        limits = CommandLimits(memory_bytes=128 * MIB)
        assert b"MemoryError" in python(sandbox, f"bytearray({256 * MIB})", workspace=workspace, limits=limits).output

    def test_memory_of_all(self, sandbox, workspace):
        program = f"import os, time\nfor _ in range(3): os.fork()\nx = bytearray(b'x' * {32 * MIB})\ntime.sleep(60)"
        outcome = python(sandbox, program, workspace=workspace, limits=CommandLimits(memory_bytes=128 * MIB))
        assert outcome.stop_reason == "memory"

    def test_memory_that_is_shared_counts_once(self, sandbox, workspace):
        program = f"import os, time\nx = bytearray(b'x' * {32 * MIB})\nfor _ in range(3): os.fork()\ntime.sleep(0.3)"
        outcome = python(sandbox, program, workspace=workspace, limits=CommandLimits(memory_bytes=128 * MIB))
        assert (outcome.code, outcome.stop_reason) == (0, "")

    def test_address_space_is_no_memory(self, sandbox, workspace):
        program = f"import mmap\nmmap.mmap(-1, {4096 * MIB}, prot=0, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)"
        assert python(sandbox, program, workspace=workspace).code == 0

    def test_processes(self, sandbox, workspace, marker):
        script = f"for n in $(seq 60); do sleep {marker} & done; wait"
        outcome = shell(sandbox, script, workspace=workspace, limits=CommandLimits(processes=30, seconds=20))
        assert outcome.stop_reason == "processes" or b"fork" in outcome.output
        assert processes(marker) == []

    def test_file(self, sandbox, workspace):
        shell(sandbox, "head -c 3000000 /dev/zero > large", workspace=workspace, limits=CommandLimits(file_bytes=MIB))
        assert (workspace / "large").stat().st_size <= MIB


class TestEnd:
    def test_what_is_left_behind(self, sandbox, workspace, marker):
        script = f"sleep {marker} & (setsid nohup sleep {marker} >/dev/null 2>&1 &); echo over"
        outcome = shell(sandbox, script, workspace=workspace)
        assert (outcome.code, outcome.output) == (0, b"over\n")
        assert processes(marker) == []

    def test_streams_that_are_closed_early(self, sandbox, workspace):
        assert shell(sandbox, "exec >/dev/null 2>&1; sleep 0.2; exit 5", workspace=workspace).code == 5

    @pytest.mark.parametrize("begun", [True, False])
    def test_cancelled(self, sandbox, workspace, marker, begun):
        async def cancel():
            script = f"echo > begun; (setsid sleep {marker} &); sleep {marker}"
            task = asyncio.create_task(sandbox.run(["sh", "-c", script], Confinement(workspace=workspace)))
            while begun and not (workspace / "begun").exists():  # noqa: ASYNC110  # another process says so
                await asyncio.sleep(0.01)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return processes(marker)

        assert asyncio.run(cancel()) == []
        assert not (workspace / ".git").exists()

    def test_several_at_once(self, sandbox, workspace):
        async def several():
            confinement = Confinement(workspace=workspace)
            return await asyncio.gather(*(sandbox.run(["echo", str(n)], confinement) for n in range(8)))

        assert [outcome.output for outcome in asyncio.run(several())] == [b"%d\n" % n for n in range(8)]
        assert not (workspace / ".git").exists()

    def test_we_are_killed(self, sandbox, workspace, marker, tmp_path):
        program = tmp_path / "program.py"
        tree = f"Path({str(sandbox.tree)!r})" if getattr(sandbox, "tree", None) else None
        construct = (
            f"Bubblewrap(Path({str(sandbox.program)!r}), tree={tree}, ways={sandbox._ways})"
            if sandbox.name == "bubblewrap"
            else ""
        )
        program.write_text(
            "import asyncio\nfrom pathlib import Path\n"
            "from callboard.sandbox import Confinement, find_sandbox\n"
            "from callboard.sandbox.bubblewrap import Bubblewrap\n"
            "async def main():\n"
            f"    sandbox = {construct or f'await find_sandbox(prefer={sandbox.name!r})'}\n"
            f"    script = 'echo > begun; (setsid sleep {marker} &); sleep {marker}'\n"
            f"    await sandbox.run(['sh', '-c', script], Confinement(workspace=Path({str(workspace)!r})))\n"
            "asyncio.run(main())\n"
        )
        # Where its private directories are then left.
        environment = dict(os.environ, TMPDIR=str(tmp_path))
        ours = subprocess.Popen([sys.executable, str(program)], env=environment)
        until(lambda: (workspace / "begun").exists() and len(processes(marker)) > 1)
        ours.send_signal(signal.SIGKILL)
        ours.wait()
        until(lambda: not processes(marker))


class TestKept:
    @pytest.mark.parametrize("attempt", ["echo x > .git/config", "rm -rf .git", "mv .git away", "mkdir .git/new"])
    def test_directory(self, confining, workspace, attempt):
        (workspace / ".git").mkdir()
        (workspace / ".git/config").write_text("mine")
        outcome = shell(confining, f"cat .git/config; {attempt}", workspace=workspace)
        assert outcome.output.startswith(b"mine")
        assert outcome.code != 0
        assert (workspace / ".git/config").read_text() == "mine"
        assert names(workspace / ".git") == ["config"]

    @pytest.mark.parametrize("attempt", ["echo x > .git", "rm -f .git; mkdir -p .git/hooks", "mv .git away"])
    def test_file(self, confining, workspace, attempt):
        (workspace / ".git").write_text("gitdir: elsewhere")
        shell(confining, attempt, workspace=workspace)
        assert (workspace / ".git").read_text() == "gitdir: elsewhere"

    @pytest.mark.parametrize(
        "attempt", ["echo x > .git", "mkdir -p .git/hooks; echo x > .git/hooks/x", "ln -s /etc .git"]
    )
    def test_absent(self, confining, workspace, attempt):
        shell(confining, attempt, workspace=workspace)
        assert names(workspace) == []

    @pytest.mark.parametrize(
        "attempt", ["rm -rf a", "mv a away; mkdir -p a/b; echo x > a/b/c", "mv a/b away", "echo x > a/b/c"]
    )
    def test_deep(self, confining, workspace, attempt):
        (workspace / "a/b").mkdir(parents=True)
        (workspace / "a/b/c").write_text("mine")
        (workspace / "a/other").mkdir()
        shell(confining, f"{attempt}; echo x > a/other/new", workspace=workspace, read_only=("a/b/c",))
        assert (workspace / "a/b/c").read_text() == "mine"

    @pytest.mark.parametrize("place", ["/etc", "../other", "."])
    def test_elsewhere(self, confining, workspace, place):
        with pytest.raises(CallerError, match="must be a path in the workspace"):
            run(confining, "true", workspace=workspace, read_only=(place,))

    def test_link(self, confining, workspace):
        (workspace / ".git").symlink_to("/tmp")
        with pytest.raises(CallerError, match="is a link"):
            run(confining, "true", workspace=workspace)


class TestBorrowed:
    """Shown by a mount, or where there is none by a link."""

    @pytest.fixture
    def library(self, tmp_path):
        library = tmp_path / "node_modules"
        library.mkdir()
        (library / "a.js").write_text("mine")
        return library

    def test_it_is_seen(self, sandbox, workspace, library):
        script = "cat web/node_modules/a.js" + ("; echo x > web/node_modules/b.js" if sandbox.name != "none" else "")
        outcome = shell(sandbox, script, workspace=workspace, bind_mounts={"web/node_modules": library})
        assert outcome.output.startswith(b"mine")
        assert (outcome.code == 0) == (sandbox.name == "none")
        assert names(workspace) == []
        assert names(library) == ["a.js"]

    def test_an_environment(self, sandbox, workspace, tmp_path):
        """Its scripts name its own place."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "v")], check=True)
        script = tmp_path / "v/bin/script"
        script.write_text(f"#!{tmp_path}/v/bin/python\nprint(42)\n")
        script.chmod(0o755)
        outcome = run(sandbox, ".venv/bin/script", workspace=workspace, bind_mounts={".venv": tmp_path / "v"})
        assert outcome.output == b"42\n"

    def test_through_a_link(self, sandbox, workspace, tmp_path):
        (workspace / "web").symlink_to(tmp_path)
        with pytest.raises(CallerError, match="is a link"):
            run(sandbox, "true", workspace=workspace, bind_mounts={"web/modules": tmp_path})

    def test_what_is_there_stays(self, linking, workspace, library):
        (workspace / "node_modules").mkdir()
        (workspace / "node_modules/b.js").write_text("own")
        outcome = shell(linking, "ls node_modules", workspace=workspace, bind_mounts={"node_modules": library})
        assert outcome.output == b"b.js\n"
        assert names(workspace / "node_modules") == ["b.js"]

    def test_what_is_put_in_its_place_stays(self, linking, workspace, library):
        script = "rm -r node_modules && mkdir node_modules"
        shell(linking, script, workspace=workspace, bind_mounts={"node_modules": library})
        assert (workspace / "node_modules").is_dir()
        assert not (workspace / "node_modules").is_symlink()
        assert names(library) == ["a.js"]

    def test_two_at_once(self, linking, workspace, library):
        """It is there until the last of them has ended."""
        confinement = Confinement(workspace=workspace, bind_mounts={"node_modules": library})
        long = "touch begun; while ! test -e ended; do sleep 0.01; done; cat node_modules/a.js"

        async def both():
            first = asyncio.create_task(linking.run(["sh", "-c", long], confinement))
            await asyncio.to_thread(until, (workspace / "begun").exists)
            await linking.run(["touch", "ended"], confinement)
            return await first

        assert asyncio.run(both()).output == b"mine"
        assert sorted(names(workspace)) == ["begun", "ended"]


class TestBubblewrap:
    """What only namespaces can do."""

    def test_readable(self, bubblewrap, workspace, tmp_path):
        (tmp_path / "shown").write_text("mine")
        outcome = shell(
            bubblewrap,
            f"cat {tmp_path}/shown; echo x > {tmp_path}/shown",
            workspace=workspace,
            readable=(tmp_path / "shown",),
        )
        assert outcome.output.startswith(b"mine")
        assert (tmp_path / "shown").read_text() == "mine"

    def test_what_is_there(self, bubblewrap, workspace, tmp_path):
        (tmp_path / "neighbour").write_text("secret")
        outcome = shell(bubblewrap, f"ls {tmp_path} /tmp /home /etc/shadow; id -un", workspace=workspace)
        assert b"neighbour" not in outcome.output
        assert outcome.output.endswith(b"callboard\n")

    def test_loopback(self, bubblewrap, workspace):
        program = (
            "import socket\nserver = socket.create_server(('127.0.0.1', 0))\n"
            "client = socket.create_connection(server.getsockname())\nclient.send(b'x')\n"
            "print(server.accept()[0].recv(1), len(socket.getaddrinfo('localhost', 80)) > 0)"
        )
        assert python(bubblewrap, program, workspace=workspace).output == b"b'x' True\n"

    def test_worktree(self, bubblewrap, workspace, tmp_path):
        def git(*arguments, cwd):
            subprocess.run(
                ["git", "-c", "user.name=a", "-c", "user.email=a", *arguments], cwd=cwd, check=True, capture_output=True
            )

        main, tree = tmp_path / "main", tmp_path / "tree"
        main.mkdir()
        git("init", "-q", ".", cwd=main)
        git("commit", "-qm", "first", "--allow-empty", cwd=main)
        git("worktree", "add", str(tree), cwd=main)
        (tree / "new").write_text("x")
        outcome = shell(
            bubblewrap, f"git log --oneline; git status --short; echo x > {main}/.git/config", workspace=tree
        )
        assert b" first\n?? new\n" in outcome.output
        assert outcome.code != 0
        assert "repositoryformatversion" in (main / ".git/config").read_text()

    def test_a_command_cannot_ask_for_another_repository(self, bubblewrap, workspace, tmp_path):
        other = tmp_path / "other"
        subprocess.run(["git", "init", "-q", str(other)], check=True)
        (workspace / ".git").write_text(f"gitdir: {other}/.git")
        assert b"No such file" in shell(bubblewrap, f"ls {other}", workspace=workspace).output

    def test_temporary_files_have_a_size(self, bubblewrap, workspace):
        script = "for n in 1 2 3; do head -c 900000 /dev/zero > /tmp/$n; done"
        outcome = shell(bubblewrap, script, workspace=workspace, limits=CommandLimits(file_bytes=MIB))
        assert b"No space left" in outcome.output

    def test_our_python_in_the_workspace_is_not_written_to(self, bubblewrap, workspace, monkeypatch):
        (workspace / "v").mkdir()
        monkeypatch.setattr(sys, "prefix", str(workspace / "v"))
        assert shell(bubblewrap, "echo x > v/new", workspace=workspace).code != 0


@pytest.mark.parametrize("place", ["/var/tmp", "/tmp"])
def test_a_workspace_among_temporary_files(sandbox, place):
    with tempfile.TemporaryDirectory(dir=place) as directory:
        workspace = Path(directory)
        outcome = shell(sandbox, "echo x > new && pwd", workspace=workspace, read_only=())
        assert outcome.output.decode() == f"{workspace}\n"
        assert (workspace / "new").exists()


def test_a_directory_on_path_that_cannot_be_read(sandbox, workspace, tmp_path):
    closed = tmp_path / "closed"
    (closed / "bin").mkdir(parents=True)
    (closed / "bin").chmod(0)
    closed.chmod(0)
    try:
        path = f"{closed}/bin:{closed}:{os.environ['PATH']}"
        assert shell(sandbox, "echo ran", workspace=workspace, environment={"PATH": path}).output == b"ran\n"
    finally:
        closed.chmod(0o700)


def test_a_command_that_is_too_long_is_told(sandbox, workspace):
    with pytest.raises(CallerError, match="too long for this system; write it into a file"):
        shell(sandbox, "x" * 5_000_000, workspace=workspace)


def test_git_does_not_read_what_it_knows(sandbox, workspace):
    """Files have another owner inside than its index says."""
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "x", "--allow-empty"]):
        subprocess.run([*git, *arguments], cwd=workspace, check=True)
    outcome = shell(sandbox, "git config core.checkStat", workspace=workspace)
    assert outcome.output == b"minimal\n"
