"""A model behind an endpoint that speaks one of our wires.

Owns the way of one reply: request, bytes, events. Knows nothing of runs; wires, modes and transport are
others' business that is only joined here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from callboard.core import (
    ArgumentsPiece,
    DocumentCanister,
    Event,
    FileContent,
    Identify,
    Note,
    PictureContent,
    Pipe,
    ReasoningPiece,
    RefusalPiece,
    ReplyEnded,
    ReplyFailed,
    ReplyStarted,
    Request,
    Stage,
    TextPiece,
    Usage,
    UserCanister,
    Why,
    identify_in_turn,
    pipe,
    unsent_note,
)
from callboard.errors import CallerError, ProviderError
from callboard.modes import Plan, Watcher, choice, lower, reminded, watched
from callboard.modes import plan as plan_of_mode
from callboard.profiles import Resolution
from callboard.providers.quirks import amended, encoder, suited
from callboard.providers.transport import Answer, Transport
from callboard.text.sse import SSEDecoder
from callboard.wires import wire_named
from callboard.wires.common.encoded_request import Lowered
from callboard.wires.common.tool_extra import message_fields

if TYPE_CHECKING:
    from callboard.modes import Sources
    from callboard.providers.control_tokens import Escaper

MAX_BODY = 64 * 1024 * 1024
"""Bytes of a reply that comes whole."""
MAX_SAID = 16 * 1024 * 1024
"""Characters that a streamed reply may say. Clients of some wires are told all of it several times at its end."""
_MAX_ERROR = 64 * 1024
_MAX_CONVERSATIONS = 16
"""Conversations of which it is kept what was read of their sources."""
_EXCERPT = 500
_RETRY = ReplyEnded("retry")
_SAID: Mapping[type[Event], str] = {
    TextPiece: "text",
    ReasoningPiece: "text",
    RefusalPiece: "text",
    ArgumentsPiece: "json",
}
_REFUSALS = (400, 413, 422)

Heard: TypeAlias = Callable[[int, Mapping[str, str]], None]
Overheard: TypeAlias = Callable[[str], None]
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


_PATHS: Final[Mapping[str, str]] = MappingProxyType(
    {"/chat/completions": "chat", "/responses": "responses", "/v1/messages": "messages", "/messages": "messages"}
)
"""What our wires add to a base URL, by the wire that adds it."""


def _checked(url: Any, wire: str) -> str:
    """The base URL without a slash at its end."""
    if not isinstance(url, str):
        raise CallerError(f"a {type(url).__name__} is no URL", path="base_url", hint="give it as text")
    text: str = url.strip().rstrip("/")
    if "?" in text or "#" in text:
        hint = "give it up to the path; what the query says may go into headers or extra_body"
        raise CallerError("it has a query, and paths are added to it", path="base_url", hint=hint)
    ending = next((each for each in _PATHS if text.endswith(each)), "")
    if ending:
        other = f", and for that wire write profile={{'wire': '{_PATHS[ending]}'}}" if _PATHS[ending] != wire else ""
        raise CallerError(
            f"it ends with {ending}, which is added to it", path="base_url", hint=f"leave that out{other}"
        )
    return text


class RemoteModel:
    """A Model over HTTP (the port `core.Model`).

    `base_url` ends before the wire's path, such as `/chat/completions`; CallerError is raised for one that does not. What cannot be sent is told in Notes;
    every failure of the provider is a ReplyFailed. `keeps` says that what was encoded once is kept for the
    conversation's next request. With `forwards` a schema for the answer is sent beside tools, and to an endpoint that
    is not known to take one: whoever asks decides. Closing the iterator closes the connection, which cancels the reply upstream.
    """

    def __init__(
        self,
        resolution: Resolution,
        plan: Plan,
        transport: Transport,
        *,
        base_url: str,
        api_key: str = "",
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        tell: Callable[[str], None] | None = None,
        keeps: bool = True,
        forwards: bool = False,
    ) -> None:
        self.resolution = resolution
        self.plan = plan
        self._transport = transport
        self._wire = wire_named(resolution.profile.wire)
        self._base_url = _checked(base_url, resolution.profile.wire)
        self._tell = tell
        self._extra = extra_body or {}
        self._keeps = keeps
        self._forwards = forwards
        self._encoder = encoder(self._wire, resolution.profile)
        self.learned: Mapping[str, Any] = {}
        """Facts that the endpoint's refusals showed."""
        self._trials = 0
        self._escaper: Escaper | None = None
        self._sources: dict[int, Sources] = {}
        """Those of the last conversations, by the identity of their first canisters, which they keep."""
        self._headers = {"content-type": "application/json", **(headers or {}), **self._wire.headers(api_key)}

    @property
    def name(self) -> str:
        return self.resolution.name

    async def reply(self, request: Request, /) -> AsyncGenerator[Event]:
        """One reply, event by event; the last is a ReplyEnded or a ReplyFailed."""
        async with aclosing(self.batches(request)) as batches:
            async for events in batches:
                for event in events:
                    yield event

    async def batches(
        self,
        request: Request,
        /,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        heard: Heard | None = None,
        overheard: Overheard | None = None,
    ) -> AsyncGenerator[list[Event]]:
        """The events of `reply`, those together that arrived together.

        `headers` are added to this request's; `heard` is told the status and headers of each answer, `overheard`
        the data of each frame of a stream.
        A reply without the call that was asked for is asked once more (see `modes.choice`).
        """
        again: _Again | None = None
        for last in (False, True):
            check = choice(request, last=last)
            plan = self._constrained() if last else self.plan
            spent = Usage()
            async with aclosing(self._once(request, plan, headers, heard, overheard, is_again=last)) as batches:
                async for events in batches:
                    if check is None:
                        yield events
                        continue
                    given = [out for event in events for out in check.feed(event)]
                    spent = next((event for event in given if isinstance(event, Usage)), spent)
                    if given and given[-1] == _RETRY:
                        break
                    if again is not None:
                        given = [out for event in given for out in again.feed(event)]
                    if given:
                        yield given
                else:
                    return
            before = [event for event in given if not isinstance(event, (Usage, ReplyEnded))]
            yield [*before, Note("repaired", "no tool was called although one was asked for: asked once more")]
            again = _Again(spent)
            request = reminded(request, "" if check is None else check.said)

    async def _once(
        self,
        request: Request,
        plan: Plan,
        headers: Mapping[str, str],
        heard: Heard | None,
        overheard: Overheard | None,
        *,
        is_again: bool = False,
    ) -> AsyncGenerator[list[Event]]:
        given = request
        request = self._escaped(request)
        asked, lowered, unasked = self._encoded(request, plan)
        lost = (*unasked, *lowered.dropped)
        if self._forwards and request.constraint is not None and asked.constraint is None:
            lost = (*lost, "response_format")
        if lost:
            yield [unsent_note(part) for part in lost]
        posted = self._transport.post(
            self._base_url + self._wire.path(asked),
            headers={**self._headers, **headers} if headers else self._headers,
            body=self._body(lowered),
            on_retry=self._retried,
        )
        stages: Pipe | None = None
        other: RemoteModel | None = None
        said = 0
        try:
            async with posted as answer:
                if heard is not None:
                    heard(answer.status, answer.headers)
                if answer.status != 200:
                    failed = self._wire.decode_error(answer.status, await answer.read(_MAX_ERROR))
                    # Who hears the status decides by itself what follows from it: a gateway. Of words that were added
                    # here it knows nothing.
                    learns = heard is None or is_again
                    other = self.taught_by(failed, answer.status, given, plan) if learns else None
                    if other is None:
                        explained = await self._explained(_pointed(failed, answer), answer, heard)
                        yield [*_suspected(answer.status, asked), explained]
                        return
                elif answer.content_type == "text/event-stream":
                    stages = self._stages(request, plan, lowered, overheard)
                    async for chunk in answer.chunks():
                        if events := stages.feed(chunk):
                            said = _counted(said, events)
                            yield events
                    if events := stages.finish():
                        yield events
                    return
                else:
                    *events, last = await self._whole(answer, request, plan, lowered)
                    if isinstance(last, ReplyFailed) and last.code == "malformed":
                        last = await self._explained(last, answer, heard)
                    yield [*events, last]
        except ProviderError as error:
            failed = _failed(error)
            ends = [failed] if stages is None else stages.finish("cut")
            yield [failed if isinstance(event, ReplyFailed) else event for event in ends]
        if other is not None:
            async with aclosing(other._once(given, plan, headers, heard, overheard, is_again=is_again)) as batches:  # noqa: SLF001  # one of our own kind
                async for events in batches:
                    if heard is None and isinstance(events[-1], ReplyEnded):
                        self._learn(other)
                        if not self._trials:
                            what = f"the endpoint refused a request: {_spelled(self.learned)} from now on"
                            events = [Note("repaired", what), *events]  # noqa: PLW2901
                    yield events

    def taught_by(
        self, failed: ReplyFailed, status: int, request: Request, plan: Plan | None = None
    ) -> RemoteModel | None:
        """The same model, asked as a refusal suggests; None where that would change nothing of the request."""
        from callboard.providers import lessons  # noqa: PLC0415  # of failures only

        if status not in lessons.STATUSES or self._trials >= lessons.MOST:
            return None
        plan = plan or self.plan
        _, lowered, _ = self._encoded(request, plan)
        sent = self._body(lowered)
        carried = {*lowered.dropped, "reasoning"} if _shows_picture(request) else None
        for facts in lessons.suggested(failed, self.learned):
            other = self.with_facts(facts)
            _, lowered, _ = other._encoded(request, plan)  # noqa: SLF001  # one of our own kind
            # What a person has just shown is not left out because the endpoint refuses it.
            loses = carried is not None and not carried.issuperset(lowered.dropped)
            if not loses and other._body(lowered) != sent:  # noqa: SLF001  # the same
                return other
        return None

    def with_facts(self, facts: Mapping[str, Any]) -> RemoteModel:
        """The same model with what was learned of its endpoint."""
        resolution = self.resolution
        other = copy(self)
        other.learned = {**self.learned, **facts}
        other._trials = self._trials + 1  # noqa: SLF001  # one of our own kind
        other.resolution = msgspec.structs.replace(
            resolution,
            profile=msgspec.structs.replace(resolution.profile, **facts),
            sources={**resolution.sources, **dict.fromkeys(facts, "learned from a refusal")},
        )
        other._encoder = encoder(self._wire, other.resolution.profile)  # noqa: SLF001  # one of our own kind
        other._sources = {}  # noqa: SLF001  # one of our own kind
        return other

    def _learn(self, other: RemoteModel) -> None:
        self.resolution, self.learned, self._encoder = other.resolution, other.learned, other._encoder

    def _encoded(self, request: Request, plan: Plan) -> tuple[Request, Lowered, tuple[str, ...]]:
        facts = self.resolution.profile
        asked, unasked = suited(self._lowered(request, plan), facts)
        if asked.canisters is not request.canisters:
            wire = self._wire.name
            lost = message_fields(wire, request.canisters) - message_fields(wire, asked.canisters)
            unasked = (*unasked, *lost)
        # What a mode rewrites is new in each request, so there is nothing to keep.
        kept = self._keeps and asked.canisters is request.canisters
        return asked, (self._encoder if kept else encoder(self._wire, facts)).encode(asked), unasked

    def _body(self, lowered: Lowered) -> bytes:
        return msgspec.json.encode(amended(lowered.body, self.resolution.profile))

    async def connect(self) -> None:
        """Raises ProviderError if the endpoint takes no connection. Nothing is asked."""
        await self._transport.connect(self._base_url)

    async def aclose(self) -> None:
        """Closes the connections and forgets what was encoded; a later reply makes new ones."""
        self._encoder = encoder(self._wire, self.resolution.profile)
        self._escaper = None
        self._sources.clear()
        await self._transport.aclose()

    def _constrained(self) -> Plan:
        """How the model is asked that ignored which tools it is to call: held to their schemas, where that is possible."""
        if not self.plan.supports_json_schema or self.plan.mode.declares == "constraint":
            return self.plan
        return plan_of_mode(self.resolution, "structured")

    def _lowered(self, request: Request, plan: Plan) -> Request:
        completed = self._completed(request)
        lowered = lower(completed, plan)
        if self._forwards and plan.mode.declares == "wire":
            return msgspec.structs.replace(lowered, constraint=completed.constraint)
        return lowered

    def _completed(self, request: Request) -> Request:
        """The request with the name that the endpoint knows, and with the profile's controls where it has none."""
        facts = self.resolution.profile
        controls = request.controls
        for fact in ("temperature", "max_tokens"):
            if getattr(controls, fact) is None and getattr(facts, fact) is not None:
                controls = msgspec.structs.replace(controls, **{fact: getattr(facts, fact)})
        extra = {**self._extra, **request.extra}
        return msgspec.structs.replace(
            request,
            model=self.resolution.model,
            controls=controls,
            stream=request.stream and facts.supports_streaming,
            extra=extra,
        )

    def _stages(self, request: Request, plan: Plan, lowered: Lowered, overheard: Overheard | None) -> Pipe:
        """Bytes to events: as the design's picture has them, from left to right."""
        payloads = _Payloads() if overheard is None else _Told(overheard)
        return pipe(
            SSEDecoder(), payloads, self._decoder(request, lowered.names), *self._behind(request, plan, lowered)
        )

    def _decoder(self, request: Request, names: Mapping[str, str]) -> Stage[str, Event]:
        return self._wire.stream_decoder(**self._reading(request, names))

    def _reading(self, request: Request, names: Mapping[str, str]) -> dict[str, Any]:
        """What the wire's decoders have to know of the request."""
        return {
            "names": names,
            "identify": self._identify(request),
            "declared": frozenset(tool.name for tool in request.tools),
            "origin": self.resolution.model,
        }

    def _behind(self, request: Request, plan: Plan, lowered: Lowered) -> tuple[Stage[Event, Event], ...]:
        """What events pass that a wire's decoder gives: what finds calls in text, and gives all of them as they were
        declared and as if nothing had been escaped.
        """
        stages = self._watchers(request, plan)
        if lowered.rewritten:
            from callboard.providers.restore_arguments import Restored  # noqa: PLC0415 - few schemas are declared otherwise

            stages = (*stages, Restored(lowered))
        stages = (*stages, *self._unescape(request))
        if not watched(request, plan):
            return stages
        from callboard.modes import DuplicateCheck  # noqa: PLC0415  # where calls may be found

        # Behind what restores arguments: they are compared as the tool takes them.
        return (*stages, DuplicateCheck(request.tools))

    def _escaped(self, request: Request) -> Request:
        """The request without control tokens of the model's family, where its endpoint would take them for such."""
        facts = self.resolution.profile
        if not facts.parses_special_tokens:
            return request
        if self._escaper is None:
            from callboard.profiles.control_tokens import control_tokens  # noqa: PLC0415  # not for hosted models
            from callboard.providers.control_tokens import Escaper  # noqa: PLC0415

            self._escaper = Escaper(control_tokens(facts.control_tokens), keeps=self._keeps)
        return self._escaper.escape(request)

    def _unescape(self, request: Request) -> tuple[Stage[Event, Event], ...]:
        """Behind what finds calls: to that, what was escaped is no marker of one."""
        if self._escaper is None:
            return ()
        from callboard.providers.control_tokens import Unescape  # noqa: PLC0415  # not for hosted models

        return (Unescape(self._escaper.tokens, json_text=request.constraint is not None),)

    def _watchers(self, request: Request, plan: Plan) -> tuple[Stage[Event, Event], ...]:
        tools = request.tools
        dialect = watched(request, plan)
        if dialect is None:
            return ()
        inside = plan.starts_in_reasoning
        quoted: Any = {"sources": self._sources_of(request), "quoted_calls": request.quoted_calls}
        text = Watcher(dialect, tools, self._identify(request, "t"), starts_in_reasoning=inside, **quoted)
        if plan.mode.declares == "constraint" and request.constraint is None:
            from callboard.modes.format_check import FormatCheck  # noqa: PLC0415  # for structured mode only

            return (FormatCheck(text),)
        if not plan.calls_in_reasoning:
            return (text,)
        return Watcher(dialect, tools, self._identify(request, "r"), watched=ReasoningPiece, **quoted), text

    def _sources_of(self, request: Request) -> Sources:
        """What the conversation shows; with what was read of it for an earlier reply, where that is kept."""
        from callboard.modes import Sources  # noqa: PLC0415  # for replies with tools only

        canisters = request.conversation or request.canisters
        if not self._keeps or not canisters:
            return Sources(canisters)
        sources = Sources(canisters, self._sources.pop(id(canisters[0]), None))
        self._sources[id(canisters[0])] = sources
        while len(self._sources) > _MAX_CONVERSATIONS:
            del self._sources[next(iter(self._sources))]
        return sources

    @staticmethod
    def _identify(request: Request, source: str = "") -> Identify:
        return identify_in_turn(len(request.canisters), source)

    async def _whole(self, answer: Answer, request: Request, plan: Plan, lowered: Lowered) -> list[Event]:
        """The events of a reply that did not come as a stream."""
        data = await answer.read(MAX_BODY)
        if not data.lstrip().startswith(b"{"):
            kind = answer.content_type or "something without a type"
            what = f"the answer is no reply but {kind}" if data.strip() else "the answer is empty"
            return [ReplyFailed("provider", "malformed", what, data[:_EXCERPT].decode(errors="replace"))]
        events = self._wire.decode_response(data, **self._reading(request, lowered.names))
        for stage in self._behind(request, plan, lowered):
            events = [found for event in events for found in stage.feed(event)]
        return events

    async def _explained(self, failed: ReplyFailed, answer: Answer, heard: Heard | None) -> ReplyFailed:
        """The failure with what helps. Who hears the status passes on the provider's own words: a gateway."""
        if heard is not None:
            return failed
        from callboard.providers.error_hints import with_hint  # noqa: PLC0415  # for failures only

        endpoint: Any = {"base_url": self._base_url, "headers": self._headers, "transport": self._transport}
        return await with_hint(failed, answer, self.resolution, **endpoint)

    def _retried(self, attempt: int, why: str, delay: float) -> None:
        if self._tell is not None:
            self._tell(f"attempt {attempt}: {why}; trying again in {delay:.1f} s")


class _Payloads:
    """SSE frames to their data."""

    def feed(self, frame: Any, /) -> list[str]:
        return [frame.data] if frame.data else []

    def finish(self, why: Why = "stop", /) -> list[str]:
        return []


class _Told(_Payloads):
    """As Payloads, and somebody else is told them."""

    def __init__(self, overheard: Overheard) -> None:
        self._overheard = overheard

    def feed(self, frame: Any, /) -> list[str]:
        if frame.data:
            self._overheard(frame.data)
        return super().feed(frame)


def _suspected(status: int, asked: Request) -> list[Event]:
    """What may be the fault of a request that was refused."""
    if status not in _REFUSALS or not asked.tools:
        return []
    from callboard.providers.refused_tools import suspected  # noqa: PLC0415 - of failures only

    return [*suspected(asked.tools)]


def _spelled(facts: Mapping[str, Any]) -> str:
    return ", ".join([f"{fact}={msgspec.json.encode(value).decode()}" for fact, value in facts.items()])


def _shows_picture(request: Request) -> bool:
    """Whether a picture or a file is what the user says last."""
    last = request.canisters[-1] if request.canisters else None
    content = last.content if isinstance(last, UserCanister | DocumentCanister) else ()
    return any(isinstance(part, PictureContent | FileContent) for part in content)


def _pointed(failed: ReplyFailed, answer: Answer) -> ReplyFailed:
    """The failure with the address that a redirect points to, without a query, which may hold a secret."""
    location = answer.headers.get("Location", "").partition("?")[0][:_EXCERPT]
    if not 300 <= answer.status < 400 or not location:
        return failed
    message = f"the provider answered {answer.status} and points to {location}; redirects are not followed"
    return msgspec.structs.replace(failed, message=message)


def _counted(said: int, events: list[Event]) -> int:
    """How many characters were said with these events. Raises ProviderError for more than MAX_SAID."""
    said += sum([len(getattr(event, _SAID.get(type(event), ""), "")) for event in events])
    if said > MAX_SAID:
        raise ProviderError(f"the reply has more than {MAX_SAID} characters", code="too_large")
    return said


def _failed(error: ProviderError) -> ReplyFailed:
    return ReplyFailed(error.party, error.code, str(error), error.excerpt)


class _Again:
    """The events of a second attempt, behind those of a first that `spent` so much: one beginning, one usage."""

    def __init__(self, spent: Usage) -> None:
        self._spent = spent
        self._told = spent == Usage()

    def feed(self, event: Event, /) -> list[Event]:
        if isinstance(event, ReplyStarted):
            return []
        if isinstance(event, Usage):
            self._told = True
            return [event + self._spent]
        if isinstance(event, (ReplyEnded, ReplyFailed)) and not self._told:
            return [self._spent, event]
        return [event]
