"""A fork of a job in which one message, call or result differs: what would have happened then?

The fork has all entries before the changed one. After a changed call, its tool runs with the new arguments, and so do
the other calls of the same reply.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from callboard.core import InvocationCanister, ResultCanister, TextualContent, UserCanister
from callboard.errors import CallerError
from callboard.jobs.entries import JobEntry, encode_entry
from callboard.jobs.job import DurableJob
from callboard.jobs.queries import EntryChange
from callboard.jobs.store import DurableStore


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


async def fork_with_change(store: DurableStore, identifier: str, number: int, text: str) -> DurableJob:
    """Create and queue a fork in which entry `number` has another text, or a call other arguments.

    Raises:
        CallerError: There is no such entry, it cannot be changed, or the arguments are not a JSON object.
    """
    job = await store.get(identifier)
    known = await store.read_entries(job.id, number - 1, 1) if number > 0 else ()
    if not known:
        raise CallerError("no such entry", path=f"entry {number}")
    entry = known[0]
    before, item = read_changeable(entry), entry.item
    fields: dict[str, Any] = {}
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
            if entry.round == 0:
                prompt = {"input": {**job.input, "prompt": text}} if job.input.get("prompt") == before else {}
                fields = {"description": text, **prompt}
    return await store.fork(job.id, entry.round, change=EntryChange(number, encode_entry(changed), last, fields))


def _read_arguments(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CallerError(f"the arguments are not a JSON object: {error}", path="arguments") from None
