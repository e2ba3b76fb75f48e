"""A model behind an endpoint that speaks one of our wires.

Owns the way of one reply: request, bytes, events. Knows nothing of runs; wires, modes and transport are
others' business that is only joined here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import msgspec

from callboard.core import (
    Event,
    Identify,
    Note,
    Pipe,
    ReasoningPiece,
    ReplyFailed,
    Request,
    Stage,
    Why,
    identify_in_turn,
    pipe,
)
from callboard.errors import ProviderError
from callboard.modes import Plan, Watcher, lower, watched
from callboard.profiles import Resolution
from callboard.providers.quirks import amended, suited
from callboard.providers.transport import Answer, Transport
from callboard.text.sse import SSEDecoder
from callboard.wires import wire_named

MAX_BODY = 64 * 1024 * 1024
"""Bytes of a reply that comes whole."""
_MAX_ERROR = 64 * 1024
_EXCERPT = 500


class RemoteModel:
    """A Model over HTTP (the port `core.Model`).

    `base_url` ends before the wire's path, such as `/chat/completions`. What cannot be sent is told in Notes;
    every failure of the provider is a ReplyFailed. Closing the iterator closes the connection, which cancels the reply upstream.
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
    ) -> None:
        self.resolution = resolution
        self.plan = plan
        self._transport = transport
        self._wire = wire_named(resolution.profile.wire)
        self._base_url = base_url.rstrip("/")
        self._tell = tell
        self._extra = extra_body or {}
        self._encoder = self._wire.encoder()
        self._headers = {"content-type": "application/json", **(headers or {}), **self._wire.headers(api_key)}

    @property
    def name(self) -> str:
        return self.resolution.name

    async def reply(self, request: Request, /) -> AsyncGenerator[Event]:
        """One reply, event by event; the last is a ReplyEnded or a ReplyFailed."""
        facts = self.resolution.profile
        asked = suited(lower(self._completed(request), self.plan), facts)
        # What a mode rewrites is new in each request, so there is nothing to keep.
        rewritten = asked.canisters is not request.canisters
        lowered = (self._wire.encoder() if rewritten else self._encoder).encode(asked)
        for kind in lowered.dropped:
            yield Note("dropped", f"{kind} cannot be sent to this endpoint")
        posted = self._transport.post(
            self._base_url + self._wire.path(asked),
            headers=self._headers,
            body=msgspec.json.encode(amended(lowered.body, facts)),
            on_retry=self._retried,
        )
        stages = self._stages(request, lowered.names)
        try:
            async with posted as answer:
                if answer.status != 200:
                    yield _pointed(self._wire.decode_error(answer.status, await answer.read(_MAX_ERROR)), answer)
                    return
                if answer.content_type == "text/event-stream":
                    async for chunk in answer.chunks():
                        for event in stages.feed(chunk):
                            yield event
                    for event in stages.finish():
                        yield event
                    return
                for event in await self._whole(answer, request, lowered.names):
                    yield event
        except ProviderError as error:
            for event in stages.finish("cut"):
                yield event if not isinstance(event, ReplyFailed) else _failed(error)

    async def aclose(self) -> None:
        """Closes the connections and forgets what was encoded; a later reply makes new ones."""
        self._encoder = self._wire.encoder()
        await self._transport.aclose()

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
            stream=request.stream and facts.streams,
            extra=extra,
        )

    def _stages(self, request: Request, names: Mapping[str, str]) -> Pipe:
        """Bytes to events: as the design's picture has them, from left to right."""
        return pipe(SSEDecoder(), _Payloads(), self._decoder(request, names), *self._watchers(request))

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

    def _watchers(self, request: Request) -> tuple[Watcher, ...]:
        plan, tools = self.plan, request.tools
        dialect = watched(request, plan)
        if dialect is None:
            return ()
        inside = plan.starts_in_reasoning
        text = Watcher(dialect, tools, self._identify(request, "t"), starts_in_reasoning=inside)
        if not plan.calls_in_reasoning:
            return (text,)
        return Watcher(dialect, tools, self._identify(request, "r"), watched=ReasoningPiece), text

    @staticmethod
    def _identify(request: Request, source: str = "") -> Identify:
        return identify_in_turn(len(request.canisters), source)

    async def _whole(self, answer: Answer, request: Request, names: Mapping[str, str]) -> list[Event]:
        """The events of a reply that did not come as a stream."""
        data = await answer.read(MAX_BODY)
        if not data.lstrip().startswith(b"{"):
            kind = answer.content_type or "something without a type"
            what = f"the answer is no reply but {kind}" if data.strip() else "the answer is empty"
            return [ReplyFailed("provider", "malformed", what, data[:_EXCERPT].decode(errors="replace"))]
        events = self._wire.decode_response(data, **self._reading(request, names))
        for watcher in self._watchers(request):
            events = [found for event in events for found in watcher.feed(event)]
        return events

    def _retried(self, attempt: int, why: str, delay: float) -> None:
        if self._tell is not None:
            self._tell(f"attempt {attempt}: {why}; trying again in {delay:.1f} s")


class _Payloads:
    """SSE frames to their data."""

    def feed(self, frame: Any, /) -> list[str]:
        return [frame.data] if frame.data else []

    def finish(self, why: Why = "stop", /) -> list[str]:
        return []


def _pointed(failed: ReplyFailed, answer: Answer) -> ReplyFailed:
    """The failure with the address that a redirect points to, without a query, which may hold a secret."""
    location = answer.headers.get("Location", "").partition("?")[0][:_EXCERPT]
    if not 300 <= answer.status < 400 or not location:
        return failed
    message = f"the provider answered {answer.status} and points to {location}; redirects are not followed"
    return msgspec.structs.replace(failed, message=message)


def _failed(error: ProviderError) -> ReplyFailed:
    return ReplyFailed(error.party, error.code, str(error), error.excerpt)
