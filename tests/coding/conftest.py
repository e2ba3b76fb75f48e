"""A repository with a fault, and jobs on it with models that say what they were told to; a home of one's own for git."""

import asyncio
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace
from tests.coding.stored import StoredJobs, run_job

from callboard.coding.agents import job_tests, job_workspace
from callboard.coding.agents.job_request import JobRequest, read_logs
from callboard.coding.test_runners import Selection, TestReport, run_tests
from callboard.configuration import load_settings
from callboard.core import ArgumentsPiece, InvocationEnded, InvocationStarted, ReplyEnded, ReplyStarted
from callboard.testing import FakeBackend, ScriptedModel

FAULTY = "def add(a, b):\n    return a ^ b\n"
TEST = "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"
PLUGINS = [
    *[each.name for each in entry_points(group="pytest11")],
    *("doctest", "legacypath", "unittest", "debugging"),
]
# A run of the tests takes a fifth of the time without the plug-ins that are installed beside pytest here.
QUICK = f"[pytest]\naddopts = {' '.join([f'-p no:{name}' for name in PLUGINS])}\n"
LIMIT = 60
"""Seconds; against a command that hangs, not part of what is asserted."""
PROGRAM = "from callboard.cli import main; main()"
NAME = "[user]\n\tname = Ada\n\temail = ada@example.org\n[init]\n\tdefaultBranch = main\n"


SHARED = "TESTS_REPORTS"
"""A variable: the folder of the reports, which the workers of pytest-xdist and the processes that tests start share."""


async def run_tests_once(workspace, selection=None, *, folder, seconds, digest=None):
    """The tests of a job: run, unless they ran on just these files in such a sandbox, and read only.

    Many tests begin with the same repository, and mend it in the same way.
    """
    files = content_of(workspace.root)
    shared = Path(os.environ[SHARED])
    # The folders of the test and of the job differ, and mean the same.
    own = rf"{re.escape(str(workspace.root.parent))}|{re.escape(str(shared.parent))}/(popen-gw\d+/)?[^/']+"
    confinement = re.sub(own, "", repr(workspace.confinement))
    key = repr((files, selection or Selection(), workspace.sandbox.name, confinement, folder, os.environ["PATH"]))
    kept = shared / hashlib.sha256(key.encode()).hexdigest()
    if kept.exists():
        report = msgspec.json.decode(kept.read_bytes(), type=TestReport)
    else:
        report = await run_tests(workspace, selection, folder=folder, seconds=seconds)
        # The end of the output names the folder.
        if not report.output_end and content_of(workspace.root) == files:
            new = kept.with_suffix(f".{os.getpid()}")
            new.write_bytes(msgspec.json.encode(report))
            new.rename(kept)
    return replace(report, digest=await digest() if digest else "")


def content_of(root):
    """The files and folders of a tree, all but the repository."""
    return tuple(
        (str(path.relative_to(root)), path.lstat().st_mode, _content(path))
        for path in sorted(root.rglob("*"))
        if path != root / ".git"
    )


def _content(path):
    if path.is_symlink():
        return str(path.readlink())
    return path.read_bytes() if path.is_file() else b""


@pytest.fixture(autouse=True)
def quick_tests(monkeypatch, tmp_path_factory):
    """The first Python on PATH is ours, for any other may lack pytest, or be a script that looks for one."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "reports"
    shared.mkdir(exist_ok=True)
    monkeypatch.setenv(SHARED, str(shared))
    for module in (job_tests, job_workspace):
        monkeypatch.setattr(module, "run_tests", run_tests_once)


def make_request(kind, given, directory, settings, **options):
    """The request of a command that was called with these values; `logs` is the path of a file."""
    fields = {**given, **options}
    if "logs" in fields:
        fields["logs"] = read_logs(Path(fields["logs"]))
    return JobRequest(kind=kind, directory=directory, settings=settings, **fields)


class Nobody:
    """Is asked, and says no. `messages` are what they say before each round; "" is nothing."""

    rules = ()

    def __init__(self, *messages):
        self.asked = []
        self._messages = iter(messages)

    async def __call__(self, invocation, why):
        self.asked.append((invocation.name, why))
        return "deny"

    async def message(self):
        return next(self._messages, "")


@pytest.fixture(scope="session")
def faulty(tmp_path_factory):
    """The repository that each test has a copy of."""
    made = Repository(tmp_path_factory.mktemp("faulty"))
    write_faulty(made.root)
    made.git("init", "-q", "--initial-branch=main")
    made.git("config", "user.name", "A User")
    made.git("config", "user.email", "user@example.org")
    made.commit("First")
    return made.root


def write_faulty(root):
    (root / "calc.py").write_text(FAULTY)
    (root / "test_calc.py").write_text(TEST)
    (root / "pytest.ini").write_text(QUICK)


@pytest.fixture
def repository(tmp_path, faulty):
    copied = Repository(shutil.copytree(faulty, tmp_path / "repository"))
    # It notes where the files lie, and they lie elsewhere.
    copied.git("update-index", "-q", "--refresh")
    return copied


class Repository:
    def __init__(self, root):
        self.root = root

    def git(self, *arguments):
        done = subprocess.run(["git", *arguments], cwd=self.root, check=True, capture_output=True, text=True)
        return done.stdout

    def commit(self, message):
        self.git("add", "--all")
        self.git("commit", "-qm", message)

    def state(self):
        """All that a job may not change: HEAD, the index, the files."""
        files = {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and ".git" not in path.relative_to(self.root).parts
        }
        return self.git("rev-parse", "HEAD"), self.git("symbolic-ref", "HEAD"), self.git("status", "--short"), files


@pytest.fixture
def jobs(tmp_path):
    return StoredJobs(tmp_path / "jobs", tmp_path / "jobs.db")


@pytest.fixture
def run(repository, jobs, tmp_path):
    """Runs a job of a kind with a script; gives the job, its steps, the model and who was asked.

    `fills` are the replies of the model that writes single lines.
    """

    def ran(
        kind,
        given,
        script,
        *,
        workflow="short",
        settings="",
        profile=None,
        directory=None,
        approver=None,
        others=None,
        fills=None,
        **options,
    ):
        config = tmp_path / "config" / "callboard"
        config.mkdir(parents=True, exist_ok=True)
        (config / "callboard.toml").write_text(settings)
        place = directory or repository.root
        loaded = load_settings({}, place, {"XDG_CONFIG_HOME": str(tmp_path / "config")})
        model = ScriptedModel(script, profile=profile)
        if fills is not None:
            model.filler = ScriptedModel(fills, name="filler")
        person = approver or Nobody()
        steps = []
        request = make_request(kind, given, place, loaded, workflow=workflow, **options)
        job = asyncio.run(run_job(request, model, jobs, steps.append, person, others=others))
        results = [each.canister.text for each in steps if type(each).__name__ == "ResultReady"]
        prompts = [each.text for each in steps if type(each).__name__ == "PromptSent"]
        phases = [each.name for each in steps if type(each).__name__ == "PhaseStarted"]
        notices = [each.text for each in steps if type(each).__name__ == "Notice"]
        seen = {"results": results, "prompts": prompts, "phases": phases, "notices": notices}
        return SimpleNamespace(job=job, steps=steps, model=model, asked=person.asked, **seen)

    return ran


@pytest.fixture
def command(tmp_path, home):
    """Runs `callboard` in a process of its own, as a user does, in a home of their own.

    `replies` are those of a backend. `sign` is waited for in the output; then the process gets `number`, a signal,
    and `then` is called; or it gets it `after` so many seconds. `apart` begins the command line, such as of unshare;
    `program` is what Python runs.
    """

    def commanded(
        *arguments,
        cwd,
        replies=None,
        sign=b"",
        number=0,
        then=int,
        after=0.0,
        apart=(),
        limit=LIMIT,
        program=PROGRAM,
        **options,
    ):
        async def scenario():
            async with FakeBackend(replies or []) as backend:
                model = ["--model", "fake-model", "--base-url", backend.url] if replies is not None else []
                child = await asyncio.create_subprocess_exec(
                    *[*apart, sys.executable, "-c", program, *arguments, *model],
                    cwd=cwd,
                    env={
                        **os.environ,
                        "XDG_DATA_HOME": str(tmp_path / "data"),
                        "XDG_STATE_HOME": str(tmp_path / "state"),
                        "XDG_CONFIG_HOME": str(home),
                    },
                    stdin=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.PIPE,
                    limit=2**26,
                    start_new_session=True,
                    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
                    **{"stdout": asyncio.subprocess.PIPE, **options},
                )
                seen = b""
                try:
                    async with asyncio.timeout(limit):
                        await asyncio.sleep(after)
                        while sign and sign not in seen:
                            line = await child.stdout.readline()
                            assert line, (seen, await child.stderr.read())
                            seen += line
                        if number:
                            with suppress(ProcessLookupError):
                                child.send_signal(number)
                        then()
                        out, err = await child.communicate()
                finally:
                    if child.returncode is None:
                        child.kill()
                        await child.communicate()
                out = (seen + (out or b"")).decode()
                return SimpleNamespace(code=child.returncode, out=out, lines=out.splitlines(), err=err.decode())

        return asyncio.run(scenario())

    return commanded


@pytest.fixture
def data(tmp_path):
    """The jobs of those commands."""
    return StoredJobs(tmp_path / "data" / "callboard" / "jobs", tmp_path / "state" / "callboard" / "jobs" / "jobs.db")


@pytest.fixture
def calling():
    """A reply that calls tools, each a name and its arguments."""

    def reply(*calls):
        events = [ReplyStarted()]
        for index, (name, arguments) in enumerate(calls):
            given = json.dumps(arguments)
            identifier = f"call_{hashlib.sha256(f'{index} {name} {given}'.encode()).hexdigest()[:12]}"
            events += [
                InvocationStarted(index, identifier, name, True),
                ArgumentsPiece(index, given),
                InvocationEnded(index, identifier, name, None, given),
            ]
        return [*events, ReplyEnded("invocations")]

    return reply


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user who has told git nothing but a name."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / ".gitconfig").write_text(NAME)
    for name in [*os.environ]:
        if name.startswith("GIT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("XDG_CONFIG_HOME")
    return folder


@pytest.fixture
def git(home):
    """Git as the user runs it, in their home."""
    assert home.is_dir()

    def run(directory, *arguments, check=True):
        done = subprocess.run(["git", *arguments], cwd=directory, capture_output=True, check=False)
        assert done.returncode == 0 or not check, done.stderr.decode()
        return done.stdout.decode("utf-8", "surrogateescape")

    return run


@pytest.fixture(scope="session")
def twice(tmp_path_factory):
    """The repository that each test has a copy of."""
    folder = tmp_path_factory.mktemp("twice")
    (folder / "config").write_text(NAME)
    root = folder / "repo"
    (root / "src").mkdir(parents=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_GLOBAL": str(folder / "config")}

    def git(*arguments):
        subprocess.run(["git", *arguments], cwd=root, env=environment, check=True, capture_output=True)

    git("init", "-q")
    (root / "a.py").write_text("one\n")
    (root / "src" / "b.py").write_text("two\n")
    git("add", ".")
    git("commit", "-qm", "first")
    (root / "a.py").write_text("one\nmore\n")
    git("commit", "-qam", "second")
    return root


@pytest.fixture
def repo(tmp_path, git, twice):
    """A repository with two commits."""
    root = shutil.copytree(twice, tmp_path / "repo")
    # It notes where the files lie, and they lie elsewhere.
    git(root, "update-index", "-q", "--refresh")
    return root


@pytest.fixture
def job(tmp_path):
    """The folder of a job."""
    folder = tmp_path / "jobs" / "1"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def seen_of(git):
    """All that a user sees of their tree: files with their bytes and modes, index, HEAD, branches, stash, state."""

    def look(root, *, branches=True):
        files = {}
        for path in sorted(Path(root).rglob("*")):
            name = path.relative_to(root).as_posix()
            if name == ".git" or name.startswith(".git/"):
                continue
            about = path.lstat()
            held = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
            files[name] = (about.st_mode, about.st_mtime_ns if not path.is_dir() else 0, held)
        index = hashlib.sha256((Path(root) / ".git" / "index").read_bytes()).hexdigest()
        refs = git(root, "for-each-ref") if branches else git(root, "for-each-ref", "refs/heads/main")
        environment = ("-c", "core.fsmonitor=false", "--no-optional-locks")
        return {
            "files": files,
            "index": index,
            "HEAD": (Path(root) / ".git" / "HEAD").read_text(),
            "config": (Path(root) / ".git" / "config").read_text(),
            "refs": refs,
            "status": git(root, *environment, "status", "--porcelain", "--branch"),
            "stash": git(root, "stash", "list"),
        }

    return look
