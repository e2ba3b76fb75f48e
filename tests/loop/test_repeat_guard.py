"""Calls that are made again: which are answered, with what, and when a run ends of it."""

from datetime import UTC, datetime

from tests.tables import table

from callboard import core
from callboard.loop import CallModel, CheckOutput, Execute, Finish, Limits, Loop, LoopRules
from callboard.loop.repeat_guard import EarlierResults, RepeatGuard, create_repeat_guard
from callboard.tools import Ensemble, Invoker, InvokerRegistry, Policy, tool

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@tool(idempotent=True)
def read(path: str) -> str:
    return path


@tool
def write(path: str, text: str = "") -> str:
    return path + text


async def act(_context, arguments):
    return arguments


FILE = Invoker("file", act, {"type": "object"}, repeatable=lambda given: given["action"] == "read")
ROSTER = InvokerRegistry([Ensemble("local", [read, write, FILE])])


class Driven:
    """A loop that tells of repeated calls. What is not said of a result is `name: arguments`."""

    def __init__(self, on_repeated_call="warn", *, limits=None, **rules):
        guard = create_repeat_guard(on_repeated_call, ROSTER)
        self.loop = Loop([core.UserCanister("Go.")], ROSTER, rules=LoopRules(**rules), limits=limits, guard=guard)
        self.actions = self.loop.start(NOW)
        self.count = 0

    def round(self, *calls):
        """One reply with these calls; for each whether it ran, else what it was answered."""
        made = []
        for index, (name, arguments, *came) in enumerate(calls):
            self.count += 1
            made.append((core.InvocationEnded(index, f"c{self.count}", name, arguments, ""), *came))
        self.actions = [out for e, *_ in made for out in self.loop.feed(e, NOW)]
        self.actions += self.loop.feed(core.ReplyEnded("invocations"), NOW)
        (execute,) = self.actions
        assert isinstance(execute, Execute)
        ran = []
        for invocation, *came in made:
            answer = execute.answered.get(invocation.identifier)
            ran.append("ran" if answer is None else answer.text)
            result = answer or (came[0] if came else f"{invocation.name}: {invocation.arguments}")
            if isinstance(result, str):
                result = core.ResultCanister(invocation_id=invocation.identifier, content=result)
            elif answer is None:
                result = core.error_result(invocation.identifier, result.error.category, result.error.message)
            self.actions = self.loop.feed(core.ResultReady(result), NOW)
        return ran

    def say(self, text):
        self.actions = [out for e in (core.TextPiece(text), core.ReplyEnded("stop")) for out in self.loop.feed(e, NOW)]
        return self.actions


A, B = ("read", {"path": "a"}), ("read", {"path": "b"})
CHANGE = ("write", {"path": "a"})
AGAIN = (
    "You made this call in round 1 already, and nothing has changed since: its result is below. "
    "Do something else: use what it says, look somewhere else, change something, or finish."
)
MADE = "You made this call in round 1 already"
FAILED = core.error_result("?", "execution", "no such file")
GONE = core.error_result("?", "network", "gone")
INVALID = core.error_result("?", "validation", "x")
READING, WRITING = ("file", {"action": "read"}), ("file", {"action": "write"})
TEST, EDIT = ("write", {"path": "test"}), ("write", {"path": "edit"})
FIVE = [("write", {"path": str(number)}) for number in range(5)]


def earlier(number, text):
    return f"This call was not run again. It is the same as in round {number}, and this is its earlier result:\n{text}"


A_AGAIN = f"{AGAIN}\nread: {{'path': 'a'}}"
A_EARLIER = earlier(1, "read: {'path': 'a'}")
CHANGE_EARLIER = earlier(1, "write: {'path': 'a'}")


@table(
    ("on_repeated_call", "rounds"),
    [
        # It is told, and gets its result, as often as it is made, with one sentence.
        ("warn", [(A, "ran"), (B, "ran"), (A, A_AGAIN), (A, A_AGAIN)]),
        # A change makes it worth it again, but not one that failed, nor its own.
        ("warn", [(A, "ran"), (CHANGE, "ran"), (A, "ran")]),
        ("warn", [(A, "ran"), ((*CHANGE, FAILED), "ran"), (A, MADE)]),
        ("warn", [(A, "ran"), ((*CHANGE, INVALID), "ran"), (A, MADE)]),
        ("warn", [(CHANGE, "ran"), (CHANGE, MADE)]),
        ("warn", [(CHANGE, "ran"), (("write", {"path": "b"}), "ran"), (CHANGE, "ran")]),
        # One that failed is not tried again unchanged; a failure of the network may pass.
        ("warn", [((*A, FAILED), "ran"), (A, f"{MADE}, it failed, and nothing has changed since: its error")]),
        ("warn", [((*A, FAILED), "ran"), (CHANGE, "ran"), (A, "ran")]),
        ("warn", [((*A, GONE), "ran"), (A, "ran")]),
        ("warn", [(("raed", {}), "Error: no tool 'raed'"), (("raed", {}), f"{MADE}, it failed")]),
        # Which calls of a tool change something may depend on their arguments.
        ("warn", [(READING, "ran"), (("file", {"action": "read", "path": "b"}), "ran"), (READING, MADE)]),
        ("warn", [(READING, "ran"), (WRITING, "ran"), (READING, "ran")]),
        # A circle of five is none. What came of calls makes the difference, but not the time that they took.
        ("warn", [(each, "ran") for each in FIVE * 3]),
        ("warn", [(each, "ran") for left in range(6) for each in ((*TEST, f"{6 - left} failed"), EDIT)]),
        (
            "warn",
            [
                *[(each, "ran") for seconds in ("0.12", "0.31") for each in ((*TEST, f"1 failed in {seconds}s"), EDIT)],
                ((*TEST, "1 failed in 2 s"), "You are going in circles"),
            ],
        ),
        # With "final_answer", a call that changes something has its result of the round before, an idempotent one of any.
        ("final_answer", [(A, "ran"), (B, "ran"), (A, A_EARLIER)]),
        ("final_answer", [(CHANGE, "ran"), (CHANGE, CHANGE_EARLIER)]),
        ("final_answer", [(A, "ran"), (CHANGE, "ran"), (A, "ran")]),
        ("final_answer", [(CHANGE, "ran"), (A, "ran"), (CHANGE, "ran")]),
        ("final_answer", [((*A, FAILED), "ran"), (A, "ran")]),
    ],
)
def test_which_calls_run_again(on_repeated_call, rounds):
    run = Driven(on_repeated_call)
    for call, answer in rounds:
        (told,) = run.round(call)
        assert told == answer or (answer != "ran" and told.startswith(answer))
        assert on_repeated_call == "final_answer" or not run.actions[0].last


def test_the_error_of_a_call_that_failed_is_given_again():
    run = Driven()
    run.round((*A, FAILED))
    assert run.round(A)[0].endswith("\nError: no such file")


def test_a_call_that_is_denied_is_told_as_well():
    run = Driven(policy=Policy([("write", "deny")]))
    run.round(CHANGE)
    assert "may not run" in run.round(CHANGE)[0]


def test_in_one_reply_a_change_counts_from_where_it_stands():
    run = Driven()
    run.round(A)
    told, ran, fresh = run.round(A, CHANGE, A)
    assert (told != "ran", ran, fresh) == (True, "ran", "ran")
    run = Driven("final_answer")
    run.round(A)
    assert run.round(CHANGE, A) == ["ran", "ran"]


@table("length", [2, 3, 4])
def test_a_circle_is_told_where_it_begins_for_the_third_time(length):
    """Each of these changes something, so none of them repeats a call with nothing in between."""
    steps = [("write", {"path": str(number)}) for number in range(length)]
    run = Driven()
    for _ in range(2):
        assert [run.round(each) for each in steps] == [["ran"]] * length
    (told,) = run.round(steps[0])
    assert told.startswith("You are going in circles: the calls of write gave the same results twice, and this one was")
    assert f"made in round {length + 1}. It was not run again" in told
    assert told.endswith("write: {'path': '0'}")
    assert run.round(steps[1])[0].startswith("You ")


def test_after_three_rounds_of_nothing_else_the_last_reply_is_asked_for():
    run = Driven()
    run.round(A, B)
    for last in (False, False, True):
        run.round(B, A)
        assert [each.last for each in run.actions] == [last]
    why = "nothing but calls that were made before, in 3 rounds"
    assert run.say("So far a.") == [Finish("incomplete", "So far a.", why)]


def test_something_new_beside_them_is_enough_to_go_on():
    run = Driven()
    run.round(A)
    for number in range(6):
        run.round(A, ("read", {"path": str(number)}))
        assert [each.last for each in run.actions] == [False]


def test_by_default_every_repeated_call_runs():
    run = Driven(on_repeated_call="run")
    for _ in range(5):
        assert run.round(A, CHANGE) == ["ran", "ran"]
        assert not run.actions[0].last


@table(("call", "answer"), [(A, A_EARLIER), (CHANGE, CHANGE_EARLIER)])
def test_a_round_of_nothing_but_earlier_results_asks_for_the_last_reply(call, answer):
    run = Driven("final_answer")
    assert run.round(call) == ["ran"]
    assert run.round(call, ("read", {"path": "c"})) == [answer, "ran"]
    assert not run.actions[0].last
    assert run.round(call) == [answer]
    assert run.actions[0].last
    assert run.say("It is a.") == [Finish("completed", "It is a.")]


# The work of it.


def test_the_work_of_a_call_does_not_grow():
    import gc
    import sys

    guard = RepeatGuard(ROSTER)
    counts = []
    for number in range(1000):
        call = core.InvocationCanister(f"c{number}", "read", {"path": str(number % 700)})
        done = 0

        def watch(_frame, event, _argument):
            nonlocal done
            done += event in {"call", "c_call"}

        gc.disable()  # what a collection calls is not the guard's work
        sys.setprofile(watch)
        try:
            answered = guard.answers([call])
            guard.record([(call, core.ResultCanister(invocation_id=call.identifier, content="x"))], answered, number)
        finally:
            sys.setprofile(None)
            gc.enable()
        counts.append(done)
    assert max(counts[20:]) <= 2 * max(counts[10:20])


# What the model made up.

CUT = core.Note("alert", "the model wrote a result itself, and it was cut: Observation: 3", code="hallucinated_result")


def test_results_behind_a_made_up_one_say_so():
    run = Driven()
    run.loop.feed(CUT, NOW)
    run.round(A, B)
    first, second = [each for each in run.loop.transcript if isinstance(each, core.ResultCanister)]
    assert first.text.startswith("Part of your last reply was cut, for you had written a result of a call yourself.")
    assert first.text.endswith("this is what they gave:\nread: {'path': 'a'}")
    assert second.text == "read: {'path': 'b'}"
    run.round(("read", {"path": "c"}))
    assert run.loop.transcript[-1].text == "read: {'path': 'c'}"


def test_a_finish_that_rests_on_a_made_up_result_is_refused():
    run = Driven()
    run.loop.feed(CUT, NOW)
    assert [type(each) for each in run.say("It is 3.")] == [CallModel]
    assert run.loop.transcript[-1].text.startswith("Your reply was cut, for you had written a result")
    assert run.say("It is 4.") == [Finish("completed", "It is 4.")]
    run = Driven()
    run.loop.feed(CUT, NOW)
    assert [type(each) for each in run.say("")] == [CallModel]
    assert "no tool gave it" in run.loop.transcript[-1].text


def test_other_alerts_say_nothing_of_that():
    run = Driven()
    run.loop.feed(core.Note("alert", "read did not return within 3 s"), NOW)
    assert run.say("It is 3.") == [Finish("completed", "It is 3.")]


def test_refused_finishes_may_be_more():
    run = Driven(checks_output=True, limits=Limits(output_retries=3))

    def refused(text):
        assert run.say(text) == [CheckOutput(text)]
        return run.loop.answer_check("run the tests", NOW)

    assert [type(*refused(str(number))) for number in range(3)] == [CallModel] * 3
    assert refused("3") == [Finish("incomplete", "3", "run the tests")]


def test_a_call_that_never_fits_is_not_tried_again():
    guard = EarlierResults({})
    call = core.InvocationCanister("1", "add", {"a": "x"})
    again = core.InvocationCanister("2", "add", {"a": "x"})
    guard.record([(call, core.error_result("1", "validation", "ArgValidationError: a"))], {}, 1)
    (answer,) = guard.answers([again]).values()
    assert answer.error.category == "validation"
    assert answer.text.startswith("This call was not run again. It is the same as in round 1")
    guard.record([(call, core.error_result("1", "execution", "it broke"))], {}, 2)
    assert guard.answers([again]) == {}
