"""The jobs on disk: a folder for each, with its record `job.json` and the lock of the process that runs it.

Laws: `job.json` is always whole, for it is replaced and never written over; a job runs exactly while its process holds
the lock, so that every reader can tell that a job's process died.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from callboard.coding.jobs.job import END_STATES, Job, JobType, new_identifier
from callboard.coding.jobs.json_encoding import encode_json, escape_surrogates
from callboard.core.ports import Clock
from callboard.errors import CallerError
from callboard.storage.atomic_file import write_private
from callboard.storage.directories import data_directory

DIED: Final = "its process ended without a word"
MAX_RECORD: Final = 32 * 1024 * 1024
"""Bytes of a record; a larger one is not read."""
PATIENCE: Final = 30.0
"""Seconds that a job has to end by itself when it is cancelled; then its process is killed. Its commands end at once:
the rest is for committing what it did, and for taking its tree away.
"""

_NAME: Final = re.compile(r"\w[\w-]*")
"""Also of rows of a database that others write."""
_FILE = "job.json"
_LOCK = "job.lock"


def jobs_directory() -> Path:
    """`${XDG_DATA_HOME:-~/.local/share}/callboard/jobs`."""
    return data_directory() / "jobs"


class JobStore:
    """The jobs in a directory. Raises CallerError on a system where a process cannot lock a file."""

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
        input: Mapping[str, Any] | None = None,  # noqa: A002  # the name of the field
        token: Callable[[], str] = lambda: secrets.token_hex(3),
    ) -> Job:
        """A pending job with a folder of its own. Raises CallerError for a directory that cannot be written down."""
        for path in map(str, (directory, self.directory)):
            if escape_surrogates(path) != path:
                hint = "rename the folder, or set LC_ALL to a UTF-8 locale such as C.UTF-8"
                raise CallerError("the path is not UTF-8", path=escape_surrogates(path), hint=hint)
        now = self._clock()
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        while True:
            identifier = new_identifier(now, token)
            with suppress(FileExistsError):
                self.folder(identifier).mkdir(mode=0o700)
                break
        job = Job(
            id=identifier,
            type=kind,
            description=description,
            directory=str(directory),
            model=model,
            input={**(input or {})},
            created_at=now,
        )
        self._write(job)
        return job

    def remove(self, identifier: str) -> None:
        """Deletes a job and all of its files."""
        shutil.rmtree(self.folder(identifier), ignore_errors=True)

    def folder(self, identifier: str) -> Path:
        """The folder of a job. Raises CallerError for a name that would lead elsewhere."""
        if not _NAME.fullmatch(identifier):
            raise CallerError("no name of a job", path=identifier, hint="callboard jobs list --all shows them")
        return self.directory / identifier

    def update(self, job: Job, **changes: Any) -> Job:
        """The job with changes, on disk when this returns. A state that begins or ends it sets the time."""
        state = changes.get("state")
        if state == "running" and job.started_at is None:
            changes["started_at"] = self._clock()
        if state in END_STATES:
            changes["completed_at"] = self._clock()
        changed: Job = replace(job, **changes)
        self._write(changed)
        return changed

    def load(self, identifier: str) -> Job:
        """The job of this name, or the only one whose name begins so; it has failed if its process died.

        Raises CallerError.
        """
        names = self.find(identifier)
        if len(names) != 1:
            what = "no such job" if not names else f"{len(names)} jobs begin so"
            raise CallerError(what, path=identifier, hint="callboard jobs list shows them")
        return self.read(names[0])

    def all(self) -> list[Job]:
        """Every job, the newest first; folders without a readable record are left out."""
        jobs = []
        for name in self.names():
            with suppress(CallerError, OSError):
                jobs.append(self.read(name))
        return jobs

    def names(self) -> list[str]:
        """The folders, the newest first. Some may have no record: that of a durable job holds its tree alone."""
        try:
            names = os.listdir(self.directory)  # noqa: PTH208  # there may be 10,000, and each would become a Path
        except FileNotFoundError:
            return []
        return sorted(filter(_NAME.fullmatch, names), reverse=True)

    @contextmanager
    def running(self, identifier: str) -> Iterator[None]:
        """Holds the job's lock: this process runs it. Raises CallerError if another process does."""
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
        """Ends a job, its running call and all of its processes. A job that has ended stays as it is."""
        job = await asyncio.to_thread(self.load, identifier)
        process = self._process(job.id)
        if process and _send_signal(process, signal.SIGTERM):
            waited = 0.0
            while await asyncio.to_thread(self._process, job.id) == process:
                await asyncio.sleep(0.02)
                waited += 0.02
                if waited > PATIENCE:
                    _send_signal(process, signal.SIGKILL)
        try:
            job = await asyncio.to_thread(self.read, job.id, died="cancelled")
        except FileNotFoundError:  # a chat without a turn deletes its record when it ends
            return replace(job, state="cancelled")
        return (
            job if job.state in END_STATES else self.update(job, state="cancelled", reason="cancelled before it began")
        )

    def _process(self, identifier: str) -> int:
        """The process that runs the job, 0 if none does."""
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

    def read(self, identifier: str, died: Literal["failed", "cancelled"] = "failed") -> Job:
        """The job of exactly this name; of one whose process died, `died` is its state from now on.

        Raises CallerError for a record that is none, and FileNotFoundError where there is none.
        """
        path = self.folder(identifier) / _FILE
        if path.stat().st_size > MAX_RECORD:
            raise CallerError(f"not a job: it has more than {MAX_RECORD:,} bytes", path=str(path))
        try:
            job = msgspec.json.decode(path.read_bytes(), type=Job)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise CallerError(f"not a job: {error}", path=str(path)) from None
        if job.id != identifier:
            raise CallerError("not this job: it has another's id", path=str(path))
        if job.state in ("running", "waiting") and not self._process(identifier):
            # It may have ended between reading the record and looking at the lock.
            job = msgspec.json.decode(path.read_bytes(), type=Job)
            if job.state in ("running", "waiting"):
                reason = DIED if died == "failed" else "cancelled"
                try:
                    return self.update(job, state=died, reason=reason)
                except OSError:
                    # The disk may be full; the state is right nevertheless.
                    return replace(job, state=died, reason=reason)
        return job

    def find(self, identifier: str) -> list[str]:
        """The job of this name, else all whose names begin so."""
        if not identifier or Path(identifier).name != identifier:
            return []
        if (self.folder(identifier) / _FILE).is_file():
            return [identifier]
        names = [path.parent.name for path in self.directory.glob(f"*/{_FILE}")]
        return [name for name in names if name.startswith(identifier)]

    def _write(self, job: Job) -> None:
        write_private(self.folder(job.id) / _FILE, msgspec.json.format(encode_json(job), indent=2))


def _lock_function() -> Callable[[int], None]:
    """The function that locks a file until it is closed or its process ends. It raises BlockingIOError where another
    process holds the lock.
    """
    try:
        import fcntl  # noqa: PLC0415  # not on Windows
    except ImportError:
        hint = "coding agents, chats and jobs work on Linux and macOS; on Windows, use WSL"
        raise CallerError("this system has no file locks that end with a process (fcntl)", hint=hint) from None

    def lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    return lock


def _send_signal(process: int, number: int) -> bool:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        raise CallerError("the process that runs the job is another user's", path=str(process)) from None
    return True
