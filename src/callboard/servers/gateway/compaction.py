"""Conversations that a model sums up.

A summary is asked for as a reply of the Responses front; afterwards the conversation is what users said, and the
summary.

Law: a model that says nothing is a failure, never an empty summary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from msgspec.structs import replace

from callboard.core import Event, ReplyEnded, ReplyFailed, TextPiece
from callboard.servers.gateway.exchange import Batches, Exchange
from callboard.servers.gateway.frontends import Frontend
from callboard.wires.responses.compaction import TRIGGER, CompactionEncoder, encode_compaction
from callboard.wires.responses.stored_items import complete_items

PROMPT = """\
Sum up the conversation until here. Your summary will stand in its place: whoever goes on has it, what the user \
said, and nothing else. Write down:
- what is wanted, and which instructions hold from now on;
- what was done and found out, with the names, paths, commands, figures and identifiers that are still needed;
- what was decided, and why;
- what is left to do, and what the next step is.
Call no tool and ask nothing. Answer with the summary alone."""

_REPLY_FIELDS = frozenset({"previous_response_id", "text", "tool_choice"})
"""Fields that are about a reply, not about a summary."""


def is_requested(items: Sequence[Any]) -> bool:
    """Whether the last item asks for a compaction, as Codex does it."""
    return bool(items) and isinstance(items[-1], Mapping) and items[-1].get("type") == TRIGGER


def summary_request(body: Mapping[str, Any], items: Sequence[Any]) -> dict[str, Any]:
    """The body that asks a model to sum up the items. It begins as the conversation does, with all tools, so that a
    prompt cache holds.
    """
    prompt = {"type": "message", "role": "user", "content": PROMPT}
    rest = {name: value for name, value in body.items() if name not in _REPLY_FIELDS}
    return rest | {"input": [*items, prompt], "tool_choice": "none"}


def with_compaction_item(front: Frontend) -> Frontend:
    """The Responses front, whose reply is then one compaction item."""
    codec = replace(front.wire, stream_encoder=CompactionEncoder, encode_response=encode_compaction)
    return replace(front, codec=codec)


def with_compaction_body(front: Frontend, items: Iterable[Any]) -> Frontend:
    """The Responses front, whose answer is then a compaction of the items."""
    return replace(front, codec=replace(front.wire, encode_response=partial(_encode_body, user_messages(items))))


def user_messages(items: Iterable[Any]) -> list[Any]:
    return [item for item in items if isinstance(item, Mapping) and item.get("role") == "user"]


async def require_summary(exchange: Exchange, batches: Batches) -> Batches:
    """The batches; a reply without text becomes a failure."""
    has_text = False
    async with aclosing(batches):
        async for events in batches:
            has_text = has_text or any(isinstance(event, TextPiece) and event.text.strip() for event in events)
            if events[-1] == ReplyEnded("retry"):
                has_text = False
            elif isinstance(events[-1], ReplyEnded) and not has_text:
                events[-1] = ReplyFailed("provider", "no_summary", "the model did not sum up the conversation")
                exchange.record.set_end(events)
            yield events


def _encode_body(users: Sequence[Any], events: Iterable[Event], **options: Any) -> dict[str, Any]:
    """The answer of POST /v1/responses/compact."""
    response = encode_compaction(events, **options)
    identifier = response["id"]
    return {
        "id": identifier,
        "object": "response.compaction",
        "created_at": response["created_at"],
        "output": [*complete_items(users, identifier.removeprefix("resp_")), *response["output"]],
        "usage": response["usage"],
    }
