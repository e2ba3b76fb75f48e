"""A reply from whichever backend gives one.

Owns the order in which backends are asked, what counts against one, and what is learned from a refusal. Knows no
front and no HTTP.
Law: another backend is asked only while nothing of a reply was given; one terminal event, last.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from time import monotonic
from typing import Any

from msgspec.structs import replace

from callboard.core import (
    AssistantCanister,
    Canister,
    Event,
    Note,
    ReasoningContent,
    ReplyEnded,
    ReplyFailed,
    ReplyStarted,
    Request,
    ResultCanister,
    Usage,
    unsent_note,
)
from callboard.errors import CallboardError
from callboard.providers.http_model import HttpModel
from callboard.providers.lessons import MOST
from callboard.servers.gateway.attribution import strip_attribution
from callboard.servers.gateway.backend import WITHOUT_TOOLS, Backend, BatchModel
from callboard.servers.gateway.exchange import ReplyRecord
from callboard.servers.gateway.redaction import Redactor
from callboard.servers.gateway.remembered_reasoning import ReasoningRecorder
from callboard.servers.gateway.tool_call_log import tool_call_logger
from callboard.wires.field_mapping import crossed, signed_by

log = logging.getLogger("callboard.gateway")

_SHOWN = 100
"""Characters of a field's name in the log."""
Candidates = Sequence[tuple[Backend, str]]

_BEFORE = (ReplyStarted, Usage, Note)
"""What may come before another backend is asked."""
_THE_CLIENTS = frozenset({400, 413, 422})
"""Statuses that another backend would not cure."""
_DOWN = frozenset({502, 503, 504, *range(520, 528), 529, 530})
"""Statuses of a backend that is not there, or not able to answer, and Cloudflare's of the same."""
_BROKEN = frozenset({"backend_unavailable", "timeout", "cut", "malformed"})
"""Codes of a connection that gave no reply. Any other failure is an answer, to what was asked perhaps."""
_OF_TOOLS = re.compile(r"\b(?:tool|function)s?\b|\btool_choice\b", re.IGNORECASE)
_NOT_TAKEN = re.compile(
    r"\b(?:not|n't)\s+(?:currently\s+)?(?:support|enabl|allow|permit|available|implement)|\bunsupported\b|\brequires? --|--jinja"
    r"|\bno endpoints found\b|\b(?:unknown|unexpected|unrecogni[sz]ed)\s+(?:request\s+)?(?:argument|field|key|parameter|property)",
    re.IGNORECASE,
)
_OF_ROLES = re.compile(r"\broles? must alternate", re.IGNORECASE)
"""What a template says that has no place for results, when all else was tried."""
_WITHIN_TOOLS = re.compile(r"tools['\"]?\s*[\[.,]\s*\d")
"""What backends say of tools that they do not take: both of these, and not of a place within one tool.

Backends also repeat what a client sent, so these words are only a reason to ask once without tools. Something is
learned if that succeeds, and for the client's own key alone.
"""
_REFUSES_TOOLS = frozenset({400, 404, 405, 422, 500, 501})


async def stream_reply(candidates: Candidates, request: Request, record: ReplyRecord) -> AsyncGenerator[list[Event]]:
    """The batches of one reply."""
    pause: float | None = None
    failed: ReplyFailed | None = None
    for place, (backend, name) in enumerate(candidates):
        if wait := backend.breaker.seconds_to_wait(monotonic(), record.owner):
            pause = wait if pause is None else min(pause, wait)
            continue
        async with aclosing(_ask_backend(backend, name, request, record)) as batches:
            failed = None
            given = False
            async for events in batches:
                last = events[-1]
                if not given:
                    given = any(not isinstance(event, (*_BEFORE, ReplyFailed)) for event in events)
                    more = place + 1 < len(candidates) and record.status not in _THE_CLIENTS
                    if isinstance(last, ReplyFailed) and not given and more:
                        failed = last
                        break
                yield events
            if failed is None:
                return
        record.end, record.retry_after, record.usage = None, None, Usage()
        yield [Note("alert", f"a backend failed: {failed.message}; another is asked")]
    if failed is not None:
        record.set_end([failed])
        yield [failed]
        return
    record.retry_after = pause
    message = f"the backend failed too often and is not asked for another {pause or 0:.0f} s"
    failed = ReplyFailed("provider", "backend_unavailable_circuit_open", message)
    record.set_end([failed])
    yield [failed]


async def _ask_backend(
    backend: Backend, name: str, request: Request, record: ReplyRecord
) -> AsyncGenerator[list[Event]]:
    """One backend's reply; asked again in another way where it refuses one of the request's."""
    asked, lost = _translate_request(backend, name, request, record)
    record.begin(backend)
    told = tool_call_logger()
    if told is not None:
        told.asked(request)
    on_frame = None if told is None else told.payload
    over = False
    try:
        if lost:
            yield [unsent_note(field) for field in lost]
        way: dict[str, Any] = {}
        while True:
            model = backend.model(name, record.owner, way)
            asked = _forbid_calls_after_results(strip_attribution(asked, backend.settings, model.resolution), model)
            record.begin(backend)
            more: Mapping[str, Any] = {}
            keys = backend.headers(record.token)
            replying = model.batches(asked, headers=keys, on_headers=record.on_headers, on_frame=on_frame)
            redaction = backend.redactor.start_reply()
            thoughts = _listener(backend, model, asked, record)
            async with aclosing(replying) as batches:
                async for batch in batches:
                    if not (events := redaction.feed(_set_failure_code(batch, backend, record))):
                        continue
                    record.add_notes(events)
                    thoughts.feed(events)
                    events = signed_by(events, record.front, backend.settings.wire)
                    if told is not None:
                        told.events(events)
                    end = events[-1]
                    if isinstance(end, ReplyFailed) and (more := _facts_to_try(end, model, asked, record, way)):
                        break
                    if isinstance(end, (ReplyEnded, ReplyFailed)):
                        over = True
                        _finish_reply(backend, name, events, record, way)
                        record.add_completed(asked, f"{backend.name} {name}", model.plan.cache_seconds)
                    yield events
            if not more:
                return
            way |= more
    except CallboardError as error:
        over = True
        backend.breaker.release(record.owner)
        party = "caller" if error.party == "caller" else "provider"
        failed = ReplyFailed(party, "invalid_request", backend.redactor.error(str(error)))
        record.set_end([failed])
        yield [failed]
    finally:
        if not over:
            backend.breaker.release(record.owner)


def _translate_request(
    backend: Backend, name: str, request: Request, record: ReplyRecord
) -> tuple[Request, tuple[str, ...]]:
    """The request for the backend's wire, with what its models thought, and what is lost on the way."""
    if name != request.model and record.front == "chat":
        # There the client says nothing of a model: it is the one that it asked for, which is called otherwise here.
        request = replace(
            request, canisters=tuple([_rename_origin(each, request.model, name) for each in request.canisters])
        )
    asked, lost = crossed(replace(request, model=name), record.front, backend.settings.wire)
    record.add_dropped(lost)
    # Nobody can be asked here, and the client acts on every call that it gets.
    return backend.reasoning_memory.restore(record.owner, replace(asked, quoted_calls="text")), lost


def _listener(backend: Backend, model: BatchModel, asked: Request, record: ReplyRecord) -> ReasoningRecorder:
    unsigned = model.resolution.profile.requires_reasoning_history
    return backend.reasoning_memory.recorder(record.owner, asked, unsigned=unsigned)


def _rename_origin(canister: Canister, model: str, name: str) -> Canister:
    """With what `model` thought as the thoughts of `name`."""
    content = canister.content if isinstance(canister, AssistantCanister) else ()
    if not any(isinstance(part, ReasoningContent) and part.origin == model for part in content):
        return canister
    thoughts = [
        replace(part, origin=name) if isinstance(part, ReasoningContent) and part.origin == model else part
        for part in content
    ]
    return replace(canister, content=tuple(thoughts))


def _set_failure_code(events: list[Event], backend: Backend, record: ReplyRecord) -> list[Event]:
    """With seed 002's code for a backend that cannot be reached, and without the place that a redirect points to.

    The log is told what the client is not.
    """
    last = events[-1]
    if not isinstance(last, ReplyFailed):
        return events
    if last.party != "caller":
        # The backend may repeat the client's own key; the settings' secrets no log line has.
        log.warning("%s failed: %r", backend.name, Redactor([record.token]).text(last.message))
    if last.code == "unreachable":
        last = replace(last, code="backend_unavailable")
    elif 300 <= record.status < 400:
        message = f"the provider answered {record.status}; redirects are not followed"
        last = replace(last, message=message, excerpt="")
    return [*events[:-1], last]


def _forbid_calls_after_results(request: Request, model: BatchModel) -> Request:
    """The request as a model is asked that would repeat a call which has its result: no call may follow it."""
    if model.plan.answer_after != "results" or request.tool_choice != "auto":
        return request
    last = request.canisters[-1] if request.canisters else None
    return replace(request, tool_choice="none") if isinstance(last, ResultCanister) and last.error is None else request


def _facts_to_try(
    failed: ReplyFailed, model: BatchModel, request: Request, record: ReplyRecord, tried: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Facts with which the request would be sent otherwise, as its refusal suggests; none if there are none."""
    if isinstance(model, HttpModel) and len(tried) < MOST:
        other, known = model.taught_by(failed, record.status, request), model.learned.items()
        if other is not None:
            return {fact: value for fact, value in other.learned.items() if (fact, value) not in known}
    return {"mode": WITHOUT_TOOLS} if "mode" not in tried and _refuses_tools(failed, model, request, record) else {}


def _refuses_tools(failed: ReplyFailed, model: BatchModel, request: Request, record: ReplyRecord) -> bool:
    if not request.tools or model.plan.mode.declares != "wire" or record.status not in _REFUSES_TOOLS:
        return False
    said = f"{failed.message} {failed.excerpt}"
    if _OF_ROLES.search(said) is not None and any(isinstance(each, ResultCanister) for each in request.canisters):
        return True
    told = _OF_TOOLS.search(said) is not None and _NOT_TAKEN.search(said) is not None
    return told and _WITHIN_TOOLS.search(said) is None


def _finish_reply(
    backend: Backend, name: str, events: list[Event], record: ReplyRecord, way: Mapping[str, Any]
) -> None:
    """The reply is over: what that says of the backend, and of the way in which it was asked."""
    end = events[-1]
    if isinstance(end, (ReplyEnded, ReplyFailed)):
        _update_breaker(backend, end, record)
    record.set_end(events)
    if way and isinstance(end, ReplyEnded):
        backend.learn(name, record.owner, way)


def _update_breaker(backend: Backend, failed: ReplyEnded | ReplyFailed, record: ReplyRecord) -> None:
    """Only the backend's own faults count against it."""
    if isinstance(failed, ReplyEnded):
        backend.breaker.record_success()
        return
    theirs = failed.party == "provider" and (record.status in (0, 200) or record.status >= 500)
    if theirs and failed.code not in {"cancelled", "rate_limit_exceeded", "insufficient_quota"}:
        down = record.status in _DOWN or (record.status in (0, 200) and failed.code in _BROKEN)
        backend.breaker.record_failure(monotonic(), record.owner, record.retry_after, doubtful=not down)
    else:
        backend.breaker.release(record.owner)
