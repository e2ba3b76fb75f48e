"""A conversation that a model sums up.

Owns how a summary is asked for, and what stands for the conversation afterwards: what users said, and the summary.
Knows nothing of sockets and stores.
Law: a model that says nothing is a failure, never an empty summary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from msgspec.structs import replace

from callboard.core import Event, ReplyEnded, ReplyFailed, TextPiece
from callboard.servers.gateway.dispatch import ReplyRecord
from callboard.servers.gateway.exchange import Batches
from callboard.servers.gateway.frontends import Frontend
from callboard.wires import Wire
from callboard.wires.responses.compaction import TRIGGER, CompactionEncoder, encode_compaction
from callboard.wires.responses.stored_items import listed

PROMPT = """\
Sum up the conversation until here. Your summary will stand in its place: whoever goes on has it, what the user \
said, and nothing else. Write down:
- what is wanted, and which instructions hold from now on;
- what was done and found out, with the names, paths, commands, figures and identifiers that are still needed;
- what was decided, and why;
- what is left to do, and what the next step is.
Call no tool and ask nothing. Answer with the summary alone."""

_ASIDE = frozenset({"previous_response_id", "text", "tool_choice"})
"""Fields that are about a reply, not about a summary."""


class _Summing(Frontend, frozen=True, kw_only=True):
    """A front whose answers are compactions."""

    codec: Wire

    @property
    def wire(self) -> Wire:
        return self.codec


def is_asked(items: Sequence[Any]) -> bool:
    """Whether the last item asks for a compaction, as Codex does it."""
    return bool(items) and isinstance(items[-1], Mapping) and items[-1].get("type") == TRIGGER


def asked(body: Mapping[str, Any], items: Sequence[Any]) -> dict[str, Any]:
    """The body that asks a model to sum up the items. It begins as the conversation does, tools and all."""
    prompt = {"type": "message", "role": "user", "content": PROMPT}
    kept = {name: value for name, value in body.items() if name not in _ASIDE}
    return kept | {"input": [*items, prompt], "tool_choice": "none"}


def in_stream(front: Frontend) -> Frontend:
    """The Responses front, whose reply is then one compaction item."""
    return _summing(front, replace(front.wire, stream_encoder=CompactionEncoder, encode_response=encode_compaction))


def by_itself(front: Frontend, items: Iterable[Any]) -> Frontend:
    """The Responses front, whose answer is then a compaction of the items."""
    return _summing(front, replace(front.wire, encode_response=partial(_resource, by_users(items))))


def by_users(items: Iterable[Any]) -> list[Any]:
    """What users said."""
    return [item for item in items if isinstance(item, Mapping) and item.get("role") == "user"]


async def summed_up(record: ReplyRecord, batches: Batches) -> Batches:
    """The batches; a reply that says nothing is a failure."""
    said = False
    async with aclosing(batches):
        async for events in batches:
            said = said or any(isinstance(event, TextPiece) and event.text.strip() for event in events)
            if events[-1] == ReplyEnded("retry"):
                said = False
            elif isinstance(events[-1], ReplyEnded) and not said:
                events[-1] = ReplyFailed("provider", "no_summary", "the model did not sum up the conversation")
                record.set_end(events)
            yield events


def _summing(front: Frontend, codec: Wire) -> Frontend:
    fields = {name: getattr(front, name) for name in Frontend.__struct_fields__}
    return _Summing(**fields, codec=codec)


def _resource(users: Sequence[Any], events: Iterable[Event], **said: Any) -> dict[str, Any]:
    """The answer of POST /v1/responses/compact."""
    response = encode_compaction(events, **said)
    identifier = response["id"]
    return {
        "id": identifier,
        "object": "response.compaction",
        "created_at": response["created_at"],
        "output": [*listed(users, identifier.removeprefix("resp_")), *response["output"]],
        "usage": response["usage"],
    }
