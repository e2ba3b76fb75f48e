"""Examine a backend as clients would use it.

Laws: every question goes the way of a client's request; a flag is named only if it was tried and cured the fault.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from callboard.core import Event, ReasoningPiece
from callboard.errors import CallerError
from callboard.servers.gateway.backend import format_flags
from callboard.servers.gateway.doctor import probes
from callboard.servers.gateway.doctor.checks import (
    QUESTIONS,
    STATES,
    TOOLS_IN_PROMPT,
    ProbeReply,
    Question,
    State,
    describe_failure,
    judge_call,
    judge_reply,
    readable_dialects,
)
from callboard.servers.gateway.exchange import ReplyRequest
from callboard.servers.gateway.frontends import frontends
from callboard.servers.gateway.gateway import Gateway
from callboard.servers.gateway.http_errors import HttpError
from callboard.servers.gateway.response_stream import take_notes
from callboard.servers.gateway.settings import BackendSettings, GatewaySettings

Started: TypeAlias = Callable[[str], None]
Ended: TypeAlias = Callable[["ReportRow"], None]
_MANY_FAILURES = 1_000_000
"""Failures after which the backend is no longer asked: here they are what is looked for."""


class ReportRow(msgspec.Struct, frozen=True):
    """One line of the report. `fix` is the flag of `callboard serve` that cures it, `dropped` what does not arrive."""

    name: str
    state: State
    detail: str
    fix: str = ""
    dropped: tuple[str, ...] = ()


class DoctorReport(msgspec.Struct, frozen=True):
    """`flags` are all that some client needs; with none of them every client `works`, or cannot be made to. `facts`
    are what was found out of the model, as a profile: what cured a fault, and what the gateway learned by itself;
    `evidence` says of each what showed it.
    """

    model: str
    backend: tuple[ReportRow, ...]
    clients: tuple[ReportRow, ...]
    flags: tuple[str, ...]
    facts: Mapping[str, Any] = {}
    evidence: Mapping[str, str] = {}

    @property
    def works(self) -> bool:
        return bool(self.clients) and all(row.state == "yes" for row in self.clients)


async def examine(
    settings: BackendSettings, model: str, started: Started, ended: Ended, *, quick: bool = False
) -> DoctorReport:
    """Asks the backend what clients would ask; `model` "" is the first that it lists. With `quick` it is asked whether
    it answers, and then what the clients themselves ask: enough to know who can work, not what else is lost.

    `started` is called before each question, `ended` after each answer. Raises CallerError where no model is known.
    """
    async with _gateway(settings) as gateway:
        model = model or next(iter(await gateway.models()), "")
        if not model:
            raise CallerError(
                "which model? the backend lists none", path=settings.url, hint="does it run? else say --model NAME"
            )
        questions = QUESTIONS[:1] if quick else QUESTIONS
        return await _Examination(settings, model, gateway, started, ended, questions).run()


class _Examination:
    """`_cured` are the settings with what turned out to be needed so far, `_flags` what differs."""

    def __init__(  # noqa: PLR0917  # made above only
        self,
        settings: BackendSettings,
        model: str,
        gateway: Gateway,
        started: Started,
        ended: Ended,
        questions: Sequence[Question],
    ) -> None:
        self._settings = self._cured_settings = settings
        self._model = model
        self._gateway = gateway
        self._started = started
        self._ended = ended
        self._questions = questions
        self._rows: list[ReportRow] = []
        self._flags: list[str] = []
        self._facts: dict[str, Any] = {}
        self._evidence: dict[str, str] = {}
        self._reasons = False
        self._step = 0

    async def run(self) -> DoctorReport:
        for question in self._questions:
            await self._examine_question(question)
            if self._rows[0].state == "no" and not self._rows[0].fix:
                return DoctorReport(self._model, tuple(self._rows), (), ())
        if len(self._questions) > 1:
            thinks = ReportRow(
                "tells thoughts apart", "yes" if self._reasons else "partly", "" if self._reasons else "none came"
            )
            self._add_row(thinks, self._rows)
        clients: list[ReportRow] = []
        for name, (front, bodies) in probes.CLIENTS.items():
            await self._examine_client(name, front, bodies, clients)
        needed = self._flags if any(row.state == "no" or row.fix for row in clients) else []
        return DoctorReport(self._model, tuple(self._rows), tuple(clients), tuple(needed), self._facts, self._evidence)

    def _add_facts(self, facts: Mapping[str, Any], evidence: str) -> None:
        self._facts |= facts
        self._evidence |= dict.fromkeys(facts, evidence)

    def _announce(self, name: str) -> None:
        self._step += 1
        self._started(f"{self._step}/{len(self._questions) + len(probes.CLIENTS)} {name}")

    def _add_row(self, row: ReportRow, rows: list[ReportRow]) -> None:
        rows.append(row)
        self._ended(row)

    async def _examine_question(self, question: Question) -> None:
        self._announce(question.name)
        reply = await self._send_with(self._cured_settings, "chat", question.body)
        self._reasons = self._reasons or reply.has(ReasoningPiece)
        state, detail = judge_reply(question, reply)
        fix = format_flags(reply.learned)
        self._add_facts(reply.learned, f"a request was refused without it and taken with it ({question.name})")
        dialect_remedies = readable_dialects(reply) if question.judge is judge_call else []
        for remedy in [] if state == "yes" else [*dialect_remedies, *question.remedies]:
            settings = remedy.apply(self._cured_settings)
            if settings == self._cured_settings:
                continue
            again = await self._send_with(settings, "chat", question.body)
            if STATES.index(judge_reply(question, again)[0]) > STATES.index(state):
                fix = remedy.flag
                if state == "no":
                    self._cured_settings = settings
                    self._flags.append(fix)
                    self._add_facts(remedy.as_profile, f"{question.name}: {detail}; with this fact it works")
                break
        self._add_row(ReportRow(question.name, state, detail, fix), self._rows)

    async def _examine_client(
        self, name: str, front: str, bodies: tuple[probes.Body, probes.Body], rows: list[ReportRow]
    ) -> None:
        """A client's two requests, and again with what was found to be needed where they fail."""
        self._announce(name)
        row = await self._run_client(self._settings, name, front, bodies)
        if row.state != "yes":
            tries = [
                (self._cured_settings, self._flags),
                (TOOLS_IN_PROMPT.apply(self._cured_settings), [*self._flags, TOOLS_IN_PROMPT.flag]),
            ]
            for settings, flags in tries:
                if settings == self._settings:
                    continue
                again = await self._run_client(settings, name, front, bodies)
                if again.state == "yes":
                    row = replace(row, fix=" ".join(flags), dropped=again.dropped)
                    self._flags = list(flags)
                    break
        self._add_row(row, rows)

    async def _run_client(
        self, settings: BackendSettings, name: str, front: str, bodies: tuple[probes.Body, probes.Body]
    ) -> ReportRow:
        first = await self._send_with(settings, front, bodies[0])
        if first.failed is None and not first.calls:
            first = await self._send_with(settings, front, bodies[0])  # a model may have a bad moment
        continued = first if first.failed else await self._send_with(settings, front, bodies[1])
        dropped = tuple(dict.fromkeys([*first.dropped, *continued.dropped]))
        if failed := continued.failed:
            what = "" if first.failed else "after a result: "
            return ReportRow(name, "no", f"{what}{describe_failure(continued, failed)}", dropped=dropped)
        if not first.calls:
            return ReportRow(name, "no", "the model does not call its tools", dropped=dropped)
        return ReportRow(name, "yes", judge_call(first)[1], dropped=dropped)

    async def _send_with(self, settings: BackendSettings, front: str, body: probes.Body) -> ProbeReply:
        if settings == self._settings:
            return await _send(self._gateway, self._model, front, body)
        async with _gateway(settings) as gateway:
            return await _send(gateway, self._model, front, body)


@asynccontextmanager
async def _gateway(settings: BackendSettings) -> AsyncGenerator[Gateway]:
    gateway = Gateway(GatewaySettings(backends=(settings,), failure_threshold=_MANY_FAILURES))
    try:
        yield gateway
    finally:
        await gateway.aclose()


async def _send(gateway: Gateway, model: str, front: str, body: probes.Body) -> ProbeReply:
    """One request, through all that a client's goes through but the socket."""
    try:
        exchange = await gateway.exchange(ReplyRequest(front=frontends()[front], body={**body, "model": model}))
    except HttpError as refusal:
        return ProbeReply([refusal.failure], refusal.status)
    backend = gateway.backends[0]
    name = backend.correct_name(model)
    before = backend.learned_facts(exchange.record.owner).get(name, {})
    events: list[Event] = []
    encoder = exchange.encoder()
    async with aclosing(exchange.batches()) as batches:
        async for batch in batches:
            for event in take_notes(exchange, batch):
                encoder.feed(event)
            events += batch
    encoder.finish()
    record = exchange.record
    mode = backend.model(name, record.owner).plan.mode.name
    learned = {
        fact: each for fact, each in backend.learned_facts(record.owner).get(name, {}).items() if fact not in before
    }
    kind = record.headers.get("Content-Type", "")
    return ProbeReply(events, record.status, kind, tuple(record.dropped), exchange.request, mode, learned)
