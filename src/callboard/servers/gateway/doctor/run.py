"""Examine a backend through the gateway, as clients would use it, and directly.

The first check is whether the backend answers. The other checks form two groups. `clients` sends the clients' own
requests through the gateway, which learns facts from refusals. `backend` asks the backend without the gateway, which
would repair the faults that these checks look for.

Laws: a flag is named only if it was tried and cured the fault. Checks for which there is no time are reported as not
asked, and prove nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from callboard.core import Event, ReplyFailed
from callboard.errors import CallerError
from callboard.providers import HttpModel, Transport
from callboard.providers.backend_info import embedded_version, read_backend_info
from callboard.providers.lessons import LESSONS
from callboard.servers.gateway.backend import format_flags
from callboard.servers.gateway.doctor import probes
from callboard.servers.gateway.doctor.probes import BudgetSpent, DoctorBudget, ProbeReply, State
from callboard.servers.gateway.doctor.raw_backend import RawBackend, RawReply
from callboard.servers.gateway.doctor.raw_checks import CONTROL, RAW_CHECKS, Conclusion, RawCheck, Subject
from callboard.servers.gateway.exchange import ReplyRequest
from callboard.servers.gateway.frontends import FRONTENDS
from callboard.servers.gateway.gateway import Gateway
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.response_stream import take_notes
from callboard.servers.gateway.settings import BackendSettings, GatewaySettings

Started: TypeAlias = Callable[[str], None]
Ended: TypeAlias = Callable[["ReportRow"], None]
Group: TypeAlias = Literal["clients", "backend"]
GROUPS: Final[tuple[Group, ...]] = ("clients", "backend")
FACTS_FIRST: Final[tuple[Group, ...]] = ("backend", "clients")
"""The groups, with the more productive one first, because the time may not be enough for both."""
_IN_PROMPT: Final[Mapping[str, Any]] = {"mode": "validated"}
"""The fact that may help a client whose model does not call."""
_MANY_FAILURES: Final = 1_000_000
"""A failure threshold that is never reached: the breaker must not hide failures from the doctor."""
_MAX_REPLY: Final = 100_000
"""Maximum characters and events of one reply. The requests ask for a few hundred tokens."""
_CONNECT_SECONDS: Final = 5.0


class ReportRow(msgspec.Struct, frozen=True):
    """One line of the report. `fix` is a flag of `callboard serve` that helps, `dropped` names what does not arrive."""

    name: str
    state: State
    detail: str
    fix: str = ""
    dropped: tuple[str, ...] = ()


class DoctorReport(msgspec.Struct, frozen=True):
    """The result of an examination. `flags` are enough for each client that works, or that flags can make work.

    `facts` are the facts about the model, as a profile: the cure of a fault, the gateway's learned facts, and the
    results of the group `backend`. `evidence` has a sentence for each fact. `asked_facts` are the facts that were
    checked, with or without a result. `version` is the version that the backend reports.
    """

    model: str
    backend: tuple[ReportRow, ...]
    clients: tuple[ReportRow, ...]
    flags: tuple[str, ...]
    facts: Mapping[str, Any] = {}
    evidence: Mapping[str, str] = {}
    asked_facts: tuple[str, ...] = ()
    version: str = ""

    @property
    def works(self) -> bool:
        return bool(self.clients) and all(row.state == "yes" for row in self.clients)


async def examine(
    settings: BackendSettings,
    model: str,
    started: Started,
    ended: Ended,
    *,
    quick: bool = False,
    groups: Sequence[Group] = GROUPS,
    budget: DoctorBudget | None = None,
) -> DoctorReport:
    """Send a backend the requests of clients, and check its own features.

    Args:
        settings: The backend.
        model: The model. "" chooses the first one that the backend lists.
        started: Called before each check.
        ended: Called after each check.
        quick: Check only whether it answers and which clients can work.
        groups: The checks after the first one, in this order.
        budget: Maximum time and requests.

    Raises:
        CallerError: No model is known.
    """
    async with _gateway(settings) as gateway:
        model = model or next(iter(await gateway.models()), "")
        if not model:
            raise CallerError(
                "name a model: the backend lists none", path=settings.url, hint="is it running? if so, use --model NAME"
            )
        examination = _Examination(settings, model, gateway, budget or DoctorBudget(), started, ended)
        return await examination.run(quick=quick, groups=groups)


class _Examination:
    def __init__(  # noqa: PLR0917  # the arguments of `examine`
        self,
        settings: BackendSettings,
        model: str,
        gateway: Gateway,
        budget: DoctorBudget,
        started: Started,
        ended: Ended,
    ) -> None:
        self._settings = settings
        self._model = model
        self._gateway = gateway
        self._redactor = gateway.backends[0].redactor
        self._budget = budget
        self._started = started
        self._ended = ended
        self._rows: list[ReportRow] = []
        self._clients: list[ReportRow] = []
        self._facts: dict[str, Any] = {}
        self._evidence: dict[str, str] = {}
        self._itself_facts: dict[str, Any] = {}
        """Facts from checks of the backend itself. They override the gateway's facts."""
        self._asked_facts: set[str] = set()
        self._version = ""
        self._step = 0
        self._steps = 0

    async def run(self, *, quick: bool, groups: Sequence[Group]) -> DoctorReport:
        groups = ["clients"] if quick else groups
        sizes = {"clients": len(probes.CLIENTS), "backend": len(RAW_CHECKS)}
        self._steps = 1 + sum([sizes[group] for group in groups])
        await self._add(self._rows, "answers", self._examine_answer)
        if self._rows[0].state == "yes":
            for group in groups:
                await (self._examine_clients() if group == "clients" else self._examine_backend())
        facts = self._facts | self._itself_facts
        return DoctorReport(
            self._model,
            tuple(self._rows),
            tuple(self._clients),
            tuple([row.fix for row in self._clients if row.state == "no" and row.fix][:1]),
            facts,
            self._evidence,
            tuple(sorted(self._asked_facts | facts.keys())),
            self._version,
        )

    async def _add(self, rows: list[ReportRow], name: str, examine_one: Callable[[], Awaitable[ReportRow]]) -> None:
        """Add the row of one check, which is skipped if the budget is used up."""
        self._step += 1
        row = ReportRow(name, "not asked", self._budget.reason)
        if not self._budget.is_spent:
            self._started(f"{self._step}/{self._steps} {name}")
            try:
                row = await examine_one()
            except BudgetSpent:
                row = replace(row, detail=self._budget.reason)
        self._add_row(row, rows)

    def _add_row(self, row: ReportRow, rows: list[ReportRow]) -> None:
        rows.append(row)
        self._ended(row)

    def _add_learned(self, reply: ProbeReply, name: str) -> None:
        self._facts |= reply.learned
        for fact in reply.learned:
            self._evidence.setdefault(fact, f"{name}: a request was refused without it and accepted with it")

    async def _examine_answer(self) -> ReportRow:
        reply = await self._send_with(self._settings, "chat", probes.ANSWER)
        self._add_learned(reply, "answers")
        return ReportRow("answers", "no" if reply.failed else "yes", reply.fault, format_flags(reply.learned))

    async def _examine_clients(self) -> None:
        for name, (front, bodies) in probes.CLIENTS.items():
            await self._add(self._clients, name, partial(self._examine_client, name, front, bodies))
        if all(row.state == "yes" for row in self._clients):
            self._asked_facts |= {fact for lesson in LESSONS for fact in lesson.facts}

    async def _examine_client(self, name: str, front: str, bodies: tuple[probes.Body, probes.Body]) -> ReportRow:
        """Send a client's two requests. If they fail, try again with the tools in the prompt."""
        row = await self._run_client(self._settings, name, front, bodies)
        settings = replace(self._settings, **_IN_PROMPT)
        if row.state == "yes" or settings == self._settings:
            return row
        with suppress(BudgetSpent):
            again = await self._run_client(settings, name, front, bodies)
            if again.state == "yes":
                self._facts |= _IN_PROMPT
                self._evidence["mode"] = f"{name}: {row.detail}; with this fact it works"
                return replace(row, fix=format_flags(_IN_PROMPT), dropped=again.dropped)
        return row

    async def _examine_backend(self) -> None:
        """Run the checks without the gateway."""
        if self._settings.wire != "chat":
            row = ReportRow("the backend itself", "not asked", "these checks need the wire chat")
            self._add_row(row, self._rows)
            return
        backend = self._gateway.backends[0]
        name = backend.correct_name(self._model)
        model = backend.model(name)
        if not isinstance(model, HttpModel):  # such as a plugin's model
            return
        headers = {**model.headers, **backend.headers("")}
        # Retry once if a server closes a connection that was kept alive.
        transport = Transport(connect_timeout=_CONNECT_SECONDS, retries=1, statuses=())
        try:
            info = await read_backend_info(transport, model.base_url, headers, name)
            self._version = embedded_version() if self._settings.local else info.version
            raw = RawBackend(transport, model.base_url, headers, name, self._budget, redactor=self._redactor)
            if field := self._facts.get("max_tokens_field"):
                raw.renamed_fields["max_tokens"] = field
            subject = Subject(model.resolution.profile, info)
            for check in RAW_CHECKS:
                await self._add(self._rows, check.name, partial(self._examine_itself, check, raw, subject))
        finally:
            await transport.aclose()

    async def _examine_itself(self, check: RawCheck, raw: RawBackend, subject: Subject) -> ReportRow:
        replies: list[RawReply] = []
        for body in check.requests(subject):
            replies.append(await raw.ask(body))
            if check.stops and check.read(replies, subject).state == "yes":
                break
        conclusion = check.read(replies, subject)
        if conclusion.facts and any(reply.status >= 500 for reply in replies):
            # A server that is down refuses everything, which proves nothing.
            control = await raw.ask(CONTROL)
            conclusion = Conclusion("no", f"the backend fails: {control.fault}") if control.fault else conclusion
        if all(reply.is_answer for reply in replies):
            self._asked_facts |= {*check.facts}
        detail = self._redactor.text(conclusion.detail)
        self._itself_facts |= conclusion.facts
        self._evidence |= dict.fromkeys(conclusion.facts, f"{check.name}: {detail}")
        return ReportRow(check.name, conclusion.state, detail)

    async def _run_client(
        self, settings: BackendSettings, name: str, front: str, bodies: tuple[probes.Body, probes.Body]
    ) -> ReportRow:
        first = await self._send_with(settings, front, bodies[0])
        if first.failed is None and not first.calls:
            first = await self._send_with(settings, front, bodies[0])  # a second chance: sampling varies
        continued = first if first.failed else await self._send_with(settings, front, bodies[1])
        dropped = tuple(dict.fromkeys([*first.dropped, *continued.dropped]))
        if continued.failed:
            what = "" if first.failed else "after a result: "
            return ReportRow(name, "no", f"{what}{continued.fault}", dropped=dropped)
        if not first.calls:
            return ReportRow(name, "no", "the model does not call its tools", dropped=dropped)
        learned = {**first.learned, **continued.learned}
        if settings == self._settings:
            for reply in (first, continued):
                self._add_learned(reply, name)
        return ReportRow(name, "yes", first.call_form, format_flags(learned), dropped)

    async def _send_with(self, settings: BackendSettings, front: str, body: probes.Body) -> ProbeReply:
        seconds = self._budget.take()
        try:
            async with asyncio.timeout(seconds):
                if settings == self._settings:
                    return await _send(self._gateway, self._model, front, body)
                async with _gateway(settings) as gateway:
                    return await _send(gateway, self._model, front, body)
        except TimeoutError:
            return ProbeReply([ReplyFailed("provider", "timeout", f"no answer within {seconds:.1f} s")])


@asynccontextmanager
async def _gateway(settings: BackendSettings) -> AsyncGenerator[Gateway]:
    gateway = Gateway(GatewaySettings(backends=(settings,), failure_threshold=_MANY_FAILURES))
    try:
        yield gateway
    finally:
        await gateway.aclose()


async def _send(gateway: Gateway, model: str, front: str, body: probes.Body) -> ProbeReply:
    """Send one request through everything that a client's request passes, except the socket."""
    try:
        exchange = await gateway.exchange(ReplyRequest(front=FRONTENDS[front], body={**body, "model": model}))
    except HttpError as refusal:
        return ProbeReply([refusal.failure], refusal.status)
    backend = gateway.backends[0]
    name = backend.correct_name(model)
    before = backend.learned_facts(exchange.record.owner).get(name, {})
    events: list[Event] = []
    encoder = exchange.encoder()
    size = 0
    async with aclosing(exchange.batches()) as batches:
        async for batch in batches:
            for event in take_notes(exchange, batch):
                encoder.feed(event)
            events += batch
            size += sum([1 + len(getattr(event, "text", "")) for event in batch])
            if size > _MAX_REPLY:
                return ProbeReply([ReplyFailed("provider", "too_large", "its reply does not end at the token limit")])
    encoder.finish()
    record = exchange.record
    mode = backend.model(name, record.owner).plan.mode.name
    learned = {
        fact: each for fact, each in backend.learned_facts(record.owner).get(name, {}).items() if fact not in before
    }
    return ProbeReply(events, record.status, tuple(record.dropped), mode, learned)
