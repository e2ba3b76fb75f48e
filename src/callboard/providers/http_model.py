"""A model at an endpoint that speaks one of our wires.

A request passes `lower_request` (its mode), `adapt_request` (the endpoint's quirks) and the wire's encoder; what an
endpoint answers passes the stages of `stages`, from left to right. `HttpExchange` is one request with its answer, and
`HttpModel.batches` the exchanges of one reply.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from callboard import core
from callboard.core import identify_in_turn, pipe
from callboard.errors import CallerError
from callboard.modes import Plan, Sources, Watcher, create_choice_check, lower_request, remind, select_dialect
from callboard.modes import make_plan as plan_of_mode
from callboard.modes.filters.duplicates import DuplicateFilter
from callboard.modes.text_calls import FormatCheck
from callboard.profiles import Resolution
from callboard.profiles.control_tokens import control_tokens
from callboard.providers import lessons
from callboard.providers.adapt_request import adapt_body, adapt_request, encode_request
from callboard.providers.control_tokens import EventUnescaper, escape_request
from callboard.providers.http_exchange import ExchangeObserver, HttpExchange, SSEPayloads
from callboard.providers.restore_arguments import ArgumentRestorer, spell_names
from callboard.providers.transport import HttpResponse, Transport
from callboard.text.sse import SSEDecoder
from callboard.wires import DecodeContext, get_wire
from callboard.wires.common.contents import message_fields
from callboard.wires.common.encoded_request import NO_NAMES, EncodedRequest

if TYPE_CHECKING:
    from callboard.providers.local.server import EmbeddedServer

_MAX_CONVERSATIONS = 16
"""Maximum conversations whose sources stay cached between replies."""
_RETRY = core.ReplyEnded("retry")
NO_HEADERS: Mapping[str, str] = MappingProxyType({})

_PATHS: Final[Mapping[str, str]] = MappingProxyType(
    {"/chat/completions": "chat", "/responses": "responses", "/v1/messages": "messages", "/messages": "messages"}
)
"""Path that is appended to a base URL, and its wire."""


def _check_base_url(url: Any, wire: str) -> str:
    """The base URL without a slash at its end, and without the version that the wire's own path begins with."""
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
    return text.removesuffix("/v1") if wire == "messages" else text


class PreparedRequest(NamedTuple):
    """A request on its way out: as it was escaped, as the endpoint is asked, as the wire encodes it."""

    request: core.Request
    adapted: core.Request
    encoded: EncodedRequest
    dropped: tuple[str, ...]
    """The parts that cannot be sent."""


class HttpModel:
    """A Model over HTTP (the port `core.Model`).

    Every failure of the provider is a ReplyFailed event, and what cannot be sent a Note. Closing the iterator of
    `batches` closes the connection, which cancels the reply upstream.

    Args:
        resolution: Facts about the model and its endpoint.
        plan: How the model is asked for calls.
        transport: Makes the connections.
        base_url: The endpoint's URL up to the path of the wire, such as `/chat/completions`.
        api_key: Sent as the wire sends keys.
        headers: Added to each request.
        extra_body: Added to the body of each request.
        tell: Called with a line of text before a request is repeated.
        reuse_sources: Keep what was read in a conversation for its next request.
        forward_constraint: Send the schema of an answer beside tools, and to endpoints that are not known to take
            one. The gateway does: its client decided to ask for it.
        server: Serves a local model; it is started before the first request, and says where it listens.

    Raises:
        CallerError: The base URL has a query, or ends with the wire's path.
    """

    def __init__(
        self,
        resolution: Resolution,
        plan: Plan,
        transport: Transport,
        *,
        base_url: str = "",
        api_key: str = "",
        headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, Any] | None = None,
        tell: Callable[[str], None] | None = None,
        reuse_sources: bool = True,
        forward_constraint: bool = False,
        server: EmbeddedServer | None = None,
    ) -> None:
        self.resolution = resolution
        self.plan = plan
        self.transport = transport
        self.wire = get_wire(resolution.profile.wire)
        self.base_url = _check_base_url(base_url, resolution.profile.wire)
        self._tell = tell
        self._extra = extra_body or {}
        self._reuse_sources = reuse_sources
        self._forward_constraint = forward_constraint
        self._server = server
        self.learned: Mapping[str, Any] = {}
        """Facts that the endpoint's refusals showed."""
        self._trials = 0
        self._sources: dict[int, Sources] = {}
        """Sources of recent conversations, by the `id()` of their first canister."""
        self.headers = {"content-type": "application/json", **(headers or {}), **self.wire.headers(api_key)}

    @property
    def name(self) -> str:
        """The name that the caller requested."""
        return self.resolution.name

    async def batches(
        self,
        request: core.Request,
        /,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        observer: ExchangeObserver | None = None,
    ) -> AsyncGenerator[list[core.Event]]:
        """Yield one reply. Ask once more if the required call is missing.

        Args:
            request: The request.
            headers: Added to this request's.
            observer: Sees each answer. If it passes refusals on, only a second attempt learns from one.
        """
        await self.start_server()
        merger: RetryMerger | None = None
        for is_retry in (False, True):
            check = create_choice_check(request, last=is_retry)
            plan = self._constrained_plan() if is_retry else self.plan
            spent = core.Usage()
            exchange = HttpExchange(
                self,
                request,
                plan,
                headers=headers,
                observer=observer,
                learns=observer is None or not observer.passes_refusals or is_retry,
            )
            with exchange:
                while events := await exchange.next_batch():
                    if check is None:
                        yield events
                        continue
                    events = [out for event in events for out in check.feed(event)]
                    spent = next((event for event in events if isinstance(event, core.Usage)), spent)
                    if events and events[-1] == _RETRY:
                        break
                    if merger is not None:
                        events = [out for event in events for out in merger.feed(event)]
                    if events:
                        yield events
                else:
                    return
            before = [event for event in events if not isinstance(event, (core.Usage, core.ReplyEnded))]
            yield [*before, core.Note("repaired", "no tool was called although one was asked for: asked once more")]
            merger = RetryMerger(spent)
            request = remind(request, "" if check is None else check.held_text)

    @property
    def filler(self) -> core.Model | None:
        """The model that writes what is missing in a text, if this is a local model."""
        from callboard.providers.local.fill import FillModel  # noqa: PLC0415  # few models need it

        return None if self._server is None else FillModel(self)

    async def connect(self) -> None:
        """Raises ProviderError if the endpoint takes no connection. Nothing is asked."""
        if self._server is None:
            await self.transport.connect(self.base_url)

    async def aclose(self) -> None:
        """Closes the connections and forgets what was read; a later reply makes new ones."""
        self._sources.clear()
        await self.transport.aclose()

    async def start_server(self) -> None:
        """Start the server of a local model. Raises CallerError without xllamacpp, ModelFileError if it cannot load."""
        if self._server is not None and not self.base_url:
            await self._server.start()
            self.base_url = self._server.base_url
            self.headers |= self.wire.headers(self._server.api_key)

    # Learning from refusals.

    def taught_by(
        self, failed: core.ReplyFailed, status: int, request: core.Request, plan: Plan | None = None
    ) -> HttpModel | None:
        """Return this model, asked as the refusal `failed` with `status` suggests; None if the request would stay the
        same.

        `request` and `plan` are those of the refused attempt.
        """
        if status not in lessons.STATUSES or self._trials >= lessons.MAX_TRIALS:
            return None
        plan = plan or self.plan
        encoded = self._encode(request, plan).encoded
        sent = self._body(encoded)
        droppable = {*encoded.dropped, "reasoning"} if _shows_picture(request) else None
        for facts in lessons.suggest_facts(failed, self.learned):
            other = self.with_facts(facts)
            encoded = other._encode(request, plan).encoded  # noqa: SLF001  # one of our own kind
            # Never drop a picture that the user has just shown, even if the endpoint refuses it.
            loses = droppable is not None and not droppable.issuperset(encoded.dropped)
            if not loses and other._body(encoded) != sent:  # noqa: SLF001  # the same
                return other
        return None

    def with_facts(self, facts: Mapping[str, Any]) -> HttpModel:
        """Return this model with the `facts` that were learned about its endpoint."""
        resolution = self.resolution
        other = copy(self)
        other.learned = {**self.learned, **facts}
        other._trials = self._trials + 1  # noqa: SLF001  # one of our own kind
        other.resolution = msgspec.structs.replace(
            resolution,
            profile=msgspec.structs.replace(resolution.profile, **facts),
            sources={**resolution.sources, **dict.fromkeys(facts, "learned from a refusal")},
        )
        other._sources = {}  # noqa: SLF001  # one of our own kind
        return other

    def learn_from(self, other: HttpModel) -> list[core.Event]:
        """Return the note that this model is from now on asked as `other`, which was answered where this one was
        refused.
        """
        self.resolution, self.learned = other.resolution, other.learned
        if self._trials:
            return []
        facts = ", ".join([f"{fact}={msgspec.json.encode(value).decode()}" for fact, value in self.learned.items()])
        return [core.Note("repaired", f"the endpoint refused a request: {facts} from now on")]

    # The way out.

    def prepare(self, request: core.Request, plan: Plan) -> PreparedRequest:
        """Return the `request` as it is sent by `plan`."""
        prepared = self._encode(self._escape(request), plan)
        dropped = (*prepared.dropped, *prepared.encoded.dropped)
        if self._forward_constraint and request.constraint is not None and prepared.adapted.constraint is None:
            dropped = (*dropped, "response_format")
        return prepared._replace(dropped=dropped)

    async def post(self, prepared: PreparedRequest, headers: Mapping[str, str]) -> HttpResponse:
        """Return the endpoint's answer to `prepared`, sent with `headers`. The caller closes it."""
        if self._server is not None and self.resolution.profile.saves_prompts:
            await self._server.prompts.prepare(self.transport, prepared.encoded.body)
        return await self.transport.ask(
            "POST",
            self.base_url + self.wire.path(prepared.adapted),
            headers={**self.headers, **headers} if headers else self.headers,
            body=self._body(prepared.encoded),
            on_retry=self._tell_retry,
            server=self.base_url.removesuffix("/v1"),
        )

    def _encode(self, request: core.Request, plan: Plan) -> PreparedRequest:
        facts = self.resolution.profile
        spelled, names = request, NO_NAMES
        if plan.mode.declares == "prompt" and request.tools:
            spelled, names = spell_names(request, plan.dialect)
        adapted, dropped = adapt_request(self._lower(spelled, plan), facts)
        if adapted.canisters is not request.canisters:
            wire = self.wire.name
            unsent = message_fields(wire, request.canisters) - message_fields(wire, adapted.canisters)
            dropped = (*dropped, *unsent)
        encoded = encode_request(self.wire, adapted, facts)
        if names:
            encoded = msgspec.structs.replace(encoded, names={**encoded.names, **names})
        return PreparedRequest(request, adapted, encoded, dropped)

    def _body(self, encoded: EncodedRequest) -> bytes:
        return msgspec.json.encode(adapt_body(encoded.body, self.resolution.profile))

    def _constrained_plan(self) -> Plan:
        """Return a plan that enforces the tools' schemas, if possible, for a model that ignored the tool choice."""
        if not self.plan.supports_json_schema or self.plan.mode.declares == "constraint":
            return self.plan
        return plan_of_mode(self.resolution, "structured")

    def _lower(self, request: core.Request, plan: Plan) -> core.Request:
        completed = self._complete(request)
        lowered = lower_request(completed, plan)
        if self._forward_constraint and plan.mode.declares == "wire":
            return msgspec.structs.replace(lowered, constraint=completed.constraint)
        return lowered

    def _complete(self, request: core.Request) -> core.Request:
        """The request with the name that the endpoint knows, and with the profile's controls where it has none."""
        facts = self.resolution.profile
        controls = request.controls
        for fact in ("temperature", "max_tokens", "effort"):
            if getattr(controls, fact) is None and getattr(facts, fact) is not None:
                controls = msgspec.structs.replace(controls, **{fact: getattr(facts, fact)})
        return msgspec.structs.replace(
            request,
            model=self.resolution.model,
            controls=controls,
            stream=request.stream and facts.supports_streaming,
            extra={**self._extra, **request.extra},
        )

    def _escape(self, request: core.Request) -> core.Request:
        """Escape control tokens of the model's family, where its endpoint would take them for such."""
        facts = self.resolution.profile
        if not facts.parses_special_tokens:
            return request
        return escape_request(request, control_tokens(facts.control_tokens))

    def _tell_retry(self, attempt: int, why: str, delay: float) -> None:
        if self._tell is not None:
            self._tell(f"attempt {attempt}: {why}; trying again in {delay:.1f} s")

    # The way back.

    def stages(self, prepared: PreparedRequest, plan: Plan, observer: ExchangeObserver | None) -> core.Pipe:
        """Return the stages from bytes to events for the reply to `prepared` by `plan`. `observer` sees each frame."""
        decoder = self.wire.stream_decoder(self.decode_context(prepared))
        return pipe(SSEDecoder(), SSEPayloads(observer), decoder, *self._event_stages(prepared, plan))

    def decode(self, data: bytes, prepared: PreparedRequest, plan: Plan) -> list[core.Event]:
        """Return the events of a whole reply `data` to `prepared` by `plan`."""
        events = self.wire.decode_response(data, self.decode_context(prepared))
        for stage in self._event_stages(prepared, plan):
            events = [out for event in events for out in stage.feed(event)]
        return events

    def changes_reply(self, request: core.Request, prepared: PreparedRequest, plan: Plan) -> bool:
        """Return whether a stage after the wire's decoder may change the reply to `request`, sent as `prepared` by `plan`."""
        encoded = prepared.encoded
        return bool(
            encoded.names
            or encoded.rewritten
            or prepared.request is not request  # its control tokens were escaped
            or select_dialect(request, plan) is not None
            or create_choice_check(request, last=False) is not None
        )

    def decode_context(self, prepared: PreparedRequest) -> DecodeContext:
        """Return the names for the decoder of the reply to `prepared`."""
        request = prepared.request
        return DecodeContext(
            identify=_identify(request),
            names=prepared.encoded.names,
            declared=frozenset(tool.name for tool in request.tools),
            origin=self.resolution.model,
        )

    def _event_stages(self, prepared: PreparedRequest, plan: Plan) -> tuple[core.Stage[core.Event, core.Event], ...]:
        """Find calls in text, then give all calls as their tools were declared, and as if nothing was escaped."""
        request = prepared.request
        stages = self._watchers(request, plan, prepared.encoded.names)
        if prepared.encoded.rewritten:
            stages = (*stages, ArgumentRestorer(prepared.encoded))
        facts = self.resolution.profile
        if facts.parses_special_tokens:
            # After the watchers: they must not take an escaped marker for a call.
            tokens = control_tokens(facts.control_tokens)
            stages = (*stages, EventUnescaper(tokens, json_text=request.constraint is not None))
        if not select_dialect(request, plan):
            return stages
        # After the arguments are restored: the filter compares what the tool receives.
        return (*stages, DuplicateFilter(request.tools))

    def _watchers(
        self, request: core.Request, plan: Plan, names: Mapping[str, str]
    ) -> tuple[core.Stage[core.Event, core.Event], ...]:
        tools = request.tools
        dialect = select_dialect(request, plan)
        if dialect is None:
            return ()
        inside = plan.starts_in_reasoning
        quoted: Any = {"sources": self._sources_of(request), "quoted_calls": request.quoted_calls, "names": names}
        text = Watcher(dialect, tools, _identify(request, "t"), starts_in_reasoning=inside, **quoted)
        if plan.mode.declares == "constraint" and request.constraint is None:
            return (FormatCheck(text),)
        if not plan.calls_in_reasoning:
            return (text,)
        return Watcher(dialect, tools, _identify(request, "r"), watched=core.ReasoningPiece, **quoted), text

    def _sources_of(self, request: core.Request) -> Sources:
        """Return the conversation's sources, extending cached ones from earlier replies."""
        canisters = request.conversation or request.canisters
        if not self._reuse_sources or not canisters:
            return Sources(canisters)
        sources = Sources(canisters, self._sources.pop(id(canisters[0]), None))
        self._sources[id(canisters[0])] = sources
        while len(self._sources) > _MAX_CONVERSATIONS:
            del self._sources[next(iter(self._sources))]
        return sources


class RetryMerger:
    """Join the events of two attempts into one reply with one start and the total usage.

    Args:
        spent: The usage of the first attempt.
    """

    def __init__(self, spent: core.Usage) -> None:
        self._spent = spent
        self._is_counted = spent == core.Usage()

    def feed(self, event: core.Event, /) -> list[core.Event]:
        if isinstance(event, core.ReplyStarted):
            return []
        if isinstance(event, core.Usage):
            self._is_counted = True
            return [event + self._spent]
        if isinstance(event, (core.ReplyEnded, core.ReplyFailed)) and not self._is_counted:
            return [self._spent, event]
        return [event]


def _identify(request: core.Request, source: str = "") -> core.Identify:
    return identify_in_turn(len(request.canisters), source)


def _shows_picture(request: core.Request) -> bool:
    """Whether a picture or a file is what the user says last."""
    last = request.canisters[-1] if request.canisters else None
    content = last.content if isinstance(last, core.UserCanister | core.DocumentCanister) else ()
    return any(isinstance(part, core.PictureContent | core.FileContent) for part in content)
