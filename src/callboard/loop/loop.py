"""A run as a state machine: events in, actions out.

Theory of operation
-------------------

A run alternates between a model that replies and tools that run. `Loop` decides what happens next, and its driver (an
`agent.Run`, or the gateway's tool loop) does the work. The driver calls `start` or `resume`, performs each action that
it gets, and feeds back the events of that work with their times. The loop does no I/O and reads no clock, so a run can
be replayed from its events.

The state says what the loop waits for, and which events matter. All other events are ignored: a provider may send more
than it should, and that must not decide anything.

    idle          start, resume, recover
    replying      the events of a reply; ReplyEnded and ReplyFailed end it
    asking        an ApprovalAnswered for each call that a person is asked about
    running       a ResultReady for each call of the reply
    checking      answer_check, after the text of a reply that would end the run
    handing_over  go_on, of the loop of the next agent
    ended         nothing

An action leads from one state to the next, as in `_NEXT`. No event changes the state directly. The usual cycle is
replying, (asking,) running, replying; a `Finish` ends it. Each action is checked against the table, so an impossible
action is an error here instead of a run that hangs.

The loop decides about a reply when it has ended, never before: text before a call does not end a run, and a reply that
breaks off in a call runs nothing. `_decide` asks these questions in order:

1. Does the reply call? Then calls that cannot run, may not run, or repeat earlier ones get their results here. People
   are asked about others; the rest runs together. The driver also receives the calls that already have a result
   (`Execute.answered`), so that all results come in the order of the calls.
2. Was the reply cut, filtered, or refused? Then the run ends with its text.
3. Is the reply empty? Then the model is asked again, up to `MAX_EMPTY` empty replies or `MAX_THOUGHTS` mere thoughts.
4. Did the model invent a result, use none of the requested formats, or fail the output check? Then the model reads why
   and replies again, `Limits.output_retries` times.

Limits end a run in two ways. When rounds, calls or errors are used up, the model gives one last reply without tools
(`_is_last`), so that the run has an answer. When tokens, cost or time are used up, nothing more is requested. In both
cases the run is "incomplete".

An interrupted run resumes at the end of its conversation (`recover`). After a user message or tool results, that is the
next reply; after a reply's text, the check of the text. The calls of the last reply pass `_permit` like new calls, with
the results that they have. Earlier replies are counted again (`recall`), so limits and repeated calls are judged as
without the interruption.

Laws (tests/loop): every invocation in the transcript gets its result, or is pending at the end of the run. The work for
an event is constant, except for one copy of the transcript per requested reply.
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
"""The state of a loop: what it waits for."""

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
"""Number of empty replies in a row that ends the run."""
MAX_THOUGHTS = 4
"""Number of replies in a row with only thoughts that ends the run."""

AnswerAfter: TypeAlias = Literal["model", "results"]
"""When to ask for the last reply: when the model makes no more calls, or once its calls have results."""

MAX_REPEATED = 3
"""Maximum rounds in a row with only repeated calls, before the last reply is requested."""

QuotedCalls: TypeAlias = Literal["ask", "run"]
"""Whether a call that repeats a source of the conversation needs approval, or runs like any other call."""

GO_ON = "Go on."
"""A user message after an inconclusive reply: llama.cpp treats a final assistant message as a prefill."""

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
    """The settings that an agent brings to a loop, besides its tools."""

    policy: Policy = Policy()
    """Rules for calls: which run, which are denied, and which need approval."""
    prices: Pricing | None = None
    """Prices of tokens; without them the cost is unknown."""
    answer_after: AnswerAfter = "model"
    """When to ask for the last reply."""
    checks_output: bool = False
    """Whether the driver checks (CheckOutput) each text that would end the run."""
    validates: bool = True
    """Whether to validate the arguments of deferred calls and of calls that need approval; False in mode parsed."""
    quoted_calls: QuotedCalls = "ask"
    """With "ask", a call that repeats a source needs approval, even if the policy allows it."""


class Loop:
    """The state machine of a run.

    `transcript` grows during the run; `usage` and `cost` are sums over the replies.

    Args:
        canisters: The conversation so far.
        invokers: The tools by the names that models use.
        rules: The agent's settings.
        limits: The limits of the run.
        guard: Answers repeated calls; without a guard they run again.
        outer: Budget of the enclosing run, which this run uses as well.
        after: Loop of the previous agent. This loop continues its transcript, rounds and limits.
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
        """Start of the run, moved forward by the time of its interruptions."""
        self.errors: int = after.errors if after else 0
        """Results with errors in a row."""
        self._invokers = invokers
        self._rules = rules
        self._guard = guard
        # The reply that is arriving.
        self._fold = core.Fold()
        self._reply: list[core.Canister] = []
        self._reply_usage = core.Usage()
        self._cut_calls: dict[str, str] = {}
        """Why calls are incomplete, by identifier."""
        self._has_hallucinated = False
        """Whether the reply contained a result that the model invented."""
        self._format_complaint = ""
        """Message for the model if its reply has none of the requested formats."""
        self._cut_reply = ""
        """Why a filter ended the reply."""
        self._unchecked = ""
        """The text that the driver is checking."""
        # The calls of the reply.
        self._calls = PendingCalls()
        self._repeated: dict[str, core.ResultCanister] = {}
        """The results of repeated calls, by identifier."""
        self._counted = 0
        """Number of calls that the budget has counted."""
        self._following: list[core.Canister] = []
        """The canisters after the results of calls that waited in the history."""
        # The whole run.
        self._is_last = False
        """Whether the requested reply has to answer without calls."""
        self._shortfall = ""
        """Why the run will be incomplete, whatever happens next."""
        self._repeated_rounds = 0
        """Rounds in a row with only repeated calls."""
        self._empty = 0
        """Empty replies in a row."""
        self._thoughts = 0
        """Replies in a row with only thoughts."""
        self._refused = 0
        """Refused replies in a row."""

    @property
    def usage(self) -> core.Usage:
        """The tokens of all replies so far, including nested runs."""
        return self.budget.usage

    @property
    def cost(self) -> float | None:
        """The cost so far, or None without prices."""
        return self.budget.cost

    def start(self, now: datetime) -> list[Action]:
        """Return the first actions of the run, which begins at the time `now`."""
        self._set_deadline(now)
        # A nested run may start when the limits of the outer run are used up.
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
        """Begin with waiting calls of the history.

        Args:
            invocations: The calls.
            answered: Results of some of the calls, by identifier. Every other call waits for an ApprovalAnswered.
            following: The canisters after their results.
            now: The time.

        Returns:
            The actions. Calls that the rules now deny, or that do not fit, wait for no answer.
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
        """Return the name of the handoff that the earlier reply `turn` called, if any.

        Count this reply of an interrupted run.
        """
        self.rounds += 1
        self._repeated = {} if self._guard is None else self._guard.answers(turn.invocations)
        return self._count_results(turn.pairs)

    def recover(
        self, progress: core.RunProgress, turn: CalledTurn | None, decided: Collection[str], now: datetime
    ) -> list[Action]:
        """Continue an interrupted run.

        Args:
            progress: The saved progress.
            turn: The last reply, if it called and only results followed. These results leave the transcript until the
                other calls have results as well.
            decided: Identifiers of calls that a person has decided about. The driver is asked about them even if the
                rules have changed, unless the rules deny them.
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
        """Return the state to resume from if the run is interrupted at the time `now`, or after `finish`."""
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
        """Return the `result` of a call that has just ended, with the text that the transcript adds above it."""
        result = self._calls.mark_edited(result)
        first = self._calls.running[0].identifier if self._has_hallucinated else ""
        return _beside_results(result) if result.invocation_id == first else result

    def go_on(self, now: datetime) -> list[Action]:
        """Return the next actions of a loop that has taken over a conversation at the time `now`."""
        return self._move(self._next_round(now))

    def answer_check(self, complaint: str, now: datetime) -> list[Action]:
        """Return the actions after a CheckOutput at the time `now`. An empty `complaint` accepts the text."""
        text, self._unchecked = self._unchecked, ""
        return self._move(self._complain(complaint, text, now) if complaint else [Finish("completed", text)])

    def feed(self, event: core.Event, now: datetime) -> list[Action]:
        """Return the actions after an `event` at the time `now`."""
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
        """Return the end of the run in `state`, stopped from outside at the time `now`.

        The partial reply stays, and unfinished calls are answered with the reason `why`.
        """
        self._reply += self._fold.finish("cancelled")
        text = self._keep_reply(now) if self._reply else self._unchecked
        self._settle_calls("the run was cancelled" if state == "cancelled" else f"the run ended: {why}", now)
        self.state = "ended"
        return Finish(state, text, why)

    def roll_back(self, to: int) -> None:
        """Reset the conversation to its first `to` canisters."""
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
            case core.TextPiece() | core.ArgumentsPiece() | core.ReasoningPiece() | core.InvocationStarted():
                pass  # first, as most events are among these
            case core.Usage():
                # Some providers send the usage with every piece; the last one counts.
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
        """Count the usage of the reply. An unfinished reply may have cost nothing."""
        if is_whole or self._reply_usage != core.Usage():
            self.budget.add(self._reply_usage, self._rules.prices, now)
        self._reply_usage = core.Usage()

    def _keep_reply(self, now: datetime, *, is_whole: bool = False) -> str:
        """Add the reply to the transcript, and return its text."""
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
        if reason == "length" and not text and _ends_with_thoughts(self.transcript):
            why += " while the model thought; raise max_tokens, or set the effort to none"
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
        """Report to the model what is wrong with its reply, within the limit of retries."""
        self._refused += 1
        if self._refused > self.limits.output_retries or self.rounds > self.limits.rounds:
            return [Finish("incomplete", text, complaint)]
        if exhausted := self._exhaustion_reason(now):
            return [Finish("incomplete", text, exhausted)]
        self.transcript.append(core.UserCanister(core.contents(complaint), timestamp=now))
        return self._next_round(now)

    def _ask_again(self, now: datetime) -> list[Action]:
        """Ask again after a reply without calls and text; it may contain thoughts."""
        thought = _ends_with_thoughts(self.transcript)
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
            if identifier in current.answered:  # from before the interruption
                continue
            cut = self._cut_calls.get(identifier, "")
            result = self._repeated.get(identifier) or check_call(invocation, self._invokers, cut)
            if result is not None:
                current.answered[identifier] = result
            else:
                questions += self._judge(invocation)
        return questions or self._execute(now)

    def _judge(self, invocation: core.InvocationCanister) -> list[Action]:
        """Deny the call, ask about it, defer it, or let it run."""
        current, identifier = self._calls, invocation.identifier
        invoker = self._invokers[invocation.name]
        permission, why = self._apply_policy(invocation)
        if permission == "allow" and identifier in current.decided:
            permission, why = "ask", "it was asked about before"
        if permission == "allow" and not invoker.deferred:
            return []
        # Validate before asking: a person should not decide about, or answer, a call that cannot run.
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
        """Apply the answer. Only "allow" lets the call run."""
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
        """Replace the model's arguments with a person's, if they fit and no rule denies them."""
        invoker, rules = self._invokers[invocation.name], self._rules
        edited = edited_invocation(invocation, arguments, invoker, rules.policy, validated=rules.validates)
        if isinstance(edited, core.ResultCanister):
            self._calls.answered[invocation.identifier] = edited
        else:
            self._calls.edited[invocation.identifier] = edited

    def _hands_over(self, invocation: core.InvocationCanister) -> bool:
        return invocation.name in self._invokers and self._invokers[invocation.name].hands_over

    def _refuse_handoffs(self) -> None:
        """Refuse all handoffs except the first: a conversation has one agent and is handed over as a whole."""
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
        """Continue when the calls have their results, or wait for them after the end of the run."""
        calls = self._calls
        pairs = [(invocation, result) for invocation, result in calls.results() if result is not None]
        results = [replace(result, timestamp=now) for _, result in pairs]
        if self._has_hallucinated and results:
            results[0] = _beside_results(results[0])
        self.transcript += results
        if calls.deferred:
            count = len(calls.deferred)
            return [Finish("pending", "", "1 call waits" if count == 1 else f"{count} calls wait")]
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
        """Count errors and repetitions. Return the name of a successful handoff, if any."""
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
        # A call that ran with edited arguments is not the call that the model made.
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
        """The invocations without results at the end of the run."""
        return self._calls.pending


def ends_with_model(canisters: Sequence[core.Canister]) -> bool:
    """Return whether the model spoke last in `canisters`.

    Supervisors do not count: some templates move them to the start.
    """
    last = next((each for each in reversed(canisters) if not isinstance(each, core.SupervisorCanister)), None)
    return isinstance(last, core.AssistantCanister)


def _beside_results(result: core.ResultCanister) -> core.ResultCanister:
    return replace(result, content=(core.TextualContent(_BESIDE_RESULTS), *result.content))


def _separate_identifiers(reply: list[core.Canister]) -> list[core.Canister]:
    """Give each call of the reply its own identifier, so that an answer never applies to another call."""
    taken: set[str] = set()
    counts: Counter[str] = Counter()  # end of the last search for a free number, where the next search starts
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


def _ends_with_thoughts(canisters: Sequence[core.Canister]) -> bool:
    last = canisters[-1] if canisters else None
    return isinstance(last, core.AssistantCanister) and any(
        isinstance(each, core.ReasoningContent) for each in last.content
    )
