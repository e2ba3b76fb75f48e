"""A fork of a job in which one message, call or result differs, or the model: what would have happened then?

The fork has all entries before the changed one. After a changed call, its tool runs with the new arguments, and so do
the other calls of the same reply. If only the prompt or the model differs, the fork can keep the entries up to a round.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from callboard.core import InvocationCanister, ResultCanister, TextualContent, UserCanister
from callboard.errors import CallerError
from callboard.jobs.entries import JobEntry, encode_entry
from callboard.jobs.job import DurableJob
from callboard.jobs.queries import EntryChange, JobReader
from callboard.jobs.store import DurableStore
from callboard.profiles import is_of_host

_OPTIONS: Final = "options"
"""Key of the options of `callboard run --background` in a job's input."""
_SEARCHED: Final = 1000
"""Maximum entries in which the prompt is searched."""


def read_changeable(entry: JobEntry) -> str:
    """Return the text of an entry that can be changed: a message, a result, or the arguments of a call as JSON.

    Raises:
        CallerError: It is another entry.
    """
    match entry.item:
        case UserCanister(text=text) | ResultCanister(text=text):
            return text
        case InvocationCanister(arguments=arguments, raw=raw):
            return raw if arguments is None else msgspec.json.encode(arguments).decode()
        case _:
            raise CallerError("only a message, a call or a result can be changed", path=f"entry {entry.number}")


async def find_prompt(store: JobReader, identifier: str) -> JobEntry:
    """Return the entry of a job's prompt: the last message before its first round. Raises CallerError."""
    entries = await store.read_entries(identifier, 0, _SEARCHED)
    prompts = [each for each in entries if each.round == 0 and isinstance(each.item, UserCanister)]
    if not prompts:
        raise CallerError("the job has no prompt among its entries", path=identifier, hint="retry the job instead")
    return prompts[-1]


async def fork_with_change(
    store: DurableStore, identifier: str, number: int, text: str, *, model: str = "", at_round: int | None = None
) -> DurableJob:
    """Create and queue a fork in which entry `number` has another text, or a call other arguments.

    Args:
        store: The store of the job.
        identifier: The job.
        number: The number of the entry.
        text: The text of the entry, or the arguments of the call as JSON.
        model: The name of another model. The default is the job's model.
        at_round: The last round that the fork keeps after a changed message. The default ends at the changed entry.

    Returns:
        The fork.

    Raises:
        CallerError: There is no such entry or round, it cannot be changed, the arguments are not a JSON object, or the
            model is a program or a file.
    """
    job = await store.get(identifier)
    known = await store.read_entries(job.id, number - 1, 1) if number > 0 else ()
    if not known:
        raise CallerError("no such entry", path=f"entry {number}")
    entry = known[0]
    before, item = read_changeable(entry), entry.item
    changes = _change_model(job, model) if model not in ("", job.model) else {}
    rest = [each for each in await store.read_entries(job.id, number) if each.round == entry.round]
    last = rest[-1].number if rest else number
    changed: Any
    match item:
        case InvocationCanister():
            changed = replace(item, arguments=_read_arguments(text), raw="")
            last = next((each.number - 1 for each in rest if isinstance(each.item, ResultCanister)), last)
        case ResultCanister():
            changed = replace(item, content=(TextualContent(text),), error=None, exit_code=None)
        case _:
            changed = UserCanister(text)
            if at_round is not None:
                rounds = [each for each in await store.rounds(job.id) if each.number <= at_round]
                last = rounds[-1].first + rounds[-1].entries - 1
            if entry.round == 0 and text != before:
                own_input = changes.get("input", job.input)
                prompt = {"input": {**own_input, "prompt": text}} if own_input.get("prompt") == before else {}
                changes |= {"description": text, **prompt}
    line = entry.line if text == before else encode_entry(changed)
    last_round = entry.round if at_round is None else max(at_round, entry.round)
    return await store.fork(job.id, last_round, change=EntryChange(number, line, last), changes=changes)


def _change_model(job: DurableJob, model: str) -> dict[str, Any]:
    """Return the fields of a job with another model. Raises CallerError if the model is a program or a file."""
    if is_of_host(model):
        raise CallerError("a program or a file cannot be chosen for a job that exists", path=model)
    options = job.input.get(_OPTIONS)
    changed = {_OPTIONS: {**options, "model": model}} if isinstance(options, dict) else {"model": model}
    return {"model": model, "input": {**job.input, **changed}}


def _read_arguments(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CallerError(f"the arguments are not a JSON object: {error}", path="arguments") from None
