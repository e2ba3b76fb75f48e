"""Values that the log of requests shows: a row of the list, and everything stored of one request.

This runs when somebody looks, never while a request is answered. To read a reply's events from its bytes needs no
network, so a raw reply can be read again, also in another dialect.

Laws: no value contains a secret of the settings, the client's key, or credentials from the tools and MCP servers of the
request. Every text is cut. The events of a raw reply equal the original events before secrets were masked. The
events of a partial reply are the beginning of the whole reply's events.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from callboard import core
from callboard.dialects import find_dialects, get_dialect
from callboard.modes import Plan, get_mode
from callboard.servers.gateway.redaction import Redactor, find_credentials, select_declarations
from callboard.servers.gateway.request_log import CutBytes, LoggedRequest, RecordedReply
from callboard.servers.gateway.traffic_values import ReplyReading, ReplyView, RequestRow, RequestView
from callboard.text.display import display, escape
from callboard.text.sse import SSEDecoder
from callboard.text.surrogates import encode_json
from callboard.text.truncate import truncate
from callboard.wires import DecodeContext

_DATA_END: Final = "[DONE]"


def read_events(reply: RecordedReply, *, is_whole: bool = True) -> list[core.Event]:
    """Return the events of a raw reply. If `is_whole` is False, more may come, and only certain events are returned."""
    return _read(reply, reply.plan, is_whole=is_whole and not reply.body.is_cut)


def read_as_dialect(reply: RecordedReply, dialect: str, *, is_whole: bool = True) -> list[core.Event]:
    """Return the events that would have been found if the reply's text had been searched for this dialect.

    Calls in the wire's own field stay unchanged. If the request has no tools, no dialect looks for calls.

    Raises:
        CallerError: There is no such dialect.
    """
    plan = replace(reply.plan, dialect=get_dialect(dialect), watched=get_dialect(dialect))
    if plan.mode.declares == "constraint":
        plan = replace(plan, mode=get_mode("validated"))  # a constrained answer is not in a dialect
    return _read(reply, plan, is_whole=is_whole and not reply.body.is_cut)


def read_canisters(events: list[core.Event]) -> list[core.Canister]:
    fold = core.Fold()
    canisters = [canister for event in events for canister in fold.feed(event)]
    return (
        canisters
        if events and isinstance(events[-1], (core.ReplyEnded, core.ReplyFailed))
        else [*canisters, *fold.finish()]
    )


def mask_reply(reply: RecordedReply) -> RecordedReply:
    """Return the reply with secrets of the settings masked in its bytes."""
    text = reply.redactor.text(reply.body.join().decode(errors="surrogateescape"))
    body = CutBytes(reply.body.limit, [text.encode(errors="surrogateescape")], reply.body.size)
    return replace(reply, body=body)


def make_vector(reply: RecordedReply, name: str) -> dict[str, Any]:
    """Return the reply as a row of `tests/vectors/WIRE/*.json`: the backend's bytes, and the events of its wire.

    A reply that was not a stream has a `body` instead of `payloads`, and a refused request also has the `status`.
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


def _read(reply: RecordedReply, plan: Plan, *, is_whole: bool) -> list[core.Event]:
    data = reply.body.join()
    if reply.status != 200:
        return [reply.model.wire.decode_error(reply.status, data)]
    if not reply.is_stream:
        return reply.model.decode(data, reply.prepared, plan) if data.lstrip().startswith(b"{") else []
    stages = reply.model.stages(reply.prepared, plan, None)
    events: list[core.Event] = stages.feed(data)
    return [*events, *stages.finish()] if is_whole else events


def _mint(index: int, _name: str) -> str:
    """Return the identifier for a call that came without one, as in the tests of wires."""
    return f"minted_{index}"


def _parse(text: str) -> Any:
    """Return the JSON object of a payload, or the text if it is not one."""
    if text == _DATA_END:
        return text
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return text
    return value if isinstance(value, Mapping) else text


Mask: TypeAlias = Callable[[str], str]

MAX_TEXT: Final = 128 * 1024
"""Maximum characters of a text on a page."""
MAX_ENTRIES: Final = 200
"""Maximum canisters of a reply on a page."""
MAX_EVENTS: Final = 2000
"""Maximum events of a reply on a page."""
_MAX_NOTE: Final = 500
_MAX_TOOL: Final = 80
_MAX_QUESTION: Final = 100
_MAX_READ: Final = 20_000
"""Maximum characters of a message in which the question is searched."""
_TAG: Final = re.compile(r"<([a-z_-]+)>")
_UNMASKED: Final = "(not shown: the request declares more credentials than can be masked)"
_TOO_DEEP: Final = "(not shown: nested too deep)"


def view_row(entry: LoggedRequest) -> RequestRow:
    if isinstance(entry.view, RequestRow):
        return entry.view
    is_final = not entry.is_live  # read first: on a thread, the request may end while the row is made
    row = _make_row(entry)
    if is_final and not entry.is_gone:
        entry.view = row
    return row


def view_request(entry: LoggedRequest) -> RequestView:
    """Return all stored parts of a request, as texts."""
    mask = _masker(entry)
    return RequestView(
        row=view_row(entry),
        body=_format_body(entry.body, mask),
        body_size=entry.body_size,
        replies=tuple([_view_reply(each, entry, mask) for each in entry.replies]),
        answer=_cut(mask(entry.answer.join().decode(errors="replace"))),
        can_repeat=entry.request is not None,
    )


def view_dialect(entry: LoggedRequest, place: int, dialect: str) -> ReplyReading:
    """Return what another dialect would have read from one of the backend's answers.

    Raises:
        CallerError: There is no such dialect.
    """
    if not 0 <= place < len(entry.replies):
        return ReplyReading()
    reply = entry.replies[place]
    events = read_as_dialect(reply, dialect, is_whole=_is_whole(entry, reply))
    return _format_reading(events, _masker(entry))


def view_dialects(entry: LoggedRequest, place: int) -> tuple[str, ...]:
    """Return the dialects that find a call in the beginning of one of the backend's answers. Takes 10 to 50 ms."""
    if not 0 <= place < len(entry.replies):
        return ()
    reply = entry.replies[place]
    events = _read(reply, replace(reply.plan, watched=None), is_whole=_is_whole(entry, reply))
    text = "".join([each.text for each in events if isinstance(each, core.TextPiece)])
    return find_dialects(text[:_MAX_READ], reply.prepared.request.tools)


def _make_row(entry: LoggedRequest) -> RequestRow:
    # Read each field once: on a thread, the request may end or leave the log meanwhile.
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
        client=display(entry.client),
        key=entry.key,
        question=_find_question(entry, mask),
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
        session="" if entry.session is None else entry.session.identifier,
        tools=tuple([display(name, _MAX_TOOL) for name in entry.tools]),
        failed_calls=entry.failed_calls,
        token_seconds=entry.token_seconds,
        cost=record.costs.total,
        again_of=entry.again_of,
        variant=entry.variant,
    )


def _find_question(entry: LoggedRequest, mask: Mask) -> str:
    """Return the first words of the last message of the user."""
    canisters = entry.request.canisters if entry.request is not None else ()
    text = next((each.text for each in reversed(canisters) if isinstance(each, core.UserCanister) and each.text), "")
    text = text[:_MAX_READ].lstrip()
    # Clients put their own reminders in tags before the user's words.
    while (tag := _TAG.match(text)) is not None and (end := text.find(f"</{tag[1]}>")) >= 0:
        text = text[end + len(tag[0]) + 1 :].lstrip()
    return display(mask(text[: 2 * _MAX_QUESTION]), _MAX_QUESTION)


def _describe_end(entry: LoggedRequest) -> tuple[str, str]:
    end = entry.record.end
    if entry.is_live:
        return "open", ""
    if isinstance(end, core.ReplyFailed):
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
        reading=_format_reading(read_events(reply, is_whole=_is_whole(entry, reply)), mask),
    )


def _is_whole(entry: LoggedRequest, reply: RecordedReply) -> bool:
    return not entry.is_live or reply not in entry.replies[-1:]


def _format_events(events: Sequence[core.Event], mask: Mask) -> tuple[str, ...]:
    events = core.coalesce(events)
    lines = [_cut(mask(core.encode_line(event).decode())) for event in events[:MAX_EVENTS]]
    more = len(events) - MAX_EVENTS
    return tuple([*lines, f"... and {more} more"] if more > 0 else lines)


def _format_reading(events: list[core.Event], mask: Mask) -> ReplyReading:
    # Without the time of this reading, so that the same reply has the same view.
    canisters = [replace(each, timestamp=None) for each in read_canisters(events)[:MAX_ENTRIES]]
    lines = [mask(encode_json(each).decode()) for each in canisters]
    hidden = encode_json(core.AssistantCanister(_UNMASKED)).decode()
    return ReplyReading(_format_events(events, mask), tuple([hidden if line == _UNMASKED else line for line in lines]))


def _masker(entry: LoggedRequest) -> Mask:
    """Return a mask for the settings' secrets, the client's credentials and, in an open request, the client's key."""
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
    """Return the client's body, or an empty one if it cannot be read, for instance because it was cut."""
    with suppress(msgspec.MsgspecError, RecursionError, UnicodeError):
        body = msgspec.json.decode(data)
        if isinstance(body, dict):
            return body
    return {}


def _format_body(data: bytes, mask: Mask) -> str:
    """Format a request's body without credentials of its tools. A cut body is not shown: it may contain credentials."""
    try:
        body = msgspec.json.decode(data)
    except RecursionError:
        return _TOO_DEEP
    except (msgspec.MsgspecError, UnicodeError):
        return f"({len(data)} bytes that are not complete JSON)" if data else ""
    return _format_json(body, mask)


def _format_json(body: Any, mask: Mask) -> str:
    try:
        return _cut(mask(msgspec.json.format(msgspec.json.encode(body)).decode()))
    except RecursionError:
        return _TOO_DEEP


def _cut(text: str) -> str:
    """Return the beginning of a text, with invisible characters escaped."""
    more = f"\n... and {len(text) - MAX_TEXT:,} characters more" if len(text) > MAX_TEXT else ""
    return escape(text[:MAX_TEXT], keep="\n\t") + more
