"""A run as a state machine: events in, actions out.

Theory of operation
-------------------

A run alternates between a model that replies and tools that run. `Loop` decides what follows; whoever drives it (an
`agent.Run`, the gateway's tool loop) does the work. The driver calls `start` or `resume`, does each action that it
gets, and feeds back the events of that work with the time at which they happened. The loop does no I/O and reads no
clock, so a run can be replayed from its events.

The state says what the loop waits for, and so which events mean anything to it. Every other event is ignored: a
provider may send more than it should, and that must not decide anything.

    idle          start, resume, recover
    replying      the events of a reply; ReplyEnded and ReplyFailed end it
    asking        an ApprovalAnswered for each call that a person is asked about
    running       a ResultReady for each call of the reply
    checking      answer_check, for the text of a reply that would end the run
    handing_over  go_on, of the loop of the agent that takes the conversation over
    ended         nothing

An action leads from one state to the next, as `_NEXT` has it: no event changes the state by itself. The usual circle is
replying, (asking,) running, replying; it is left with a `Finish`. The table is checked for each action, so an action
that cannot follow is an error here and not a run that hangs.

What a reply leads to is decided when it has ended, never before: text ahead of a call ends no run, and a reply that
breaks off in a call runs nothing. The order of the questions is that of `_decide`:

1. Did it call? Then calls that cannot run, may not run, or repeat earlier ones get their results here; people are
   asked about others; the rest runs together. The driver executes calls that have a result already as well
   (`Execute.answered`), so that all results come in the order of the calls.
2. Was it cut, filtered, or refused? Then the run ends with what it said.
3. Did it say nothing? Then it is asked again, `MAX_EMPTY` times, or `MAX_THOUGHTS` times where it thought.
4. Did it rest on a result that the model wrote itself, or is it in none of the formats that were asked for, or does the
   output check complain? Then the model reads why and replies again, `Limits.output_retries` times.

Limits end a run in two ways. Where rounds, calls or errors are used up, one last reply is asked for without tools
(`_is_last`), so that the run has an answer; where tokens, cost or time are, nothing more is asked for. Either way the
run is "incomplete".

A run that was interrupted goes on where its conversation ends (`recover`): after what the user or the tools said with
the next reply, after a reply's text with the check of it. The calls of the last reply pass `_permit` as those of a fresh
reply do, with the results that they have; the replies before are counted again (`recall`), so that limits and repeated
calls are judged as if nothing had happened.

Laws (tests/loop): every invocation in the transcript gets its result, or is pending at the run's end; the work for an
event is constant, but for one copy of the transcript for each reply that is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from callboard import core
from callboard.loop.actions import Action, AskApproval, CallModel, CheckOutput, Execute, Finish, HandOver
from callboard.loop.limits import Budget, Limits
from callboard.loop.pending_calls import CalledTurn, PendingCalls
from callboard.profiles import Pricing
from callboard.tools import Invoker, Permission, Policy, check_call, denial, edited_invocation, judge_call

if TYPE_CHECKING:
    from callboard.loop.repeat_guard import RepeatGuard

State: TypeAlias = Literal["idle", "replying", "asking", "running", "checking", "handing_over", "ended"]
"""What a loop waits for."""

_NEXT: Final[Mapping[tuple[State, type[Action]], State]] = {
    ("idle", CallModel): "replying",
    ("idle", AskApproval): "asking",
    ("idle", Execute): "running",
    ("idle", CheckOutput): "checking",
    ("idle", Finish): "ended",
    ("replying", CallModel): "replying",
    ("replying", AskApproval): "asking",
    ("replying", Execute): "running",
    ("replying", CheckOutput): "checking",
    ("replying", Finish): "ended",
    ("asking", AskApproval): "asking",
    ("asking", Execute): "running",
    ("asking", Finish): "ended",
    ("running", CallModel): "replying",
    ("running", HandOver): "handing_over",
    ("running", Finish): "ended",
    ("checking", CallModel): "replying",
    ("checking", Finish): "ended",
    ("handing_over", CallModel): "replying",
    ("handing_over", Finish): "ended",
    ("ended", Finish): "ended",
}
"""The state after an action, by the state before it."""

MAX_EMPTY = 2
"""Empty replies in a row that end a run."""
MAX_THOUGHTS = 4
"""Replies in a row that were thoughts only."""

AnswerAfter: TypeAlias = Literal["model", "results"]
"""When the last reply is asked for: when the model makes no more calls, or once its calls have results."""

MAX_REPEATED = 3
"""Rounds in a row of nothing but repeated calls, before a last reply is asked for."""

QuotedCalls: TypeAlias = Literal["ask", "run"]
"""Whether a person is asked about a call that repeats a source of the conversation, or it runs as any other."""

GO_ON = "Go on."
"""A user message behind a reply that decides nothing: llama.cpp takes a last message of the model's for a prefill."""

_BESIDE_RESULTS = (
    "Part of your last reply was cut, for you had written a result of a call yourself. "
    "Results come from the tools alone, and this is what they gave:"
)
_WITHOUT_RESULTS = (
    "Your reply was cut, for you had written a result of a call yourself: no tool gave it. "
    "Call the tool and wait for what it gives, or answer without it."
)

_SHORTFALLS: Mapping[core.Ending, str] = {
    "length": "the reply reached its length limit",
    "filter": "the provider's filter ended the reply",
    "no_call": "no tool was called although one was asked for",
}


class LoopRules(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent brings to a loop besides its tools."""

    policy: Policy = Policy()
    """Which calls run, which are denied, and which a person is asked about."""
    prices: Pricing | None = None
    """Make the cost of the tokens; without them it is unknown."""
    answer_after: AnswerAfter = "model"
    """When the last reply is asked for."""
    checks_output: bool = False
    """Ask the driver (CheckOutput) about each text that would end the run."""
    validates: bool = True
    """Validate the arguments of calls that are deferred or asked about; False leaves them as they are (mode parsed)."""
    quoted_calls: QuotedCalls = "ask"
    """With "ask", a person is asked about a call that repeats a source, whatever the policy allows."""


class Loop:
    """The state machine of a run.

    `transcript` grows by what happens; `usage` and `cost` are sums over the replies.

    Args:
        canisters: The conversation so far.
        invokers: The tools by the names that models call them.
        rules: What the agent allows and asks for.
        limits: The bounds of the run.
        guard: Answers calls that were made before in the run; without one they run again.
        outer: The budget of the run that this one is within, which it takes of as well.
        after: The loop of the agent that handed the conversation over: its transcript, rounds and limits go on.
    """

    def __init__(
        self,
        canisters: Iterable[core.Canister],
        invokers: Mapping[str, Invoker],
        *,
        rules: LoopRules = LoopRules(),  # noqa: B008  # it is frozen
        limits: Limits | None = None,
        guard: RepeatGuard | None = None,
        outer: Budget | None = None,
        after: Loop | None = None,
    ) -> None:
        self.state: State = after.state if after else "idle"
        self.transcript: list[core.Canister] = after.transcript if after else [*canisters]
        self.rounds: int = after.rounds if after else 0
        self.budget: Budget = after.budget if after else Budget(limits or Limits(), rules.prices, outer)
        self.limits = self.budget.limits
        self.deadline: datetime | None = after.deadline if after else None
        self._begun: datetime | None = after._begun if after else None  # noqa: SLF001  # of the same class
        """When the run began, or would have begun without its interruptions."""
        self.errors: int = after.errors if after else 0
        """Results with an error, one after another."""
        self._invokers = invokers
        self._rules = rules
        self._guard = guard
        # Of the reply that arrives.
        self._fold = core.Fold()
        self._reply: list[core.Canister] = []
        self._reply_usage = core.Usage()
        self._cut_calls: dict[str, str] = {}
        """Why calls did not become whole, by their identifiers."""
        self._has_hallucinated = False
        """Whether a result that the model wrote itself was cut out of the reply."""
        self._format_complaint = ""
        """What the model reads of a reply that has none of the formats that were asked for."""
        self._cut_reply = ""
        """Why a filter ended the reply."""
        self._unchecked = ""
        """The text that the driver is asked about."""
        # Of its calls.
        self._calls = PendingCalls()
        self._repeated: dict[str, core.ResultCanister] = {}
        """The results of calls that were made before, by their identifiers."""
        self._counted = 0
        """Those of them that the budget has counted."""
        self._following: list[core.Canister] = []
        """What follows the results of calls that waited in the history."""
        # Of the run.
        self._is_last = False
        """Whether the reply that is asked for is to answer without any call."""
        self._shortfall = ""
        """Why the run will not have completed, however it goes on."""
        self._repeated_rounds = 0
        """Rounds in a row of nothing but repeated calls."""
        self._empty = 0
        """Replies in a row that said nothing."""
        self._thoughts = 0
        """Replies in a row that only thought."""
        self._refused = 0
        """Replies in a row that the model was asked to make again."""

    @property
    def usage(self) -> core.Usage:
        """The tokens of all replies so far, those of runs within this one among them."""
        return self.budget.usage

    @property
    def cost(self) -> float | None:
        """The cost so far, None without prices."""
        return self.budget.cost

    def start(self, now: datetime) -> list[Action]:
        """The first actions of the run."""
        self._set_deadline(now)
        # A run within another one may find that one's limits used up.
        if exhausted := self._exhaustion_reason(now):
            return self._move([Finish("incomplete", "", exhausted)])
        self._is_last = not self.limits.rounds
        return self._move([self._call_model()])

    def resume(
        self,
        invocations: Iterable[core.InvocationCanister],
        answered: Mapping[str, core.ResultCanister],
        following: Iterable[core.Canister],
        now: datetime,
    ) -> list[Action]:
        """Begin with calls of the history that wait.

        Args:
            invocations: The calls.
            answered: Results of some of them, by their identifiers; each of the others waits for an ApprovalAnswered.
            following: What follows their results in the conversation.
            now: The time.

        Returns:
            The actions. What the rules deny by now, and what does not fit, waits for no answer.
        """
        self._set_deadline(now)
        self._following = [*following]
        current = self._calls = PendingCalls(invocations)
        for invocation in current.invocations:
            result = answered.get(invocation.identifier) or check_call(invocation, self._invokers)
            result = result or self._denial(invocation, *self._apply_policy(invocation))
            if result is None:
                current.questions[invocation.identifier] = invocation
            else:
                current.answered[invocation.identifier] = result
        if current.questions:
            self.state = _NEXT[self.state, AskApproval]
            return []
        return self._move(self._execute(now))

    def recall(self, turn: CalledTurn) -> str:
        """Count an earlier reply of a run that goes on. The name of the handoff that it called, if it did."""
        self.rounds += 1
        self._repeated = {} if self._guard is None else self._guard.answers(turn.invocations)
        return self._count_results(turn.pairs)

    def recover(
        self, progress: core.RunProgress, turn: CalledTurn | None, decided: Collection[str], now: datetime
    ) -> list[Action]:
        """Go on with a run that was interrupted.

        Args:
            progress: What was saved of it.
            turn: Its last reply, if that called and nothing but results followed. They leave the transcript until the
                others have theirs as well.
            decided: The identifiers of calls that a person has decided about: the driver is asked about these, whatever
                the rules say by now, unless they deny.
            now: The time.

        Returns:
            The actions.
        """
        self._set_deadline(now - timedelta(seconds=progress.seconds))
        self.budget.go_on(progress)
        self.rounds, self._shortfall = progress.rounds, progress.shortfall
        self._is_last = progress.is_last or not self.limits.rounds
        self._refused, self._empty, self._thoughts = progress.refused, progress.empty, progress.thoughts
        if progress.state:
            return self._move([Finish(progress.state, progress.output, progress.why)])
        if turn is not None:
            del self.transcript[turn.end :]
            self._calls = PendingCalls(turn.invocations, decided)
            self._calls.answered.update(turn.results)
            self.budget.add_calls(len(turn.results))
            self._counted = len(turn.results)
            return self._move(self._permit(now))
        if ends_with_model(self.transcript):
            replies = [each for each in self.transcript if isinstance(each, core.AssistantCanister)]
            self._unchecked = replies[-1].text
            return self._move([CheckOutput(self._unchecked)])
        return self._move(self._next_round(now))

    def progress(self, now: datetime, finish: Finish | None = None) -> core.RunProgress:
        """What the run goes on with if it is interrupted now, or when it does what `finish` says."""
        over = finish if finish is not None and finish.state != "pending" else None
        return core.RunProgress(
            rounds=self.rounds - (self.state == "replying"),
            calls=self.budget.calls - self._counted,
            usage=self.usage,
            cost=self.budget.spent,
            is_priced=self.cost is not None,
            seconds=(now - self._begun).total_seconds() if self._begun else 0.0,
            refused=self._refused,
            empty=self._empty,
            thoughts=self._thoughts,
            is_last=self._is_last,
            shortfall=self._shortfall,
            state=over.state if over else "",
            output=over.output if over else "",
            why=over.why if over else "",
        )

    def complete_result(self, result: core.ResultCanister) -> core.ResultCanister:
        """The result of a call that has just ended, with what the transcript will say above it."""
        result = self._calls.mark_edited(result)
        first = self._calls.running[0].identifier if self._has_hallucinated else ""
        return _beside_results(result) if result.invocation_id == first else result

    def go_on(self, now: datetime) -> list[Action]:
        """The next actions of a loop that another one's conversation was handed over to."""
        return self._move(self._next_round(now))

    def answer_check(self, complaint: str, now: datetime) -> list[Action]:
        """The actions that follow from a CheckOutput; an empty complaint accepts the text."""
        text, self._unchecked = self._unchecked, ""
        return self._move(self._complain(complaint, text, now) if complaint else [Finish("completed", text)])

    def feed(self, event: core.Event, now: datetime) -> list[Action]:
        """The actions that follow from an event."""
        state = self.state
        if state == "replying":
            actions = self._feed_reply(event, now)
        elif state == "running" and isinstance(event, core.ResultReady):
            actions = self._end_calls(now) if self._calls.take(event.canister) else []
        elif state == "asking" and isinstance(event, core.ApprovalAnswered):
            actions = self._take_answer(event, now)
        else:
            return []
        return self._move(actions) if actions else actions

    def stop(self, now: datetime, why: str = "cancelled", state: core.RunState = "cancelled") -> Finish:
        """End the run from outside: what was said is kept, and a call without a result gets one that says why."""
        self._reply += self._fold.finish("cancelled")
        text = self._keep_reply(now) if self._reply else self._unchecked
        self._settle_calls("the run was cancelled" if state == "cancelled" else f"the run ended: {why}", now)
        self.state = "ended"
        return Finish(state, text, why)

    def roll_back(self, to: int) -> None:
        """The conversation goes on from its first `to` canisters."""
        self.transcript = self.transcript[:to]
        self._calls = PendingCalls()

    def _move(self, actions: list[Action]) -> list[Action]:
        for action in actions:
            self.state = _NEXT[self.state, type(action)]
        return actions

    def _set_deadline(self, begun: datetime) -> None:
        self._begun = begun
        if self.limits.seconds is not None:
            self.deadline = begun + timedelta(seconds=self.limits.seconds)

    # Replies.

    def _call_model(self) -> CallModel:
        self.rounds += 1
        self._has_hallucinated, self._format_complaint, self._cut_reply = False, "", ""
        return CallModel(self.rounds, tuple(self.transcript), self._is_last)

    def _feed_reply(self, event: core.Event, now: datetime) -> list[Action]:
        self._reply += self._fold.feed(event)
        match event:
            case core.TextPiece() | core.ReasoningPiece() | core.ArgumentsPiece():  # most events, so they come first
                pass
            case core.Usage():
                # Some providers send it with every piece; the last one counts.
                self._reply_usage = event
            case core.InvocationIncomplete(identifier=identifier, why=why):
                self._cut_calls[identifier] = why
            case core.Note(code="hallucinated_result"):
                self._has_hallucinated = True
            case core.Note(code="repetition", text=text):
                self._cut_reply = text
            case core.Note(code="format", text=text):
                self._format_complaint = f"Error: {text}"
            case core.ReplyEnded(reason="retry"):
                self._count_usage(now)
                self._reply = []
                self._has_hallucinated, self._format_complaint = False, ""
            case core.ReplyEnded(reason=reason):
                return self._decide(self._keep_reply(now, is_whole=True), reason, now)
            case core.ReplyFailed(message=message):
                text = self._keep_reply(now)
                self._settle_calls("the reply failed before the call could run", now)
                return [Finish("failed", text, message)]
            case _:
                pass
        return []

    def _count_usage(self, now: datetime, *, is_whole: bool = False) -> None:
        """Count what the reply took. One that did not come whole may have cost nothing."""
        if is_whole or self._reply_usage != core.Usage():
            self.budget.add(self._reply_usage, self._rules.prices, now)
        self._reply_usage = core.Usage()

    def _keep_reply(self, now: datetime, *, is_whole: bool = False) -> str:
        """The reply goes into the transcript. Its text."""
        self._count_usage(now, is_whole=is_whole)
        reply, self._reply = [replace(each, timestamp=now) for each in self._reply], []
        reply = _separate_identifiers(reply)
        self.transcript += reply
        self._calls = PendingCalls([each for each in reply if isinstance(each, core.InvocationCanister)])
        return "".join([each.text for each in reply if isinstance(each, core.AssistantCanister)])

    def _decide(self, text: str, reason: core.Ending, now: datetime) -> list[Action]:
        if self._calls.invocations and self._is_last:
            self._settle_calls("no more calls are taken in this run", now)
            return [Finish("incomplete", text, self._shortfall or "the model called instead of answering")]
        if self._calls.invocations:
            self._refused = self._empty = self._thoughts = 0
            return self._permit(now)
        why = self._shortfall or self._cut_reply or _SHORTFALLS.get(reason, "")
        if not (text or why or self._has_hallucinated or reason == "refusal"):
            return self._ask_again(now)
        self._empty = self._thoughts = 0
        if why or reason == "refusal":
            return [Finish("incomplete" if why else "completed", text, why)]
        if complaint := _WITHOUT_RESULTS if self._has_hallucinated else self._format_complaint:
            return self._complain(complaint, text, now)
        if self._rules.checks_output:
            self._unchecked = text
            return [CheckOutput(text)]
        return [Finish("completed", text)]

    def _complain(self, complaint: str, text: str, now: datetime) -> list[Action]:
        """Tell the model what is wrong with its reply, as often as may be."""
        self._refused += 1
        if self._refused > self.limits.output_retries or self.rounds > self.limits.rounds:
            return [Finish("incomplete", text, complaint)]
        if exhausted := self._exhaustion_reason(now):
            return [Finish("incomplete", text, exhausted)]
        self.transcript.append(core.UserCanister(core.contents(complaint), timestamp=now))
        return self._next_round(now)

    def _ask_again(self, now: datetime) -> list[Action]:
        """A reply that neither called nor said anything: at most a thought."""
        last = self.transcript[-1]
        thought = isinstance(last, core.AssistantCanister) and any(
            isinstance(each, core.ReasoningContent) for each in last.content
        )
        self._thoughts += thought
        self._empty += not thought
        if self._empty == MAX_EMPTY or self._thoughts == MAX_THOUGHTS or self._is_last:
            what = "thought without answering" if thought else "replied nothing"
            return [Finish("incomplete", "", f"the model {what}")]
        if over := self._exhaustion_reason(now):
            return [Finish("incomplete", "", over)]
        if ends_with_model(self.transcript):
            self.transcript.append(core.UserCanister(core.contents(GO_ON), timestamp=now))
        return self._next_round(now)

    # Invocations.

    def _permit(self, now: datetime) -> list[Action]:
        """Answer the calls that do not run, and ask about those that need a person."""
        questions: list[Action] = []
        current = self._calls
        self._repeated = {} if self._guard is None else self._guard.answers(current.invocations)
        for invocation in current.invocations:
            identifier = invocation.identifier
            if identifier in current.answered:  # before the run was interrupted
                continue
            cut = self._cut_calls.get(identifier, "")
            result = self._repeated.get(identifier) or check_call(invocation, self._invokers, cut)
            if result is not None:
                current.answered[identifier] = result
            else:
                questions += self._judge(invocation)
        return questions or self._execute(now)

    def _judge(self, invocation: core.InvocationCanister) -> list[Action]:
        """Deny the call, or ask about it, or defer it, or leave it to run."""
        current, identifier = self._calls, invocation.identifier
        invoker = self._invokers[invocation.name]
        permission, why = self._apply_policy(invocation)
        if permission == "allow" and identifier in current.decided:
            permission, why = "ask", "it was asked about before"
        if permission == "allow" and not invoker.deferred:
            return []
        # What waits is validated before: nobody is asked about a call, or answers one, that could not run.
        if result := self._denial(invocation, permission, why):
            current.answered[identifier] = result
        elif permission == "ask":
            current.questions[identifier] = invocation
            return [AskApproval(invocation, why)]
        else:
            current.defer(invocation)
        return []

    def _apply_policy(self, invocation: core.InvocationCanister) -> tuple[Permission, str]:
        rules = self._rules
        invoker = self._invokers[invocation.name]
        return judge_call(invocation, invoker, rules.policy, asks_quoted=rules.quoted_calls == "ask")

    def _denial(
        self, invocation: core.InvocationCanister, permission: Permission, why: str
    ) -> core.ResultCanister | None:
        if permission not in ("allow", "ask"):
            return denial(invocation, why)
        if not self._rules.validates:
            return None
        mistake = self._invokers[invocation.name].find_mistake(invocation.arguments or {})
        return core.error_result(invocation.identifier, "validation", mistake) if mistake else None

    def _take_answer(self, answer: core.ApprovalAnswered, now: datetime) -> list[Action]:
        """Only "allow" lets the call run."""
        current = self._calls
        invocation = current.questions.pop(answer.invocation.identifier, None)
        if invocation is None:
            return []
        if answer.verdict not in ("allow", "defer"):
            quoted = bool(invocation.quoted_from) and self._rules.quoted_calls == "ask"
            denied = denial(invocation, answer.why or "the answer was no", quoted=quoted)
            current.answered[invocation.identifier] = denied
        elif answer.verdict == "allow" and answer.arguments is not None:
            self._edit(invocation, answer.arguments)
        elif answer.verdict == "defer" or self._invokers[invocation.name].deferred:
            current.defer(invocation)
        return [] if current.questions else self._execute(now)

    def _edit(self, invocation: core.InvocationCanister, arguments: Mapping[str, Any]) -> None:
        """A person's arguments run in the place of the model's, if they fit and no rule denies them."""
        invoker, rules = self._invokers[invocation.name], self._rules
        edited = edited_invocation(invocation, arguments, invoker, rules.policy, validated=rules.validates)
        if isinstance(edited, core.ResultCanister):
            self._calls.answered[invocation.identifier] = edited
        else:
            self._calls.edited[invocation.identifier] = edited

    def _hands_over(self, invocation: core.InvocationCanister) -> bool:
        return invocation.name in self._invokers and self._invokers[invocation.name].hands_over

    def _refuse_handoffs(self) -> None:
        """A conversation has one agent, and is handed over whole."""
        current = self._calls
        why = "calls of the same reply wait for their results" if current.deferred else ""
        for invocation in current.running:
            if invocation.identifier in current.answered or not self._hands_over(invocation):
                continue
            if why:
                text = f"the conversation was not handed over: {why}"
                current.answered[invocation.identifier] = core.error_result(invocation.identifier, "execution", text)
            why = why or "another handoff of the same reply came first"

    def _execute(self, now: datetime) -> list[Action]:
        self._refuse_handoffs()
        running = self._calls.running
        count = len(running) - len(self._calls.answered)
        self.budget.add_calls(count)
        self._counted += count
        return [Execute(running, self._calls.answered)] if running else self._end_calls(now)

    def _end_calls(self, now: datetime) -> list[Action]:
        """The calls of a reply have their results, or wait for them beyond the run's end."""
        calls = self._calls
        pairs = [(invocation, result) for invocation, result in calls.results() if result is not None]
        results = [replace(result, timestamp=now) for _, result in pairs]
        if self._has_hallucinated and results:
            results[0] = _beside_results(results[0])
        self.transcript += results
        if calls.deferred:
            return [Finish("pending", "", f"{len(calls.deferred)} calls wait for their results")]
        agent = self._count_results(pairs)
        self._calls = PendingCalls()
        self._counted = 0
        self._append_following()
        if agent:
            return [HandOver(agent)]
        if (self._guard is not None and self._guard.ends_run and self._repeated_rounds) or (
            self._rules.answer_after == "results" and all(result.error is None for result in results)
        ):
            self._is_last = True
        return self._next_round(now)

    def _count_results(self, pairs: Sequence[tuple[core.InvocationCanister, core.ResultCanister]]) -> str:
        """Count the errors and the repetitions. The name of the handoff among the calls, if one succeeded."""
        for _, result in pairs:
            self.errors = 0 if result.error is None else self.errors + 1
        self._record_calls(pairs)
        return next((each.name for each, result in pairs if result.error is None and self._hands_over(each)), "")

    def _next_round(self, now: datetime) -> list[Action]:
        if exhausted := self._exhaustion_reason(now):
            return [Finish("incomplete", "", exhausted)]
        if not self._is_last and (shortfall := self._out_of_calls()):
            self._is_last, self._shortfall = True, shortfall
        return [self._call_model()]

    def _append_following(self) -> None:
        self.transcript += self._following
        self._following = []

    def _record_calls(self, pairs: Sequence[tuple[core.InvocationCanister, core.ResultCanister]]) -> None:
        if self._guard is None:
            return
        # A call that ran with other arguments is not the call that the model made.
        as_called = [pair for pair in pairs if pair[0].identifier not in self._calls.edited]
        self._guard.record(as_called, self._repeated, self.rounds)
        self._repeated_rounds = self._repeated_rounds + 1 if len(self._repeated) == len(pairs) else 0

    def _settle_calls(self, why: str, now: datetime) -> None:
        for invocation, result in self._calls.results():
            settled = result or core.error_result(invocation.identifier, "cancelled", why)
            self.transcript.append(replace(settled, timestamp=now))
        self._calls = PendingCalls()
        self._append_following()

    # Limits.

    def _out_of_calls(self) -> str:
        limits = self.limits
        if self.rounds >= limits.rounds:
            return f"no answer within {limits.rounds} rounds"
        if over := self.budget.out_of_calls():
            return over
        if limits.errors is not None and self.errors >= limits.errors:
            return f"{self.errors} errors one after another"
        if self._repeated_rounds >= MAX_REPEATED:
            return f"nothing but calls that were made before, in {self._repeated_rounds} rounds"
        return ""

    def _exhaustion_reason(self, now: datetime) -> str:
        if over := self.budget.exhaustion_reason():
            return over
        if self.deadline is not None and now >= self.deadline:
            return f"{self.limits.seconds:g} seconds are over"
        return ""

    @property
    def pending(self) -> tuple[core.InvocationCanister, ...]:
        """The invocations that have no result at the run's end."""
        return self._calls.pending


def ends_with_model(canisters: Sequence[core.Canister]) -> bool:
    """Whether nobody but a supervisor, whose words some templates put first, speaks behind the model."""
    last = next((each for each in reversed(canisters) if not isinstance(each, core.SupervisorCanister)), None)
    return isinstance(last, core.AssistantCanister)


def _beside_results(result: core.ResultCanister) -> core.ResultCanister:
    return replace(result, content=(core.TextualContent(_BESIDE_RESULTS), *result.content))


def _separate_identifiers(reply: list[core.Canister]) -> list[core.Canister]:
    """The reply, each of its calls with an identifier of its own: an answer about one call is none about another."""
    taken: set[str] = set()
    counts: Counter[str] = Counter()  # where the last search for a free one ended, so that none begins anew
    for place, each in enumerate(reply):
        if isinstance(each, core.InvocationCanister):
            identifier = each.identifier
            while identifier in taken:
                counts[each.identifier] += 1
                identifier = f"{each.identifier}_{counts[each.identifier] + 1}"
            taken.add(identifier)
            if identifier != each.identifier:
                reply[place] = replace(each, identifier=identifier)
    return reply
