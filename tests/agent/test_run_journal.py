"""A run that writes a journal can be killed at any time, and goes on in another process."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from tests.tables import table

from callboard import Agent, Limits, core, tool
from callboard.agent.resume import find_waiting_calls
from callboard.errors import CallerError, ToolExecutionFailure
from callboard.loop.pending_calls import find_called_turns
from callboard.testing import Call, ScriptedModel
from callboard.tools import Context, Policy


class Crash(Exception):
    """The process is gone."""


class MemoryJournal:
    """Keeps a run in memory; it crashes at write number `crash_at`, before or behind the write."""

    def __init__(self, crash_at=0, *, behind=False):
        self.items = []
        self.progress = None
        self.open_calls = {}
        self.begun = []
        self.cached = {}
        self.writes = 0
        self.crash_at = crash_at
        self.behind = behind

    def call_key(self, invocation):
        return f"job:{invocation.identifier}"

    async def save(self, items, progress, *, begins):
        self._write(lambda: (self.items.extend(items), setattr(self, "progress", progress)))

    def declare(self, tools):
        self.tools = [each.name for each in tools]

    async def begin_call(self, invocation, idempotent):
        if invocation.identifier in self.cached:
            return self.cached[invocation.identifier]
        if not idempotent:
            self._write(lambda: self.open_calls.update({invocation.identifier: invocation}))
        self.begun.append(invocation)
        return None

    async def end_call(self, invocation, result):
        await asyncio.sleep(0)
        self._write(lambda: (self.items.append(result), self.open_calls.pop(invocation.identifier, None)))

    def _write(self, do):
        self.writes += 1
        if self.crash_at and (self.writes > self.crash_at or (self.writes == self.crash_at and not self.behind)):
            raise Crash
        do()
        if self.writes == self.crash_at:
            raise Crash

    def recover(self, crash_at=0, *, behind=False):
        """The journal as another process finds it, in which calls that were begun have an unknown outcome."""
        journal = MemoryJournal(crash_at, behind=behind)
        journal.items = [
            each if isinstance(each, core.RolledBack) else core.decode_canister(core.encode_line(each))
            for each in self.items
        ]
        journal.items += [
            core.error_result(each, "cancelled", "interrupted, outcome unknown") for each in self.open_calls
        ]
        journal.progress = self.progress
        return journal

    @property
    def conversation(self):
        """The canisters that were saved, the results of a reply in the order of its calls."""
        canisters = []
        for each in self.items:
            if isinstance(each, core.RolledBack):
                del canisters[each.to :]
            else:
                canisters.append(each)
        for turn in find_called_turns(canisters):
            canisters[turn.end : turn.end + len(turn.results)] = [result for _, result in turn.pairs]
        return canisters


ROUNDS = 3


class Workshop:
    """An agent of three rounds with three calls each, and a count of what was done."""

    def __init__(self, **options):
        self.effects = Counter()
        self.requests = Counter()

        @tool
        async def change(number: int) -> str:
            for _ in range(number % 3):
                await asyncio.sleep(0)
            self.effects[number] += 1
            return f"changed {number}"

        @tool(idempotent=True)
        async def look(number: int) -> str:
            self.effects[number] += 1
            return f"saw {number}"

        self.tools = [change, look]
        self.options = options

    def agent(self):
        return Agent(ScriptedModel([self.reply] * 20), self.tools, instructions="Work.", **self.options)

    def reply(self, request):
        rounds = sum(isinstance(each, core.ResultCanister) for each in request.canisters) // 3
        self.requests[rounds] += 1
        if rounds == ROUNDS:
            return [core.Usage(input=10, output=1), "Done."]
        calls = [Call(("change", "look")[at % 2], {"number": 3 * rounds + at}) for at in range(3)]
        return [core.Usage(input=10, output=1), f"Round {rounds}.", *calls]

    def run(self, journal):
        """A run from the beginning, or from where the journal ends."""
        begun = journal.progress is not None
        return self.agent().run_sync("" if begun else "Go.", history=journal.conversation, journal=journal)


def undisturbed():
    journal = MemoryJournal()
    return journal, Workshop().run(journal)


def test_the_journal_has_the_conversation_and_what_was_used():
    journal, result = undisturbed()
    assert journal.conversation == list(result.canisters)
    assert journal.open_calls == {}
    assert journal.progress.rounds == result.rounds == ROUNDS + 1
    assert journal.progress.calls == 9
    assert (journal.progress.usage, journal.progress.state) == (core.Usage(input=40, output=4), "completed")
    assert isinstance(journal.conversation[0], core.SupervisorCanister)


def test_a_reply_is_saved_before_its_calls_begin_and_a_result_before_the_next_reply():
    order = []

    class Recorder(MemoryJournal):
        async def save(self, items, progress, *, begins):
            order.extend(type(each).__name__[:-8] for each in items)

        async def begin_call(self, invocation, idempotent):
            order.append(f"begin {invocation.identifier[-1]}")

        async def end_call(self, invocation, result):
            order.append(f"end {invocation.identifier[-1]}")

    @tool
    async def wait(turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return turns

    model = ScriptedModel([[Call("wait", {"turns": 9}), Call("wait", {"turns": 1})], "Done."])
    Agent(model, [wait]).run_sync("Go.", journal=Recorder())
    assert order == ["User", "Invocation", "Invocation", "begin 0", "begin 1", "end 1", "end 0", "Assistant"]


@table("behind", [False, True])
def test_a_run_goes_on_after_a_crash_at_any_write(behind):
    journal, expected = undisturbed()
    for crash_at in range(1, journal.writes + 1):
        shop, crashed = Workshop(), MemoryJournal(crash_at, behind=behind)
        with pytest.raises(Crash):
            shop.run(crashed)
        again = crashed.recover()
        unknown = len(crashed.open_calls)
        completed = {each.invocation_id for each in again.items if isinstance(each, core.ResultCanister)}
        result = shop.run(again)
        assert result.state == "completed", crash_at
        assert not completed & {each.identifier for each in again.begun}, crash_at
        texts = [each.text for each in again.conversation]
        assert len(texts) == len(expected.canisters), crash_at
        differing = [text for text, each in zip(texts, expected.canisters, strict=True) if text != each.text]
        assert differing == ["Error: interrupted, outcome unknown"] * unknown, crash_at
        assert all(shop.effects[number] <= 1 for number in (0, 2, 3, 5, 6, 8)), crash_at
        # A reply that was saved is not asked for again; the one whose saving failed was lost.
        lost = sum(count - 1 for count in shop.requests.values())
        assert lost <= (not behind), crash_at
        assert again.progress.rounds == ROUNDS + 1, crash_at
        assert again.progress.usage == core.Usage(input=40, output=4), crash_at


def test_a_run_goes_on_after_a_crash_at_each_write_of_each_process():
    """It does one write a process, and ends."""
    shop, journal = Workshop(), MemoryJournal(1, behind=True)
    result = None
    while result is None:
        try:
            result = shop.run(journal)
        except Crash:
            journal = journal.recover(1, behind=True)
    assert (result.state, result.text) == ("completed", "Done.")
    assert max(shop.requests.values()) == 1
    replies = [each.text for each in journal.conversation if isinstance(each, core.AssistantCanister)]
    assert replies == ["Round 0.", "Round 1.", "Round 2.", "Done."]


# Calls that were never begun are judged as those of a fresh reply.


def interrupted(*calls, results=(), **progress):
    """A journal of a run whose last reply has these calls, and results of some of them."""
    journal = MemoryJournal()
    identified = [
        core.InvocationCanister(identifier=call.identifier or f"c{at}", name=call.name, arguments=call.arguments)
        for at, call in enumerate(calls)
    ]
    journal.items = [core.UserCanister("Go."), *identified, *results]
    journal.progress = core.RunProgress(**{"rounds": 1, **progress})
    return journal


class Desk:
    """An agent that books rooms, which wants approval."""

    def __init__(self, replies=("Done.",), *, profile=None, **options):
        self.booked = []

        @tool(approval=True)
        def book(room: int) -> str:
            """Book a room."""
            self.booked.append(room)
            return f"booked {room}"

        self.model = ScriptedModel(replies, profile=profile)
        self.agent = Agent(self.model, [book], **options)

    def go_on(self, journal, **options):
        return self.agent.run_sync(history=journal.conversation, journal=journal, **options)


BOOK = Call("book", {"room": 7})


def test_a_person_is_asked_about_a_call_that_was_not_begun():
    desk = Desk()
    result = desk.go_on(interrupted(BOOK), approve=lambda *_: "defer")
    assert (result.state, [each.identifier for each in result.pending], desk.booked) == ("pending", ["c0"], [])


@table(
    ("answer", "booked", "text"),
    [
        ("allow", [7], "booked 7"),
        ("deny", [], "Error: book may not run: the answer was no"),
        (core.Allow({"room": 8}), [8], 'The arguments of this call were edited before it ran: {"room":8}\nbooked 8'),
    ],
)
def test_a_call_that_waited_is_decided(answer, booked, text):
    desk, journal = Desk(), interrupted(BOOK)
    assert desk.go_on(journal, approvals={"c0": answer}).output == "Done."
    assert desk.booked == booked
    assert journal.conversation[2].text == desk.model.requests[0].canisters[-1].text == text


def test_a_denial_holds_where_the_rules_would_allow_the_call_by_now():
    desk = Desk(policy=Policy([("book", "allow")]))
    desk.go_on(interrupted(BOOK), approvals={"c0": "deny"})
    assert desk.booked == []


def test_the_rules_deny_by_now_what_a_person_allowed():
    desk = Desk(policy=Policy([("book", "deny")]))
    desk.go_on(interrupted(BOOK), approvals={"c0": "allow"})
    assert desk.booked == []


def test_one_of_two_calls_is_decided_and_the_other_waits_on():
    desk, journal = Desk(), interrupted(BOOK, Call("book", {"room": 8}))
    result = desk.go_on(journal, approvals={"c0": "allow"}, approve=lambda *_: "defer")
    assert (result.state, [each.identifier for each in result.pending], desk.booked) == ("pending", ["c1"], [7])
    again = journal.recover()
    assert desk.go_on(again, approvals={"c1": "allow"}).output == "Done."
    assert desk.booked == [7, 8]
    assert [each.text for each in again.conversation] == [
        "Go.",
        'book {"room":7}',
        'book {"room":8}',
        *RESULTS,
        "Done.",
    ]


RESULTS = ("booked 7", "booked 8")


def test_a_result_from_outside_is_taken():
    desk, journal = Desk(), interrupted(BOOK)
    assert desk.go_on(journal, results={"c0": core.ToolError("execution", "no such room")}).output == "Done."
    assert desk.model.requests[0].canisters[-1].text == "Error: no such room"
    assert journal.conversation[2].text == "Error: no such room"


def test_a_call_of_a_tool_that_is_gone_is_answered():
    desk = Desk()
    desk.go_on(interrupted(Call("burn", {})))
    assert desk.model.requests[0].canisters[-1].error.category == "not_found"


def test_a_call_that_was_made_before_the_interruption_is_answered_as_repeated():
    seen = []

    @tool(idempotent=True)
    def look(at: str) -> str:
        seen.append(at)
        return "a lamp"

    journal = MemoryJournal()
    look_up = core.InvocationCanister(identifier="c0", name="look", arguments={"at": "desk"})
    result = core.ResultCanister("a lamp", invocation_id="c0")
    journal.items = [
        core.UserCanister("Go."),
        look_up,
        result,
        core.InvocationCanister(identifier="c1", name="look", arguments={"at": "desk"}),
    ]
    journal.progress = core.RunProgress(rounds=2, calls=1)
    model = ScriptedModel(["Done."])
    Agent(model, [look], on_repeated_call="warn").run_sync(history=journal.conversation, journal=journal)
    assert seen == []
    assert "round 1 already" in model.requests[0].canisters[-1].text


@table(
    ("options", "path"),
    [({"prompt": "More."}, "prompt"), ({"approvals": {"x": "allow"}}, "x"), ({"results": {"x": 1}}, "x")],
)
def test_what_cannot_be_meant_is_refused(options, path):
    journal = interrupted(BOOK)
    with pytest.raises(CallerError) as refusal:
        Desk().go_on(journal, **options)
    assert refusal.value.path == path


def test_a_journal_is_of_its_kind():
    with pytest.raises(CallerError, match="a dict is not valid"):
        Desk().agent.run_sync("Go.", journal={})


# The limits hold for the run, however often it is interrupted.


@table(
    ("limits", "progress", "why"),
    [
        (Limits(rounds=1), {"rounds": 1}, "no answer within 1 rounds"),
        (Limits(calls=4), {"calls": 3}, "no answer within 4 calls"),
        (Limits(tokens=100), {"usage": core.Usage(input=90, output=10)}, "100 tokens are used, of 100"),
        (Limits(cost=2.0), {"cost": 2.5}, "the budget is spent: $2.5 of $2"),
        (Limits(seconds=60.0), {"seconds": 61.0}, "60 seconds are over"),
    ],
)
def test_limits_count_what_was_used_before_the_interruption(limits, progress, why):
    journal = interrupted(BOOK, results=[core.ResultCanister("booked 7", invocation_id="c0")], **progress)
    result = Desk(limits=limits, profile={"prices": {"input": 1.0, "output": 1.0}}).go_on(journal)
    assert (result.state, result.why) == ("incomplete", why)


def test_errors_one_after_another_are_counted_over_an_interruption():
    journal = interrupted(BOOK, results=[core.error_result("c0", "execution", "full")])
    result = Desk(limits=Limits(errors=1)).go_on(journal)
    assert result.why == "1 errors one after another"


def test_the_time_that_nobody_worked_does_not_count():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    times = iter([*[now] * 3, *[now + timedelta(seconds=20)] * 50])
    desk, journal = Desk([BOOK], limits=Limits(seconds=60.0), clock=lambda: next(times)), MemoryJournal()
    desk.agent.run_sync("Go.", journal=journal, approve=lambda *_: "defer")
    assert journal.progress.seconds == 20.0
    later = Desk(limits=Limits(seconds=60.0), clock=lambda: now + timedelta(days=10))
    again = journal.recover()
    assert later.go_on(again, approvals={"call_1_0": "allow"}).output == "Done."
    assert again.progress.seconds == 20.0


def test_a_cost_that_is_not_known_stays_unknown():
    journal = interrupted(
        BOOK, results=[core.ResultCanister("booked 7", invocation_id="c0")], is_priced=False, cost=1.0
    )
    assert Desk().go_on(journal).cost is None


# How a run ends.


def test_a_run_whose_end_was_decided_asks_for_nothing_more():
    journal = MemoryJournal()
    journal.items = [core.UserCanister("Go."), core.AssistantCanister("Half of")]
    journal.progress = core.RunProgress(rounds=1, state="incomplete", output="Half of", why="the reply was cut")
    result = Desk([]).go_on(journal)
    assert (result.state, result.text, result.why) == ("incomplete", "Half of", "the reply was cut")


def test_an_output_that_was_not_checked_yet_is_checked():
    journal = MemoryJournal()
    journal.items = [core.UserCanister("Go."), core.AssistantCanister("no number")]
    journal.progress = core.RunProgress(rounds=1)
    model = ScriptedModel(['{"answer": 3}'])
    result = Agent(model, output=int).run_sync(history=journal.conversation, journal=journal)
    assert result.output == 3
    assert "Answer with one JSON object" in model.requests[0].canisters[-1].text


def test_a_run_that_fails_fast_rolls_its_journal_back():
    @tool
    def explode() -> str:
        raise ValueError("boom")

    journal = MemoryJournal()
    with pytest.raises(ToolExecutionFailure):
        Agent(ScriptedModel([Call("explode")]), [explode], on_error="fail_fast").run_sync("Go.", journal=journal)
    assert journal.items[-1] == core.RolledBack(0)
    assert journal.conversation == []


def test_a_run_that_is_out_of_time_saves_that_its_calls_were_cut():
    @tool
    async def sleep() -> str:
        await asyncio.Event().wait()
        return "never"

    journal = MemoryJournal()
    limits = Limits(seconds=0.01)
    result = Agent(ScriptedModel([Call("sleep")]), [sleep], limits=limits).run_sync("Go.", journal=journal)
    assert result.state == "incomplete"
    assert journal.conversation[-1].error.category == "cancelled"
    assert list(result.canisters) == journal.conversation


async def test_a_run_that_is_cancelled_saves_nothing_more():
    """It may go on later: what becomes of its calls is decided then."""
    journal = MemoryJournal()

    begun = asyncio.Event()

    @tool
    async def sleep() -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    running = asyncio.create_task(Agent(ScriptedModel([Call("sleep")]), [sleep]).run("Go.", journal=journal))
    await begun.wait()
    running.cancel()
    await asyncio.wait([running])
    assert [each.identifier for each in find_waiting_calls(journal.conversation)] == [*journal.open_calls]


# What else belongs to a call.


def test_a_tool_has_the_key_of_its_call():
    keys = []

    @tool
    def pay(context: Context) -> str:
        keys.append(context.call_key)
        return "paid"

    for journal in (MemoryJournal(), None):
        Agent(ScriptedModel([Call("pay", identifier="p1"), "Done."]), [pay]).run_sync("Go.", journal=journal)
    assert keys == ["job:p1", ""]


def test_a_result_that_the_journal_has_spares_the_call():
    shop, journal = Workshop(), MemoryJournal()
    model = ScriptedModel([Call("look", {"number": 1}, identifier="l"), "Done."])
    journal.cached["l"] = core.ResultCanister("seen before", invocation_id="l")
    result = Agent(model, shop.tools).run_sync("Go.", journal=journal)
    assert (shop.effects[1], model.requests[1].canisters[-1].text) == (0, "seen before")
    assert journal.conversation == list(result.canisters)


def test_the_notice_of_results_that_the_model_wrote_itself_is_saved():
    invented = core.Note("alert", "a result was cut", code="hallucinated_result")
    shop, journal = Workshop(), MemoryJournal()
    calls = [Call("look", {"number": 1}), Call("change", {"number": 2})]
    result = Agent(ScriptedModel([[core.TextPiece("So:"), invented, *calls], "Done."]), shop.tools).run_sync(
        "Go.", journal=journal
    )
    assert "you had written a result" in result.canisters[4].text
    assert journal.conversation == list(result.canisters)


def test_a_hook_that_gives_another_call_has_that_one_begun():
    shop, journal = Workshop(), MemoryJournal()
    other = core.InvocationCanister(identifier="other", name="change", arguments={"number": 5})
    agent = Agent(
        ScriptedModel([Call("look", {"number": 1}, identifier="l"), "Done."]), shop.tools, before_call=lambda _: other
    )
    agent.run_sync("Go.", journal=journal)
    assert [(each.identifier, each.name) for each in journal.begun] == [("l", "change")]
    assert journal.conversation[2].text == "changed 5"


def test_a_conversation_that_was_handed_over_stays_with_its_agent():
    shop = Workshop()
    expert_model = ScriptedModel([[Call("change", {"number": 1}, identifier="c")], "Done."])
    expert = Agent(expert_model, shop.tools, instructions="You are the expert.")
    journal = MemoryJournal(5, behind=True)

    def reception(replies):
        handoff = expert.as_handoff("expert", "Knows.")
        return Agent(ScriptedModel(replies), [handoff], instructions="You are the reception.")

    with pytest.raises(Crash):
        reception([Call("transfer_to_expert", identifier="t")]).run_sync("Go.", journal=journal)
    again = journal.recover()
    result = reception([]).run_sync(history=again.conversation, journal=again)
    assert result.text == "Done."
    assert expert_model.requests[-1].canisters[0].text == "You are the expert."


def test_a_history_is_saved_by_its_owner():
    """With a supervisor of its own or without: the journal has what the run added."""
    journal = MemoryJournal()
    history = [core.UserCanister("Hello."), core.AssistantCanister("Hi.")]
    shop = Workshop()
    result = shop.agent().run_sync("Go.", history=history, journal=journal)
    assert journal.items[0].text == "Go."
    assert journal.progress.history_length == 2
    crashed = MemoryJournal(3)
    with pytest.raises(Crash):
        Workshop().agent().run_sync("Go.", history=history, journal=crashed)
    again = crashed.recover()
    second = shop.agent().run_sync(history=[*history, *again.conversation], journal=again)
    assert len(second.canisters) == len(result.canisters)
    assert [each.text for each in again.conversation if isinstance(each, core.UserCanister)] == ["Go."]
