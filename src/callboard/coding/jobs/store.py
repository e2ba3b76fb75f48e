"""A job: what was asked, how far it is, what came of it.

Owns the record `job.json` and the folder that it is in. Knows nothing of models, tools or phases.
Law: the file is always whole; a job is running exactly while its process holds the job's lock.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from callboard.coding.jobs.json_encoding import carried, encoded
from callboard.core.ports import Clock
from callboard.errors import CallerError
from callboard.storage.atomic_file import write_private
from callboard.storage.directories import data_directory

JobType: TypeAlias = Literal["build", "debug", "review", "triage", "chat"]
JobState: TypeAlias = Literal["pending", "running", "waiting", "completed", "failed", "cancelled"]

ENDED: Final[frozenset[JobState]] = frozenset({"completed", "failed", "cancelled"})
MAX_DIFF: Final = 1_000_000
"""Characters of the diff that a job's record keeps."""
DIED: Final = "its process ended without a word"
PATIENCE: Final = 30.0
"""Seconds that a job has to end by itself when it is cancelled; then its process is killed. Its commands end at once:
the rest is for what it did to be committed, and its tree to be taken away.
"""

_FILE = "job.json"
_LOCK = "job.lock"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One job (seed 003). `id` sorts by the time it was made; `input` is what it was called with, `output` what came of it.

    `reason` says why it is in its state, where there is something to say; `error` what went wrong. `directory` is the
    user's, `tree` says where it works. Times are in UTC.
    """

    id: str
    type: JobType
    description: str
    directory: str
    model: str = ""
    input: dict[str, Any] = {}
    state: JobState = "pending"
    reason: str = ""
    phase: str = ""
    output: dict[str, Any] = {}
    error: str = ""
    tree: dict[str, Any] = {}
    rounds: int = 0
    calls: int = 0
    usage: dict[str, int] = {}
    created_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None


def jobs_directory() -> Path:
    """`${XDG_DATA_HOME:-~/.local/share}/callboard/jobs`."""
    return data_directory() / "jobs"


class Jobs:
    """The jobs in a directory, a folder each. Raises CallerError on a system where a process cannot lock a file."""

    def __init__(self, directory: Path | None = None, *, clock: Clock = lambda: datetime.now(UTC)) -> None:
        self._lock = _lock_function()
        self.directory = directory or jobs_directory()
        self._clock = clock

    def create(
        self,
        kind: JobType,
        description: str,
        directory: Path,
        *,
        model: str = "",
        given: Mapping[str, Any] | None = None,
        token: Callable[[], str] = lambda: secrets.token_hex(3),
    ) -> Job:
        """A pending job with a folder of its own. Raises CallerError for a directory that cannot be written down."""
        for place in (directory, self.directory):
            if carried(str(place)) != str(place):
                hint = "rename the folder, or set LC_ALL to a UTF-8 locale such as C.UTF-8"
                raise CallerError("the path is not UTF-8", path=carried(str(place)), hint=hint)
        now = self._clock()
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        while True:
            identifier = f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03}-{token()}"
            with suppress(FileExistsError):
                self.folder(identifier).mkdir(mode=0o700)
                break
        job = Job(
            id=identifier,
            type=kind,
            description=description,
            directory=str(directory),
            model=model,
            input={**(given or {})},
            created_at=now,
        )
        self._write(job)
        return job

    def remove(self, identifier: str) -> None:
        """Deletes a job and all that is kept of it."""
        shutil.rmtree(self.folder(identifier))

    def folder(self, identifier: str) -> Path:
        return self.directory / identifier

    def discard(self, identifier: str) -> None:
        """Take a job away that did nothing."""
        shutil.rmtree(self.folder(identifier), ignore_errors=True)

    def update(self, job: Job, **changes: Any) -> Job:
        """The job with changes, on disk when this returns. A state that begins or ends it sets the time."""
        state = changes.get("state")
        if state == "running" and job.started_at is None:
            changes["started_at"] = self._clock()
        if state in ENDED:
            changes["completed_at"] = self._clock()
        changed: Job = replace(job, **changes)
        self._write(changed)
        return changed

    def load(self, identifier: str) -> Job:
        """The job of this name, or of the only one that begins so; one whose process died is failed.

        Raises CallerError.
        """
        names = [identifier] if (self.folder(identifier) / _FILE).is_file() else self._beginning(identifier)
        if len(names) != 1 or Path(identifier).name != identifier:
            what = "no such job" if not names else f"{len(names)} jobs begin so"
            raise CallerError(what, path=identifier, hint="callboard jobs list shows them")
        return self._read(names[0])

    def all(self) -> list[Job]:
        """Every job, the newest first; a folder that is none is left out."""
        found = []
        for path in sorted(self.directory.glob(f"*/{_FILE}"), reverse=True):
            with suppress(CallerError, FileNotFoundError):
                found.append(self._read(path.parent.name))
        return found

    def latest(self, directory: Path | None = None) -> Job:
        """The newest one, of a directory if given. Raises CallerError if there is none."""
        for job in self.all():
            if directory is None or job.directory == str(directory):
                return job
        raise CallerError(
            "there is no job yet", path=str(directory or self.directory), hint="callboard build makes one"
        )

    @contextmanager
    def running(self, identifier: str) -> Iterator[None]:
        """The job is run by this process, while entered. Raises CallerError if another one does."""
        file = os.open(self.folder(identifier) / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                self._lock(file)
            except BlockingIOError:
                raise CallerError("the job is running already", path=identifier) from None
            os.ftruncate(file, 0)
            os.pwrite(file, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(file)

    async def cancel(self, identifier: str) -> Job:
        """Ends a job, its running call and every process of it; gives it as it is then.

        One that has ended stays as it is.
        """
        job = self.load(identifier)
        process = self._process(job.id)
        if process and _signalled(process, signal.SIGTERM):
            waited = 0.0
            while self._process(job.id) == process:
                await asyncio.sleep(0.02)
                waited += 0.02
                if waited > PATIENCE:
                    _signalled(process, signal.SIGKILL)
        try:
            job = self._read(job.id, died="cancelled")
        except FileNotFoundError:  # of a chat in which nothing was said there is no record
            return replace(job, state="cancelled")
        return job if job.state in ENDED else self.update(job, state="cancelled", reason="cancelled before it began")

    def _process(self, identifier: str) -> int:
        """The process that runs it, 0 if none does."""
        try:
            file = os.open(self.folder(identifier) / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        try:
            self._lock(file)
        except BlockingIOError:
            with suppress(ValueError):
                return int(os.pread(file, 20, 0))
        finally:
            os.close(file)
        return 0

    def _read(self, identifier: str, died: Literal["failed", "cancelled"] = "failed") -> Job:
        path = self.folder(identifier) / _FILE
        try:
            job = msgspec.json.decode(path.read_bytes(), type=Job)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise CallerError(f"not a job: {error}", path=str(path)) from None
        if job.id != identifier:
            raise CallerError("not this job: it has another's id", path=str(path))
        if job.state in ("running", "waiting") and not self._process(identifier):
            # It may have ended between the two looks.
            job = msgspec.json.decode(path.read_bytes(), type=Job)
            if job.state in ("running", "waiting"):
                reason = DIED if died == "failed" else "cancelled"
                try:
                    return self.update(job, state=died, reason=reason)
                except OSError:
                    # A disk that is full is no reason not to say it.
                    return replace(job, state=died, reason=reason)
        return job

    def _beginning(self, identifier: str) -> list[str]:
        if not identifier or "/" in identifier:
            return []
        return [path.name for path in self.directory.glob("*") if path.name.startswith(identifier)]

    def _write(self, job: Job) -> None:
        data = msgspec.json.format(encoded(job), indent=2)
        write_private(self.folder(job.id) / _FILE, data)


def _lock_function() -> Callable[[int], None]:
    """What locks a file, until it is closed or its process ends; raises BlockingIOError where another has locked it."""
    try:
        import fcntl  # noqa: PLC0415  # not on Windows
    except ImportError:
        hint = "coding agents, chats and jobs work on Linux and macOS; on Windows, use WSL"
        raise CallerError("this system has no file locks that end with a process (fcntl)", hint=hint) from None

    def lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    return lock


def as_json(job: Job) -> dict[str, Any]:
    """What machines are told of a job."""
    told: dict[str, Any] = json.loads(encoded(job))
    return told


def _signalled(process: int, number: int) -> bool:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return False
    return True
