"""Take back what a job or a chat did."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from callboard.coding.chat.checkpoints import Checkpoints, restored_note
from callboard.coding.git.open_tree import undo_tree
from callboard.coding.jobs.job import END_STATES, Job
from callboard.coding.jobs.log import JobLog, PromptSent
from callboard.coding.jobs.store import JobStore
from callboard.errors import CallerError
from callboard.text.display import escape


async def undo_job(job: Job, jobs: JobStore) -> str:
    """Takes back what a job did; what was done, in words. Raises CallerError if it runs, or if it cannot be taken back."""
    if job.state not in END_STATES:
        raise CallerError(f"the job is {job.state}", path=job.id, hint=f"callboard jobs cancel {job.id}")
    if job.type == "chat":
        return await undo_chat(job, jobs)
    with jobs.running(job.id):
        return await undo_tree(job.tree, jobs.folder(job.id))


async def undo_chat(job: Job, jobs: JobStore) -> str:
    """Makes the files that a chat changed what they were before its first change; what was done, in words.

    Raises CallerError if the chat is under way, or if somebody else has changed one of the files since.
    """
    folder = jobs.folder(job.id)
    with jobs.running(job.id):
        checkpoints = Checkpoints(Path(job.directory), folder, job.output.turns)
        if not checkpoints:
            return f"nothing of {job.id} is to be taken back"
        files = await checkpoints.restore(all_=True)
        jobs.update(job, output=replace(job.output, turns=checkpoints.turns, files=checkpoints.files, diff=""))
        with JobLog(folder) as log:
            log.add(PromptSent(restored_note(files)))
    return f"as before the chat: {', '.join(map(escape, files))}" if files else f"{job.id} left nothing changed"
