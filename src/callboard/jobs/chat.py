"""The kind "chat": a job is a whole chat, which runs in the process of its user.

Law: the conversation is recorded, however the chat ends. A chat without a turn leaves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from callboard.agent.resume import find_waiting_calls
from callboard.coding.agents.job_request import JobRequest
from callboard.coding.cancellation import finish_despite_cancellation
from callboard.coding.chat.approver import ChatApprover
from callboard.coding.chat.session import ChatSession, open_session
from callboard.coding.git.snapshots import Checkpoints, restored_note
from callboard.coding.job import Step
from callboard.coding.job_folders import JobFolders
from callboard.coding.workspace.changed_files import ChangedFile
from callboard.configuration import DescribedServer
from callboard.core import Canister, Model, UserCanister, error_result
from callboard.errors import CallboardError, CallerError
from callboard.jobs.coding_record import CodingRecord, encode_output, read_job, write_output
from callboard.jobs.direct import make_queue, serve_direct
from callboard.jobs.handle import JobHandle
from callboard.jobs.job import CHAT, Completed, DurableJob, Failed, JobKind, Outcome
from callboard.jobs.segment import JobSegment
from callboard.jobs.store import DurableStore
from callboard.programs import exclude_repository
from callboard.text.display import escape

_CUT: Final = "the run was cancelled"


class ChatKind(JobKind):
    """The kind of one chat. `record` is the chat's present record.

    A process that was suspended loses its claim. It then claims the chat again.
    """

    name = CHAT

    def __init__(self, folder: Path) -> None:
        self.record: CodingRecord
        self.begun: asyncio.Future[Sequence[Canister]] = asyncio.get_running_loop().create_future()
        """The conversation so far. Set at the start of the first segment."""
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        """Outcome of the chat."""
        self.is_closed = asyncio.Event()
        """Set when the owner has left the chat."""
        self._folder = folder
        self._owner = asyncio.current_task()

    async def run(self, segment: JobSegment) -> Outcome:
        """Wait until the chat has ended. If the job is cancelled, cancel the owner's task."""
        self.record = CodingRecord(segment, self._folder, (), is_direct=True)
        if not self.begun.done():
            self.begun.set_result(segment.conversation)
        try:
            return await asyncio.shield(self.outcome)
        except asyncio.CancelledError:
            if segment.cancel_requested:
                if self._owner is not None and not self.is_closed.is_set():
                    self._owner.cancel()
                await finish_despite_cancellation(self._end_cancelled(segment))
            raise

    async def _end_cancelled(self, segment: JobSegment) -> None:
        await self.is_closed.wait()
        await segment.end_cancelled(encode_output(self.record.job.output))


@asynccontextmanager
async def open_chat(
    request: JobRequest,
    model: Model,
    store: DurableStore,
    show: Callable[[Step], None],
    approver: ChatApprover,
    *,
    resume: str = "",
    folders: JobFolders | None = None,
    servers: Iterable[DescribedServer] = (),
    on_change: Callable[[ChangedFile], None] | None = None,
) -> AsyncIterator[ChatSession]:
    """Open a chat. Raises CallerError, DatabaseUnavailable.

    On exit the job is completed. After a CallboardError or OSError it has failed; after a cancellation it is cancelled.
    A job without a turn is removed.

    Args:
        request: The directory, settings and options of the chat.
        model: The model that answers.
        store: The store that records the chat.
        show: Receives each step.
        approver: Asks the user.
        resume: The id of an earlier chat to continue.
        folders: The folders of jobs. The default is the user's folders.
        servers: As of `open_session`.
        on_change: As of `open_session`.
    """
    exclude_repository(request.directory)
    folders = folders or JobFolders()
    if resume:
        await store.end_abandoned(resume)
        job = await store.resume(resume, is_direct=True)
    else:
        job = await store.create(
            CHAT, directory=str(request.directory), model=model.name, input=request.input, queue=make_queue()
        )
    try:
        kind = ChatKind(folders.make(job.id))
        with folders.running(job.id):
            async with serve_direct(store, job, kind) as handle:
                history = await _wait_for_begin(kind, handle)
                cut = [error_result(each.identifier, "cancelled", _CUT) for each in find_waiting_calls(history)]
                kind.record.update(model=model.name)
                await kind.record.save(cut)
                try:
                    async with open_session(
                        request,
                        model,
                        lambda: kind.record,
                        show,
                        approver,
                        history=[*history, *cut],
                        servers=servers,
                        on_change=on_change,
                    ) as chat:
                        yield chat
                except asyncio.CancelledError:
                    kind.is_closed.set()
                    await finish_despite_cancellation(handle.cancel_now())
                    raise
                except (CallboardError, OSError) as error:
                    kind.outcome.set_result(Failed("", str(error), encode_output(kind.record.job.output)))
                    await handle.result()
                    raise
                kind.outcome.set_result(Completed(encode_output(kind.record.job.output)))
                await handle.result()
    finally:
        stored = await store.get(job.id)
        if stored.state == "pending":  # it did not start, and no other process serves its queue
            stored = await store.request_cancel(job.id)
        if stored.has_ended and not stored.description:
            await store.remove(job.id)
            folders.remove(job.id)


async def _wait_for_begin(kind: ChatKind, handle: JobHandle) -> Sequence[Canister]:
    """Return the conversation so far. Raises CallerError if the job ends before its first segment starts."""
    ended = asyncio.create_task(handle.result())
    try:
        waiting: set[asyncio.Future[Any]] = {kind.begun, ended}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not kind.begun.done():
            result = ended.result()
            raise CallerError(result.why or result.state, path=handle.id)
    finally:
        ended.cancel()
    return kind.begun.result()


async def undo_chat(store: DurableStore, job: DurableJob, folders: JobFolders) -> str:
    """Restore the files that a chat changed. Return a sentence about what was done.

    Raises CallerError if the chat has not ended, or if one of the files was changed after the chat.
    """
    if not job.has_ended:
        raise CallerError(f"the job is {job.state}", path=job.id, hint=f"callboard jobs cancel {job.id}")
    folder = folders.folder(job.id)
    output = read_job(job, folder, is_new=False).output
    with folders.running(job.id):
        checkpoints = Checkpoints(Path(job.directory), folder, output.turns)
        if not checkpoints:
            return f"nothing of {job.id} is to be taken back"
        files = await checkpoints.restore(all_=True)
        output = replace(output, turns=checkpoints.turns, files=checkpoints.files, diff="")
        write_output(folder, output)
        await store.amend(job.id, [UserCanister(restored_note(files))], encode_output(output))
    return f"as before the chat: {', '.join(map(escape, files))}" if files else f"{job.id} left nothing changed"
