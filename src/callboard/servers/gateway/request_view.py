"""What the log of requests shows, as values: a row of the list, and one request with all that was kept of it.

This runs when somebody looks, never while a request is answered. What decides between a reply's bytes and its events
asks nothing of the world, so a raw reply can be read again, also as another dialect would have read it.

Laws: nothing here holds a secret of the settings, the key of the client, or the credentials that a client wrote into
the tools and MCP servers of its request, wherever they come again; every text is cut. The events of a raw reply are
those that were given when it came, before secrets were masked; those of a part are the beginning of the whole one's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from callboard.core import Canister, Event, Fold, ReplyEnded, ReplyFailed, coalesce, encode_line
from callboard.dialects import get_dialect
from callboard.modes import Plan, get_mode
from callboard.servers.gateway.redaction import Redactor, find_credentials, select_declarations
from callboard.servers.gateway.request_log import CutBytes, LoggedRequest, RecordedReply
from callboard.servers.gateway.traffic_values import ReplyView, RequestRow, RequestView
from callboard.text.display import escape
from callboard.text.sse import SSEDecoder
from callboard.text.truncate import truncate
from callboard.wires import DecodeContext

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
    fold = Fold()
    canisters = [canister for event in events for canister in fold.feed(event)]
    return canisters if events and isinstance(events[-1], (ReplyEnded, ReplyFailed)) else [*canisters, *fold.finish()]


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


Mask: TypeAlias = Callable[[str], str]

MAX_TEXT: Final = 128 * 1024
"""Characters of a text on a page."""
MAX_EVENTS: Final = 2000
"""Events of a reply on a page."""
_MAX_NOTE: Final = 500
_UNMASKED: Final = "(the request declares more credentials than can be masked, so this is not shown)"
_TOO_DEEP: Final = "(nested too deep to be shown)"


def view_row(entry: LoggedRequest) -> RequestRow:
    if isinstance(entry.view, RequestRow):
        return entry.view
    is_final = not entry.is_live  # before the row is made: on a thread, the request may end meanwhile
    row = _make_row(entry)
    if is_final and not entry.is_gone:
        entry.view = row
    return row


def view_request(entry: LoggedRequest) -> RequestView:
    """All that was kept of a request, as texts."""
    mask = _masker(entry)
    return RequestView(
        row=view_row(entry),
        body=_format_body(entry.body, mask),
        body_size=entry.body_size,
        replies=tuple([_view_reply(each, entry, mask) for each in entry.replies]),
        answer=_cut(mask(entry.answer.join().decode(errors="replace"))),
        can_repeat=entry.request is not None,
    )


def view_dialect(entry: LoggedRequest, place: int, dialect: str) -> tuple[str, ...]:
    """The events, as lines of JSON, that another dialect would have read from one of the backend's answers.

    Raises:
        CallerError: There is no such dialect.
    """
    if not 0 <= place < len(entry.replies):
        return ()
    reply = entry.replies[place]
    events = read_as_dialect(reply, dialect, is_whole=_is_whole(entry, reply))
    return _format_events(events, _masker(entry))


def _make_row(entry: LoggedRequest) -> RequestRow:
    # Read once each: on a thread, the request may end or go out of the log meanwhile.
    record, replies = entry.record, list(entry.replies)
    reply = replies[-1] if replies else None
    notes = entry.notes
    dropped = (*record.dropped, *record.lost_fields)
    end, why = _describe_end(entry)
    mask = _masker(entry)
    return RequestRow(
        identifier=entry.identifier,
        number=entry.number,
        at=entry.at,
        front=entry.front,
        client=entry.client,
        key=entry.key,
        model=entry.model,
        backend=record.backend_name,
        mode="" if reply is None else reply.plan.mode.name,
        dialect="" if reply is None or reply.plan.watched is None else reply.plan.watched.name,
        wire="" if reply is None else reply.model.wire.name,
        end=end,
        why=truncate(mask(why), _MAX_NOTE),
        status=entry.status,
        first_seconds=entry.first_at,
        seconds=monotonic() - entry.began if entry.seconds is None else entry.seconds,
        input=record.usage.input,
        output=record.usage.output,
        dropped=tuple([truncate(mask(each), _MAX_NOTE) for each in dropped[:50]]),
        notes=tuple([f"{note.kind}: {truncate(mask(note.text), _MAX_NOTE)}" for note in notes[:50] if not note.unsent]),
        repaired=sum([note.kind in ("repaired", "coerced") for note in notes]),
        recovered=entry.recovered,
        again_of=entry.again_of,
        variant=entry.variant,
    )


def _describe_end(entry: LoggedRequest) -> tuple[str, str]:
    end = entry.record.end
    if entry.is_live:
        return "open", ""
    if isinstance(end, ReplyFailed):
        return "failed", f"{end.code}: {end.message}"
    if end is not None:
        return end.reason, ""
    return ("refused", entry.failure) if entry.failure or entry.status >= 400 else ("left", "")


def _view_reply(reply: RecordedReply, entry: LoggedRequest, mask: Mask) -> ReplyView:
    return ReplyView(
        backend=reply.backend,
        model=reply.model.resolution.model,
        mode=reply.plan.mode.name,
        dialect="" if reply.plan.watched is None else reply.plan.watched.name,
        wire=reply.model.wire.name,
        status=reply.status,
        content_type=reply.content_type[:100],
        sent=_format_json(reply.prepared.encoded.body, mask),
        raw=_cut(mask(reply.body.join().decode(errors="replace"))),
        size=reply.body.size,
        is_cut=reply.body.is_cut,
        events=_format_events(read_events(reply, is_whole=_is_whole(entry, reply)), mask),
    )


def _is_whole(entry: LoggedRequest, reply: RecordedReply) -> bool:
    return not entry.is_live or reply not in entry.replies[-1:]


def _format_events(events: Sequence[Event], mask: Mask) -> tuple[str, ...]:
    events = coalesce(events)
    lines = [_cut(mask(encode_line(event).decode())) for event in events[:MAX_EVENTS]]
    more = len(events) - MAX_EVENTS
    return tuple([*lines, f"... and {more} more"] if more > 0 else lines)


def _masker(entry: LoggedRequest) -> Mask:
    """Take out the secrets of the settings and the client's credentials, and while it is answered the client's key."""
    credentials = find_credentials(
        entry.declarations or select_declarations({} if entry.request else decode_body(entry.body))
    )
    if credentials is None:
        return lambda text: _UNMASKED if text else ""
    masks = [each.redactor.text for each in entry.replies[:1]]
    if credentials:
        masks.append(Redactor(credentials).text)
    masks += [entry.record.redactor.text, Redactor([entry.record.token]).text]

    def mask(text: str) -> str:
        for each in masks:
            text = each(text)
        return text

    return mask


def decode_body(data: bytes) -> dict[str, Any]:
    """The client's body as far as it can be read; empty where it was kept in part."""
    with suppress(msgspec.MsgspecError, RecursionError, UnicodeError):
        body = msgspec.json.decode(data)
        if isinstance(body, dict):
            return body
    return {}


def _format_body(data: bytes, mask: Mask) -> str:
    """A request's body, without credentials of its tools. One that was kept in part is not shown: they may be in it."""
    try:
        body = msgspec.json.decode(data)
    except RecursionError:
        return _TOO_DEEP
    except (msgspec.MsgspecError, UnicodeError):
        return f"({len(data)} bytes that are no whole JSON)" if data else ""
    return _format_json(body, mask)


def _format_json(body: Any, mask: Mask) -> str:
    try:
        return _cut(mask(msgspec.json.format(msgspec.json.encode(body)).decode()))
    except RecursionError:
        return _TOO_DEEP


def _cut(text: str) -> str:
    """The beginning of a text, with what is not seen escaped."""
    more = f"\n... and {len(text) - MAX_TEXT:,} characters more" if len(text) > MAX_TEXT else ""
    return escape(text[:MAX_TEXT], keep="\n\t") + more
