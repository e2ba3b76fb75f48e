"""Read a backend's raw reply again: as it was read, and as another dialect would have read it.

What decides between a reply's bytes and its events asks nothing of the world, so it gives the same again from what was
recorded (docs/architecture.md). No model is asked and nothing is changed.

Laws: the events of a raw reply are those that were given when it came, before secrets were masked; a replay of a reply
that is still coming, or was kept in part, is the beginning of the whole one's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from callboard.core import (
    ArgumentsPiece,
    Canister,
    Event,
    Fold,
    ReasoningPiece,
    RefusalPiece,
    ReplyEnded,
    ReplyFailed,
    TextPiece,
)
from callboard.dialects import get_dialect
from callboard.modes import Plan, get_mode
from callboard.servers.gateway.request_log import CutBytes, RecordedReply
from callboard.text.sse import SSEDecoder
from callboard.wires import DecodeContext

_PIECES: Final[Mapping[type[Event], str]] = {
    TextPiece: "text",
    ReasoningPiece: "text",
    RefusalPiece: "text",
    ArgumentsPiece: "json",
}
_DATA_END: Final = "[DONE]"


def read_events(reply: RecordedReply, *, is_whole: bool = True) -> list[Event]:
    """The events of a raw reply. Where more of it is to come (`is_whole` is False), those that are certain by now."""
    return _read(reply, reply.plan, is_whole=is_whole and not reply.body.is_cut)


def read_as_dialect(reply: RecordedReply, dialect: str, *, is_whole: bool = True) -> list[Event]:
    """The events that would have been found if the reply's text had been watched for this dialect.

    Calls in the wire's own field are what they are. Without tools in the request no dialect looks for calls.

    Raises:
        CallerError: There is no such dialect.
    """
    plan = replace(reply.plan, dialect=get_dialect(dialect), watched=get_dialect(dialect))
    if plan.mode.declares == "constraint":
        plan = replace(plan, mode=get_mode("validated"))  # the form of an answer is no dialect
    return _read(reply, plan, is_whole=is_whole and not reply.body.is_cut)


def read_canisters(events: list[Event]) -> list[Canister]:
    """What these events of one reply leave in a conversation."""
    fold = Fold()
    canisters = [canister for event in events for canister in fold.feed(event)]
    return canisters if events and isinstance(events[-1], (ReplyEnded, ReplyFailed)) else [*canisters, *fold.finish()]


def join_pieces(events: Iterable[Event]) -> list[Event]:
    """The events with pieces that follow one another as one, as a person reads them."""
    runs: list[list[Event]] = []
    for event in events:
        if runs and (field := _PIECES.get(type(event))) and _continues(runs[-1][0], event, field):
            runs[-1].append(event)
        else:
            runs.append([event])
    return [_join(run) for run in runs]


def mask_reply(reply: RecordedReply) -> RecordedReply:
    """The reply with secrets of the settings masked in its bytes."""
    text = reply.redactor.text(reply.body.join().decode(errors="surrogateescape"))
    body = CutBytes(reply.body.limit, [text.encode(errors="surrogateescape")], reply.body.size)
    return replace(reply, body=body)


def make_vector(reply: RecordedReply, name: str) -> dict[str, Any]:
    """The reply as a row of `tests/vectors/WIRE/*.json`: what the backend sent, and the events of its wire.

    A reply that did not come as a stream has its `body` in place of `payloads`, and one that was refused its `status`
    as well.
    """
    text = mask_reply(reply).body.join().decode(errors="replace")
    names = reply.prepared.encoded.names
    context = DecodeContext(
        identify=_mint,
        names=names,
        declared=frozenset([tool.name for tool in reply.prepared.request.tools]),
    )
    row: dict[str, Any] = {"name": name, "wire": reply.model.wire.name}
    if names:
        row["names"] = dict(names)
    row["declared"] = sorted(context.declared or ())
    if not reply.is_stream:
        wire = reply.model.wire
        events = (
            wire.decode_response(text.encode(), context)
            if reply.status == 200
            else [wire.decode_error(reply.status, text.encode())]
        )
        status = {} if reply.status == 200 else {"status": reply.status}
        return row | {**status, "body": _parse(text), "events": msgspec.to_builtins(events)}
    frames = SSEDecoder()
    data = [frame.data for frame in [*frames.feed(text.encode()), *frames.finish()] if frame.data]
    decoder = reply.model.wire.stream_decoder(context)
    events = [event for each in data for event in decoder.feed(each)] + decoder.finish()
    return row | {"payloads": [_parse(each) for each in data], "events": msgspec.to_builtins(events)}


def _read(reply: RecordedReply, plan: Plan, *, is_whole: bool) -> list[Event]:
    data = reply.body.join()
    if reply.status != 200:
        return [reply.model.wire.decode_error(reply.status, data)]
    if not reply.is_stream:
        return reply.model.decode(data, reply.prepared, plan) if data.lstrip().startswith(b"{") else []
    stages = reply.model.stages(reply.prepared, plan, None)
    events: list[Event] = stages.feed(data)
    return [*events, *stages.finish()] if is_whole else events


def _continues(first: Event, event: Event, field: str) -> bool:
    """Whether two pieces are of one text or of the arguments of one call."""
    bare = {field: "", "offsets": None}
    return type(first) is type(event) and replace(first, **bare) == replace(event, **bare)


def _join(run: Sequence[Event]) -> Event:
    if len(run) == 1:
        return run[0]
    field = _PIECES[type(run[0])]
    begin, end = getattr(run[0], "offsets", None), getattr(run[-1], "offsets", None)
    offsets = (begin[0], end[1]) if begin and end else None
    return replace(run[0], **{field: "".join([getattr(each, field) for each in run]), "offsets": offsets})


def _mint(index: int, _name: str) -> str:
    """The identifier of a call that came without one, as the tests of wires give it."""
    return f"minted_{index}"


def _parse(text: str) -> Any:
    """The JSON of a payload; a text that is none stays one."""
    if text == _DATA_END:
        return text
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return text
    return value if isinstance(value, Mapping) else text
