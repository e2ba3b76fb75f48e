"""Tries to get out of a sandbox: `probes.py SANDBOX WAY USER DIRECTORY` prints what came of each try, as JSON.

SANDBOX is `landlock`, `none`, `bundled`, or the path of a bwrap; WAY is how that is started. The tries are made by
USER, a number; this process is the root of a mount namespace of its own, where what may be written to is mounted over,
so that nothing is harmed by a sandbox that does not hold.
"""

# ruff: noqa: PTH110, PTH208, T201  # a script

import asyncio
import contextlib
import ctypes
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from callboard.sandbox import CommandLimits, Confinement, find_sandbox
from callboard.sandbox.bubblewrap import Bubblewrap
from callboard.sandbox.bundled_bubblewrap import PROGRAM, bundled_bubblewrap

MIB = 1024 * 1024
SECRET = "sk-not-a-real-key"
NAP = f"7777.{os.getpid()}"
"""Seconds that nobody else sleeps."""
INSIDE = Path(__file__).with_name("inside.py").read_text(encoding="utf-8")
DEVICES = [f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty")]
OVERLAID = ("/usr", "/etc", "/var/tmp")
LIMITS = CommandLimits(seconds=20, output_bytes=64 * 1024, processes=100, memory_bytes=256 * MIB, file_bytes=8 * MIB)

BOMB = """
import os, time
children = 0
try:
    while children < 600:
        if os.fork() == 0:
            time.sleep(30); os._exit(0)
        children += 1
    time.sleep(2)
except OSError:
    pass
else:
    print("ESCAPED")
"""
TYPE = """
import fcntl, os, pty, termios
main, other = pty.openpty()
if os.fork() == 0:
    os.setsid()
    fcntl.ioctl(other, termios.TIOCSCTTY, 0)
    fcntl.ioctl(other, TERMINAL)
    os.write(1, b"ESCAPED")
os.wait()
"""
LIBC = ctypes.CDLL(None, use_errno=True)


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def show_python(directory):
    """Lets other users reach our Python, also where it lies in root's home. Seen in this mount namespace only."""
    here = Path(__file__)
    places = {os.path.realpath(each) for each in (sys.prefix, sys.base_prefix, here.parents[2] / "src", here.parent)}
    closed = {}
    for place in sorted(places):
        # The outermost directory that others may not search.
        ancestors = [each for each in reversed(Path(place).parents) if not each.stat().st_mode & 0o001]
        if ancestors:
            closed.setdefault(ancestors[0], []).append(place)
    for number, (ancestor, hidden) in enumerate(closed.items()):
        taken = directory / f"taken{number}"
        for place in hidden:
            (taken / place.lstrip("/")).mkdir(parents=True)
            mount("--bind", place, str(taken / place.lstrip("/")))
        mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(ancestor))
        for place in hidden:
            Path(place).mkdir(parents=True, exist_ok=True)
            mount("--bind", str(taken / place.lstrip("/")), place)


class Ground:
    """Where the probes are made: a workspace, and around it what is not to be reached. All of it is `user`'s."""

    def __init__(self, directory, user):
        mount("-t", "tmpfs", "tmpfs", str(directory))
        # Not on the directory's own file system, so that what is written is nowhere.
        for number, place in enumerate(OVERLAID):
            upper, work = directory / f"upper{number}", directory / f"work{number}"
            upper.mkdir()
            work.mkdir()
            mount("-t", "overlay", "overlay", "-o", f"lowerdir={place},upperdir={upper},workdir={work}", place)
        if user and os.getuid() == 0:
            show_python(directory)
        directory.chmod(0o755)
        self.ours = directory / "ours"
        self.ours.mkdir()
        with contextlib.suppress(OSError):  # where nobody else is known it is the user's already
            os.chown(self.ours, user, user)
        become(user)
        self.fill(self.ours)

    def fill(self, directory):
        self.workspace = directory / "workspace"
        self.other = directory / "other"
        self.home = directory / "home"
        for each in (
            self.workspace,
            self.other,
            self.home / ".ssh",
            self.workspace / "work",
            self.workspace / ".git" / "hooks",
        ):
            each.mkdir(parents=True)
        self.victim = self.other / "victim"
        self.victim.write_text("as it was")
        self.key = self.home / ".ssh" / "id"
        self.key.write_text(SECRET)
        (self.workspace / "link").symlink_to(self.other)
        (self.workspace / "key").symlink_to(self.key)
        (self.workspace / "machine").symlink_to("/etc")
        (self.workspace / "nowhere").symlink_to("/nowhere")
        shutil.copy(shutil.which("cat"), self.workspace / "set-id")
        (self.workspace / "set-id").chmod(0o4755)
        # On PATH, where a user cannot look into it, it keeps nothing from running.
        closed = directory / "closed"
        closed.mkdir(mode=0)
        path = f"{closed}/bin:{closed}:{os.environ['PATH']}"
        os.environ.update(HOME=str(self.home), SOME_API_KEY=SECRET, PATH=path)
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(type=socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.udp.setblocking(False)
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(str(self.other / "socket"))
        self.unix.listen()
        self.datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagrams.bind(str(self.other / "datagrams"))
        self.datagrams.setblocking(False)
        for path in (self.other / "socket", self.other / "datagrams"):
            path.chmod(0o777)
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind(f"\0callboard-{os.getpid()}")
        self.abstract.listen()
        self.process = subprocess.Popen(["sleep", "300"])
        self.shown = directory / "shown"
        self.shown.mkdir()
        self.readable = self.shown / "victim"
        self.readable.write_text("as it was")
        with contextlib.suppress(OSError):
            os.setxattr(self.readable, "user.mine", b"as it was")
        (self.workspace / "shown").symlink_to(self.readable)
        self.name = f"callboard-{os.getpid()}"
        Path("/dev/shm", self.name).write_text("as it was")
        self.ids = {
            "shared memory": LIBC.shmget(0, 4096, 0o1600),
            "messages": LIBC.msgget(0, 0o1600),
            "semaphores": LIBC.semget(0, 1, 0o1600),
        }
        assert min(self.ids.values()) >= 0
        assert LIBC.mq_open(f"/{self.name}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None) >= 0

    def close(self):
        self.process.kill()
        LIBC.mq_unlink(f"/{self.name}".encode())
        with contextlib.suppress(OSError):
            Path("/dev/shm", self.name).unlink()
        LIBC.shmctl(self.ids["shared memory"], 0, None)
        LIBC.msgctl(self.ids["messages"], 0, None)
        LIBC.semctl(self.ids["semaphores"], 0, 0)

    def facts(self):
        return {
            **self.ids,
            "process": self.process.pid,
            "queue": self.name,
            "shm": self.name,
            "devices": DEVICES,
            "readable": str(self.readable),
            "link": "../shown",
            "unreadable": [str(self.victim), str(self.key), "../key", "../link/victim"],
        }

    def state(self):
        """What nothing may change: of files, devices, settings, and the process."""
        found = {}
        for path in (*map(Path, DEVICES), self.readable, self.victim, self.key, self.shown, self.other):
            status = path.stat()
            found[str(path)] = [status.st_mode, status.st_uid, status.st_gid, status.st_nlink]
            if not path.is_dir() and path not in map(Path, DEVICES):
                found[str(path)] += [status.st_mtime_ns, status.st_size, str(os.listxattr(path))]
        process = self.process.pid
        found["process"] = [os.getpriority(os.PRIO_PROCESS, process), os.sched_getscheduler(process)]
        found["settings"] = Path("/proc/sys/kernel/core_pattern").read_text()
        found["alive"] = self.process.poll()
        found["shm"] = Path("/dev/shm", self.name).read_text()
        return found

    def received(self, endpoint):
        try:
            return bool(endpoint.recv(100))
        except BlockingIOError:
            return False


class Probes:
    def __init__(self, sandbox, ground):
        self.sandbox = sandbox
        self.ground = ground
        self.found = {}

    async def run(self, *command, limits=LIMITS):
        confinement = Confinement(workspace=self.ground.workspace, readable=(self.ground.shown,), limits=limits)
        return await self.sandbox.run(command, confinement)

    async def shell(self, name, script, escaped=None, **more):
        """By default it has escaped if it says so."""
        outcome = await self.run("sh", "-c", script, **more)
        await self.judge(name, outcome, escaped)

    async def python(self, name, program, escaped=None, **more):
        outcome = await self.run(os.path.realpath(sys.executable), "-c", program, **more)
        await self.judge(name, outcome, escaped)

    async def judge(self, name, outcome, escaped):
        """Anything else than its own failure is told, such as a program that is not there."""
        bad = escaped(outcome) if escaped else b"ESCAPED" in outcome.output or SECRET.encode() in outcome.output
        self.found[name] = "escaped" if bad else "blocked"
        if os.environ.get("PROBES_TELL"):
            print(name, self.found[name], outcome.code, outcome.stop_reason, outcome.output[-300:], file=sys.stderr)

    async def sane(self):
        """A probe is worth something only where ordinary work can be done."""
        outcome = await self.run(
            "sh",
            "-c",
            'echo x > work/new && cat work/new && "$0" -c "print(6 * 7)" && git --version',
            os.path.realpath(sys.executable),
        )
        assert b"42\ngit version" in outcome.output, outcome

    async def files(self):
        ground = self.ground
        before = os.listdir(ground.other)
        await self.shell(
            "write through a link",
            "echo x > link/victim; echo x > ../other/victim; echo x > link/new; rm -f ../other/victim",
            lambda _: os.listdir(ground.other) != before or ground.victim.read_text() != "as it was",
        )
        places = [f"{place}/escaped" for place in ("/usr", "/etc", "/var/tmp", str(ground.home))]
        await self.shell(
            "write elsewhere", f"touch {' '.join(places)}", lambda _: any(os.path.exists(place) for place in places)
        )
        await self.shell("read a key", f"cat {ground.key}; cat key; ln {ground.key} work/hard && cat work/hard")
        await self.shell(
            "plant a hook",
            "echo x > .git/hooks/pre-commit; mv .git work/away; mv .git away && mkdir -p .git/hooks && echo x > .git/hooks/pre-commit",
            lambda _: os.listdir(ground.workspace / ".git" / "hooks"),
        )
        await self.python(
            "leave a set-id file",
            "import os\n"
            "for attempt in (lambda: os.chmod('work/new', 0o4755), lambda: os.close(os.open('work/new2', 0o101, 0o4755)),\n"
            "                lambda: os.mknod('work/new3', 0o104755)):\n"
            "    try: attempt()\n"
            "    except OSError: pass\n",
            lambda _: any(
                path.stat().st_mode & 0o6000 for path in ground.workspace.glob("work/new*") if not path.is_symlink()
            ),
        )

    async def network(self):
        ground = self.ground
        connect = (
            "import socket\ns = socket.socket({family})\ns.settimeout(2)\ns.connect({address!r})\nprint('ESCAPED')"
        )
        await self.python("TCP to loopback", connect.format(family="2", address=ground.tcp.getsockname()))
        await self.python(
            "UDP to loopback",
            f"import socket\nsocket.socket(2, 2).sendto(b'x', {ground.udp.getsockname()!r})",
            lambda _: ground.received(ground.udp),
        )
        await self.python("Unix socket", connect.format(family="1", address=ground.unix.getsockname()))
        await self.python(
            "abstract Unix socket", connect.format(family="1", address=ground.abstract.getsockname().decode())
        )
        await self.python(
            "datagram from a pair",
            f"import socket\nsocket.socketpair(1, 2)[0].sendto(b'x', {ground.datagrams.getsockname()!r})",
            lambda _: ground.received(ground.datagrams),
        )
        await self.python("VM socket", "import socket\nsocket.socket(40, 1)\nprint('ESCAPED')")

    async def processes(self):
        ground = self.ground
        await self.python("fork bomb", BOMB)
        await self.shell("kill a process", f"kill -9 {ground.process.pid}", lambda _: ground.process.poll() is not None)
        await self.shell(
            "see a process",
            f"test -d /proc/{ground.process.pid} && grep -q sleep /proc/{ground.process.pid}/comm && echo ESCAPED",
        )
        await self.shell("another's environment", "cat /proc/[0-9]*/environ")
        await self.shell("own environment", "env")
        await self.shell(
            "a daemon stays",
            f"setsid sleep {NAP} >/dev/null 2>&1 & (setsid sh -c 'sleep {NAP} & sleep {NAP}' &)",
            lambda _: left(NAP),
        )

    async def pauses(self):
        """What waits more than it works; beside others, and so with another nap than theirs."""
        nap = f"{NAP}1"
        await asyncio.gather(
            self.shell("su", "su -c 'cat /proc/self/status' </dev/null", capable),
            self.shell(
                "the tree outlives its time",
                f"(setsid sh -c 'sleep {nap}' &); sleep {nap}",
                lambda outcome: outcome.stop_reason != "timeout" or left(nap),
                limits=CommandLimits(seconds=0.5),
            ),
        )

    async def privileges(self):
        await self.shell("set-id file", "./set-id /proc/self/status", capable)
        # Into the workspace, so that it is no harm where it is not refused.
        await self.shell("mount", "mount -t tmpfs x work && echo ESCAPED")
        await self.shell("unshare", "unshare -Ur cat /proc/self/status", capable)
        for name, terminal in (("TIOCSTI", "termios.TIOCSTI, b'x'"), ("TIOCLINUX", "0x541c, b'\\x03'")):
            await self.python(name, TYPE.replace("TERMINAL", terminal))

    async def inside(self):
        """What can be tried by one program; and afterwards, whether something has changed all the same."""
        before = self.ground.state()
        script = self.ground.workspace / "inside.py"
        script.write_text(INSIDE)
        outcome = await self.run(os.path.realpath(sys.executable), "inside.py", json.dumps(self.ground.facts()))
        try:
            told = json.loads(outcome.output.splitlines()[-1])
        except (ValueError, IndexError):
            raise AssertionError(outcome) from None
        assert told["needs"] == [], told["needs"]
        self.found |= {name: "escaped" if found else "blocked" for name, found in told["found"].items()}
        after = self.ground.state()
        changed = [f"{name}: {before[name]} -> {after[name]}" for name in before if before[name] != after[name]]
        if changed:
            print("\n".join(changed), file=sys.stderr)
        self.found["change anything of it all"] = "escaped" if changed else "blocked"

    async def limits(self):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await self.shell(
            "3 GB of output",
            "yes | head -c 3000000000",
            lambda outcome: (
                outcome.stop_reason != "output"
                or len(outcome.output) > LIMITS.output_bytes + 100
                or grown(before) > 32 * MIB
            ),
        )
        await self.shell(
            "large file",
            "head -c 100000000 /dev/zero > work/large",
            lambda _: (self.ground.workspace / "work" / "large").stat().st_size > LIMITS.file_bytes,
        )
        (self.ground.workspace / "work" / "large").unlink(missing_ok=True)
        await self.python("much memory", f"x = bytearray({2 * LIMITS.memory_bytes})\nprint('ESCAPED')")
        await self.python(
            "memory in files",
            "import os\nfiles = []\n"
            "for number in range(100):\n"
            "    files.append(os.memfd_create('x'))\n    os.write(files[-1], bytes(1000000))\nprint('ESCAPED')",
        )


def capable(outcome):
    """Whether a status of a process shows capabilities."""
    shown = [line.split()[1] for line in outcome.output.splitlines() if line.startswith(b"CapEff:")]
    return any(int(each, 16) for each in shown)


def grown(before):
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


def left(marker):
    """Whether a process with this argument is there."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in path.read_bytes().split(b"\0"):
                return True
        except OSError:
            pass
    return False


def become(user):
    """Goes on as this user, without capabilities; in a user namespace where nobody else is known, as oneself."""
    if user:
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        except OSError:
            assert LIBC.unshare(0x10000000) == 0
            Path("/proc/self/setgroups").write_text("deny")
            for each in ("uid_map", "gid_map"):
                Path("/proc/self", each).write_text(f"{user} 0 1")
        LIBC.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: or what is ours in /proc would be root's


async def chosen(name, way):
    if name in {"none", "landlock"}:
        return await find_sandbox(prefer=name)
    ways = (way,)
    tree = bundled_bubblewrap() if name == "bundled" else None
    return Bubblewrap(tree / PROGRAM, tree=tree, ways=ways) if tree else Bubblewrap(Path(name), ways=ways)


async def main(name, way, user, directory):
    ground = Ground(Path(directory), int(user))
    try:
        probes = Probes(await chosen(name, way), ground)
        await probes.sane()
        await probes.limits()
        if name == "none":
            await probes.shell("own environment", "env")
            await probes.shell(
                "a daemon stays", f"(setsid sh -c 'sleep {NAP} & sleep {NAP}' >/dev/null 2>&1 &)", lambda _: left(NAP)
            )
            await probes.python("fork bomb", BOMB)
            del probes.found["memory in files"]
        else:
            await asyncio.gather(probes.pauses(), probes.files())
            await probes.inside()
            await probes.network()
            await probes.privileges()
            await probes.processes()
    finally:
        ground.close()
    print(json.dumps(probes.found))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
