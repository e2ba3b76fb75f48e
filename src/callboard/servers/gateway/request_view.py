"""What the log of requests shows, as values: a row of the list, and one request with all that was kept of it.

This runs when somebody looks, never while a request is answered. A row of a request that has ended is made once.

Laws: nothing here holds a secret of the settings, the key of the client, or the credentials that a client wrote into
the tools and MCP servers of its request, wherever they come again; every text is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final, TypeAlias

import msgspec

from callboard.core import Event, ReplyFailed, encode_line
from callboard.servers.gateway.redaction import (
    CREDENTIAL_FIELDS,
    MASK,
    Redactor,
    find_credentials,
    select_declarations,
)
from callboard.servers.gateway.replay import join_pieces, read_as_dialect, read_events
from callboard.servers.gateway.request_log import LoggedRequest, RecordedReply
from callboard.servers.gateway.traffic_values import ReplyView, RequestRow, RequestView
from callboard.text.display import escape
from callboard.text.truncate import truncate

Mask: TypeAlias = Callable[[str], str]

MAX_TEXT: Final = 128 * 1024
"""Characters of a text on a page."""
MAX_EVENTS: Final = 2000
"""Events of a reply on a page."""
_MAX_NOTE: Final = 500
_UNMASKED: Final = "(the request declares more credentials than can be masked, so this is not shown)"
_TOO_DEEP: Final = "(nested too deep to be shown)"


def view_row(entry: LoggedRequest) -> RequestRow:
    """The row of a request."""
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
    usage = entry.usage if record is None else record.usage
    dropped = (*entry.dropped, *entry.lost_fields) if record is None else (*record.dropped, *record.lost_fields)
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
        backend=entry.backend if record is None else record.backend_name,
        mode="" if reply is None else reply.plan.mode.name,
        dialect="" if reply is None or reply.plan.watched is None else reply.plan.watched.name,
        wire="" if reply is None else reply.model.wire.name,
        end=end,
        why=truncate(mask(why), _MAX_NOTE),
        status=entry.status,
        first_seconds=entry.first_at,
        seconds=monotonic() - entry.began if entry.seconds is None else entry.seconds,
        input=usage.input,
        output=usage.output,
        dropped=tuple([truncate(mask(each), _MAX_NOTE) for each in dropped[:50]]),
        notes=tuple([f"{note.kind}: {truncate(mask(note.text), _MAX_NOTE)}" for note in notes[:50] if not note.unsent]),
        repaired=sum([note.kind in ("repaired", "coerced") for note in notes]),
        recovered=entry.recovered,
        again_of=entry.again_of,
        variant=entry.variant,
    )


def _describe_end(entry: LoggedRequest) -> tuple[str, str]:
    end = entry.end
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
    events = join_pieces(events)
    lines = [_cut(mask(encode_line(event).decode())) for event in events[:MAX_EVENTS]]
    more = len(events) - MAX_EVENTS
    return tuple([*lines, f"... and {more} more"] if more > 0 else lines)


def _masker(entry: LoggedRequest) -> Mask:
    """Take out the secrets of the settings and the client's credentials, and while it is answered the client's key."""
    credentials = find_credentials(entry.declarations or select_declarations(_decode_body(entry)))
    if credentials is None:
        return lambda text: _UNMASKED if text else ""
    masks = [each.redactor.text for each in entry.replies[:1]]
    if credentials:
        masks.append(Redactor(credentials).text)
    if (record := entry.record) is not None:
        masks += [record.redactor.text, Redactor([record.token]).text]

    def mask(text: str) -> str:
        for each in masks:
            text = each(text)
        return text

    return mask


def _decode_body(entry: LoggedRequest) -> Mapping[str, Any]:
    """The body of a request that was refused, as far as it can be read; that of another one is known already."""
    if entry.request is None:
        with suppress(msgspec.MsgspecError, RecursionError, UnicodeError):
            body = msgspec.json.decode(entry.body)
            return body if isinstance(body, dict) else {}
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
        return _cut(mask(msgspec.json.format(msgspec.json.encode(_without_credentials(body))).decode()))
    except RecursionError:
        return _TOO_DEEP


def _without_credentials(body: Any) -> Any:
    if not isinstance(body, Mapping) or not isinstance(body.get("tools"), list):
        return body
    tools = [
        {name: MASK if name.lower() in CREDENTIAL_FIELDS else value for name, value in tool.items()}
        if isinstance(tool, Mapping)
        else tool
        for tool in body["tools"]
    ]
    return {**body, "tools": tools}


def _cut(text: str) -> str:
    """The beginning of a text, with what is not seen escaped."""
    more = f"\n... and {len(text) - MAX_TEXT:,} characters more" if len(text) > MAX_TEXT else ""
    return escape(text[:MAX_TEXT], keep="\n\t") + more
