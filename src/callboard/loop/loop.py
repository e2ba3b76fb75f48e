"""A run as a state machine.

Owns what follows from each event: which reply is asked for, which invocations run, when it is over.
Knows no wire, no dialect, no HTTP, and no clock: the time comes with the event.
Laws: only a completed reply decides anything, so text before a call never ends a run; every invocation
in the transcript gets its result, or is pending at the run's end; constant work an event, whatever the
history's length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec.structs import replace

from callboard.core import (
    ApprovalAnswered,
    AssistantCanister,
    Canister,
    Ending,
    Event,
    Fold,
    InvocationCanister,
    InvocationIncomplete,
    Note,
    ReasoningContent,
    ReplyEnded,
    ReplyFailed,
    ResultCanister,
    ResultReady,
    RunState,
    SupervisorCanister,
    TextualContent,
    Usage,
    UserCanister,
    contents,
    error_result,
)
from callboard.loop.actions import Action, AskApproval, CallModel, CheckOutput, Execute, Finish, HandOver
from callboard.loop.limits import Budget, Limits
from callboard.loop.pending_calls import PendingCalls
from callboard.profiles import OnRepeatedCall, Prices
from callboard.tools import Invoker, Permission, Policy, denial, edited_invocation, quotation_reason, refusal

if TYPE_CHECKING:
    from callboard.loop.repeat_guard import RepeatGuard

MAX_EMPTY = 2
"""Empty replies in a row that end a run."""
MAX_THOUGHTS = 4
"""Replies in a row that were thoughts only."""

AnswerAfter: TypeAlias = Literal["model", "results"]
"""When the last reply is asked for: when the model makes no more calls, or once its calls have results."""

MAX_REPEATED = 3
"""Rounds in a row of nothing but repeated calls, before a last reply is asked for, where the model is told of them."""


QuotedCalls: TypeAlias = Literal["ask", "run"]
"""What follows from a call that repeats a source of the conversation: somebody is asked, or it runs as any other."""

GO_ON = "Go on."
"""What the user says behind a reply that decides nothing: a last message of the model's is a prefill to llama.cpp."""

_BESIDE_RESULTS = (
    "Part of your last reply was cut, for you had written a result of a call yourself. "
    "Results come from the tools alone, and this is what they gave:"
)
_WITHOUT_RESULTS = (
    "Your reply was cut, for you had written a result of a call yourself: no tool gave it. "
    "Call the tool and wait for what it gives, or answer without it."
)

_SHORTFALLS: Mapping[Ending, str] = {
    "length": "the reply reached its length limit",
    "filter": "the provider's filter ended the reply",
    "no_call": "no tool was called although one was asked for",
}


class Loop:
    """Feeds on the events of replies, results and approvals; gives actions.

    `canisters` are the conversation so far, `invokers` what may be called; with `checks` each finish is asked about.
    `on_repeated_call` says what follows from a call that was made before in the run: "run" runs it again; "warn" does
    not if nothing has changed since, and tells the model to do something else, above the earlier result; "final_answer"
    gives the earlier result to a call that is idempotent or was made in the round before, and asks for a last reply
    if the whole reply was such calls. With `quoted_calls` "ask" a call that repeats a source is asked about, whatever
    the policy allows.
    `validated` False asks about calls and defers them as they are (mode parsed).
    `transcript` grows by what happens; `usage` and `cost` are sums over the replies. A run `within` another one takes
    of its budget too. A loop `after` another one is that of the agent which was handed the conversation: it goes on
    with its transcript, its rounds and its limits.
    """

    def __init__(
        self,
        canisters: Iterable[Canister],
        invokers: Mapping[str, Invoker],
        *,
        limits: Limits | None = None,
        policy: Policy | None = None,
        prices: Prices | None = None,
        answer_after: AnswerAfter = "model",
        checks: bool = False,
        on_repeated_call: OnRepeatedCall = "run",
        validated: bool = True,
        quoted_calls: QuotedCalls = "ask",
        within: Budget | None = None,
        after: Loop | None = None,
    ) -> None:
        self.transcript: list[Canister] = after.transcript if after else [*canisters]
        self.rounds: int = after.rounds if after else 0
        self.budget: Budget = after.budget if after else Budget(limits or Limits(), prices, within)
        self.limits = self.budget.limits
        self.deadline: datetime | None = after.deadline if after else None
        self._invokers = invokers
        self._policy = policy or Policy()
        self._prices = prices
        self._answer_after = answer_after
        self._checks = checks
        self._unchecked = ""
        """The text that is asked about."""
        self._validated = validated
        self._quoted_calls: QuotedCalls = quoted_calls
        self._guard: RepeatGuard | None = None
        if on_repeated_call != "run":
            from callboard.loop.repeat_guard import REPEAT_GUARDS  # noqa: PLC0415  # who does not ask for it does not load it

            self._guard = REPEAT_GUARDS[on_repeated_call](invokers)
        self._answers_repeated = on_repeated_call == "final_answer"
        self._told: dict[str, ResultCanister] = {}
        """What the calls of this round are answered with that were made before."""
        self._told_rounds = 0
        self._made_up = False
        self._no_format = ""
        """What the model is told of a reply that has none of the formats that were asked for."""
        self._fold = Fold()
        self._reply: list[Canister] = []
        self._reply_usage = Usage()
        self._cut: dict[str, str] = {}
        self._round = PendingCalls()
        self._behind: list[Canister] = []
        self._last = False
        self._shortfall = ""
        """Why the run will not have completed, however it goes on."""
        self.errors: int = after.errors if after else 0
        self._empty = 0
        self._thoughts = 0
        self._refused = 0

    @property
    def usage(self) -> Usage:
        """The tokens of all replies so far, those of runs within this one among them."""
        return self.budget.usage

    @property
    def cost(self) -> float | None:
        """The cost so far, None without prices."""
        return self.budget.cost

    def start(self, now: datetime) -> list[Action]:
        """The first actions of the run."""
        self._set_deadline(now)
        return [self._call_model()]

    def resume(
        self,
        invocations: Iterable[InvocationCanister],
        answered: Mapping[str, ResultCanister],
        behind: Iterable[Canister],
        now: datetime,
    ) -> list[Action]:
        """Begin with calls of the history that wait.

        Args:
            invocations: The calls.
            answered: Results of some of them, by their identifiers; each of the others waits for an ApprovalAnswered.
            behind: What follows their results in the conversation.
            now: The time.

        Returns:
            The actions. What the rules deny by now, and what does not fit, waits for no answer.
        """
        self._set_deadline(now)
        self._behind = [*behind]
        current = self._round = PendingCalls(invocations)
        for invocation in current.invocations:
            refused = answered.get(invocation.identifier) or self._refusal(invocation)
            if refused is None:
                current.asked[invocation.identifier] = invocation
            else:
                current.answered[invocation.identifier] = refused
        return [] if current.asked else self._execute(now)

    def go_on(self, now: datetime) -> list[Action]:
        """What is next where the calls of a reply have their results."""
        if over := self._exhausted(now):
            return [Finish("incomplete", "", over)]
        if not self._last and (shortfall := self._out_of_calls()):
            self._last, self._shortfall = True, shortfall
        return [self._call_model()]

    def _set_deadline(self, now: datetime) -> None:
        if self.limits.seconds is not None:
            self.deadline = now + timedelta(seconds=self.limits.seconds)

    def feed(self, event: Event, now: datetime) -> list[Action]:
        """The actions that follow from an event."""
        match event:
            case ResultReady(canister=result):
                return self._next_round(now) if self._round.take(result) else []
            case ApprovalAnswered():
                return self._take_answer(event, now)
            case Usage():
                # Some providers tell it with every piece; the last one counts.
                self._reply_usage = event
            case InvocationIncomplete(identifier=identifier, why=why):
                self._cut[identifier] = why
            case Note(code="hallucinated_result"):
                self._made_up = True
            case Note(code="format", text=text):
                self._no_format = f"Error: {text}"
            case _:
                pass
        self._reply += self._fold.feed(event)
        match event:
            case ReplyEnded(reason="retry"):
                self._end_reply()
                self._reply = []
                self._made_up, self._no_format = False, ""
            case ReplyEnded(reason=reason):
                said = self._keep_reply(now)
                return self._decide(said, reason, now)
            case ReplyFailed(message=message):
                said = self._keep_reply(now)
                self._settle("the reply failed before the call could run", now)
                return [Finish("failed", said, message)]
            case _:
                pass
        return []

    def stop(self, now: datetime, why: str = "cancelled", state: RunState = "cancelled") -> Finish:
        """The run is ended from outside: what was said is kept, what was called and has no result gets one."""
        self._reply += self._fold.finish("cancelled")
        said = self._keep_reply(now) if self._reply else self._unchecked
        self._settle("the run was cancelled" if state == "cancelled" else f"the run ended: {why}", now)
        return Finish(state, said, why)

    def roll_back(self, to: int) -> None:
        """The conversation goes on from its first `to` canisters."""
        self.transcript = self.transcript[:to]
        self._round = PendingCalls()

    # Replies.

    def _call_model(self) -> CallModel:
        self.rounds += 1
        self._made_up, self._no_format = False, ""
        return CallModel(self.rounds, tuple(self.transcript), self._last)

    def _end_reply(self) -> None:
        self.budget.add(self._reply_usage, self._prices)
        self._reply_usage = Usage()

    def _keep_reply(self, now: datetime) -> str:
        """The reply goes into the transcript. Its text."""
        self._end_reply()
        reply, self._reply = [replace(each, timestamp=now) for each in self._reply], []
        reply = _separate_identifiers(reply)
        self.transcript += reply
        self._round = PendingCalls([each for each in reply if isinstance(each, InvocationCanister)])
        return "".join([each.text for each in reply if isinstance(each, AssistantCanister)])

    def _decide(self, said: str, reason: Ending, now: datetime) -> list[Action]:
        if self._round.invocations and self._last:
            self._settle("no more calls are taken in this run", now)
            return [Finish("incomplete", said, self._shortfall or "the model called instead of answering")]
        if self._round.invocations:
            self._refused = self._empty = self._thoughts = 0
            return self._permit(now)
        why = self._shortfall or _SHORTFALLS.get(reason, "")
        if not (said or why or self._made_up or reason == "refusal"):
            return self._after_nothing(now)
        self._empty = self._thoughts = 0
        if why or reason == "refusal":
            return [Finish("incomplete" if why else "completed", said, why)]
        if complaint := _WITHOUT_RESULTS if self._made_up else self._no_format:
            return self._refuse(complaint, said, now)
        if self._checks:
            self._unchecked = said
            return [CheckOutput(said)]
        return [Finish("completed", said)]

    def answer_check(self, complaint: str, now: datetime) -> list[Action]:
        """What follows from what is wrong with the text that was asked about; nothing is wrong if it is empty."""
        said, self._unchecked = self._unchecked, ""
        return self._refuse(complaint, said, now) if complaint else [Finish("completed", said)]

    def _refuse(self, complaint: str, said: str, now: datetime) -> list[Action]:
        """The model is told what is wrong with its reply, as often as may be."""
        self._refused += 1
        if self._refused > self.limits.output_retries:
            return [Finish("incomplete", said, complaint)]
        if exhausted := self._exhausted(now):
            return [Finish("incomplete", said, exhausted)]
        self.transcript.append(UserCanister(contents(complaint), timestamp=now))
        return [self._call_model()]

    def _after_nothing(self, now: datetime) -> list[Action]:
        """A reply that neither called nor said anything: at most a thought."""
        last = self.transcript[-1]
        thought = isinstance(last, AssistantCanister) and any(
            isinstance(each, ReasoningContent) for each in last.content
        )
        self._thoughts += thought
        self._empty += not thought
        if self._empty == MAX_EMPTY or self._thoughts == MAX_THOUGHTS or self._last:
            what = "thought without answering" if thought else "replied nothing"
            return [Finish("incomplete", "", f"the model {what}")]
        if over := self._exhausted(now):
            return [Finish("incomplete", "", over)]
        if ends_with_model(self.transcript):
            self.transcript.append(UserCanister(contents(GO_ON), timestamp=now))
        return [self._call_model()]

    # Invocations.

    def _permit(self, now: datetime) -> list[Action]:
        """Settles what needs no running and asks for what needs a person."""
        questions: list[Action] = []
        current = self._round
        self._told = {} if self._guard is None else self._guard.answers(current.invocations)
        for invocation in current.invocations:
            identifier = invocation.identifier
            if identifier in self._told:
                current.answered[identifier] = self._told[identifier]
                continue
            refused = refusal(invocation, self._invokers, self._cut.get(identifier, ""))
            if refused is not None:
                current.answered[identifier] = refused
            else:
                questions += self._judge(invocation)
        return questions or self._execute(now)

    def _judge(self, invocation: InvocationCanister) -> list[Action]:
        """Denies the call, or asks about it, or defers it, or leaves it to run."""
        current, identifier = self._round, invocation.identifier
        invoker = self._invokers[invocation.name]
        permission, why = self._decided(invocation)
        if permission not in ("allow", "ask"):
            current.answered[identifier] = denial(invocation, why)
            return []
        if permission == "allow" and not invoker.deferred:
            return []
        # What waits is validated before: nobody is asked about a call, or answers one, that could not run.
        if mistake := invoker.mistake(invocation.arguments or {}) if self._validated else "":
            current.answered[identifier] = error_result(identifier, "validation", mistake)
        elif permission == "ask":
            current.asked[identifier] = invocation
            return [AskApproval(invocation, why)]
        else:
            current.defer(invocation)
        return []

    def _decided(self, invocation: InvocationCanister) -> tuple[Permission, str]:
        """What the policy decides; a call that repeats a source is not allowed by it alone."""
        permission, why = self._policy.decide(self._invokers[invocation.name], invocation.arguments)
        if not invocation.quoted_from or self._quoted_calls == "run" or permission not in ("allow", "ask"):
            return permission, why
        quoted = quotation_reason(invocation)
        return "ask", quoted if permission == "allow" else f"{why}; {quoted}"

    def _take_answer(self, answered: ApprovalAnswered, now: datetime) -> list[Action]:
        """Only "allow" lets the call run."""
        current = self._round
        invocation = current.asked.pop(answered.invocation.identifier, None)
        if invocation is None:
            return []
        if answered.verdict not in ("allow", "defer"):
            why = answered.why or "the answer was no"
            if invocation.quoted_from and self._quoted_calls == "ask":
                why = f"{quotation_reason(invocation)}, and {answered.why or 'nobody allowed it'}"
            current.answered[invocation.identifier] = denial(invocation, why)
        elif answered.verdict == "allow" and answered.arguments is not None:
            self._edit(invocation, answered.arguments)
        elif answered.verdict == "defer" or self._invokers[invocation.name].deferred:
            current.defer(invocation)
        return [] if current.asked else self._execute(now)

    def _edit(self, invocation: InvocationCanister, arguments: Mapping[str, Any]) -> None:
        """A person's arguments run in the place of the model's, if they fit and no rule denies them."""
        invoker = self._invokers[invocation.name]
        edited = edited_invocation(invocation, arguments, invoker, self._policy, validated=self._validated)
        place: dict[str, Any] = self._round.answered if isinstance(edited, ResultCanister) else self._round.edited
        place[invocation.identifier] = edited

    def _refusal(self, invocation: InvocationCanister) -> ResultCanister | None:
        """The result of a call that waited and cannot run by now, None for one that a person may allow."""
        if refused := refusal(invocation, self._invokers):
            return refused
        permission, why = self._decided(invocation)
        if permission not in ("allow", "ask"):
            return denial(invocation, why)
        mistake = self._invokers[invocation.name].mistake(invocation.arguments or {}) if self._validated else ""
        return error_result(invocation.identifier, "validation", mistake) if mistake else None

    def _hands_over(self, invocation: InvocationCanister) -> bool:
        return invocation.name in self._invokers and self._invokers[invocation.name].hands_over

    def _refuse_handoffs(self) -> None:
        """A conversation has one agent, and is handed over whole."""
        current = self._round
        why = "calls of the same reply wait for their results" if current.deferred else ""
        for invocation in current.running:
            if invocation.identifier in current.answered or not self._hands_over(invocation):
                continue
            if why:
                refused = error_result(
                    invocation.identifier, "execution", f"the conversation was not handed over: {why}"
                )
                current.answered[invocation.identifier] = refused
            why = why or "another handoff of the same reply came first"

    def _execute(self, now: datetime) -> list[Action]:
        self._refuse_handoffs()
        running = self._round.running
        self.budget.add_calls(len(running) - len(self._round.answered))
        return [Execute(running, self._round.answered)] if running else self._next_round(now)

    def _next_round(self, now: datetime) -> list[Action]:
        pairs = [(invocation, result) for invocation, result in self._round.results() if result is not None]
        results = [replace(result, timestamp=now) for _, result in pairs]
        if self._made_up and results:
            results[0] = replace(results[0], content=(TextualContent(_BESIDE_RESULTS), *results[0].content))
        self.transcript += results
        if self._round.deferred:
            return [Finish("pending", "", f"{len(self._round.deferred)} calls wait for their results")]
        for result in results:
            self.errors = 0 if result.error is None else self.errors + 1
        self._remember(pairs)
        self._round = PendingCalls()
        self._append_behind()
        handed = next((each.name for each, result in pairs if result.error is None and self._hands_over(each)), "")
        if handed:
            return [HandOver(handed)]
        sound = all(result.error is None for result in results)
        if (self._answers_repeated and self._told_rounds) or (sound and self._answer_after == "results"):
            self._last = True
        return self.go_on(now)

    def _append_behind(self) -> None:
        self.transcript += self._behind
        self._behind = []

    def _remember(self, pairs: Sequence[tuple[InvocationCanister, ResultCanister]]) -> None:
        if self._guard is None:
            return
        # A call that ran with other arguments is not the call that the model made.
        as_called = [pair for pair in pairs if pair[0].identifier not in self._round.edited]
        self._guard.record(as_called, self._told, self.rounds)
        self._told_rounds = self._told_rounds + 1 if len(self._told) == len(pairs) else 0

    def _settle(self, why: str, now: datetime) -> None:
        """Every invocation that has no result gets one that says why."""
        for invocation, result in self._round.results():
            settled = result or error_result(invocation.identifier, "cancelled", why)
            self.transcript.append(replace(settled, timestamp=now))
        self._round = PendingCalls()
        self._append_behind()

    # Limits.

    def _out_of_calls(self) -> str:
        """Why no more calls are taken, if so."""
        limits = self.limits
        if self.rounds >= limits.rounds:
            return f"no answer within {limits.rounds} rounds"
        if over := self.budget.out_of_calls():
            return over
        if limits.errors is not None and self.errors >= limits.errors:
            return f"{self.errors} errors one after another"
        if self._told_rounds >= MAX_REPEATED:
            return f"nothing but calls that were made before, in {self._told_rounds} rounds"
        return ""

    def _exhausted(self, now: datetime) -> str:
        """Why nothing more is asked for, if so."""
        if over := self.budget.exhausted():
            return over
        if self.deadline is not None and now >= self.deadline:
            return f"{self.limits.seconds:g} seconds are over"
        return ""

    @property
    def pending(self) -> tuple[InvocationCanister, ...]:
        """The invocations that have no result at the run's end."""
        return self._round.pending


def ends_with_model(canisters: Sequence[Canister]) -> bool:
    """Whether nobody but a supervisor, whose words some templates put first, speaks behind the model."""
    last = next((each for each in reversed(canisters) if not isinstance(each, SupervisorCanister)), None)
    return isinstance(last, AssistantCanister)


def _separate_identifiers(reply: list[Canister]) -> list[Canister]:
    """The reply, each of its calls with an identifier of its own: an answer about one call is none about another."""
    taken: set[str] = set()
    counts: Counter[str] = Counter()  # where the last search for a free one ended, so that none begins anew
    for place, each in enumerate(reply):
        if isinstance(each, InvocationCanister):
            identifier = each.identifier
            while identifier in taken:
                counts[each.identifier] += 1
                identifier = f"{each.identifier}_{counts[each.identifier] + 1}"
            taken.add(identifier)
            if identifier != each.identifier:
                reply[place] = replace(each, identifier=identifier)
    return reply
