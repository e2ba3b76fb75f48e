"""Who may answer what: only "allow" runs a call."""

import asyncio
from contextlib import suppress

import pytest
from tests.tables import table

from callboard import Agent, core, execute_invoker, tool
from callboard.errors import CallerError
from callboard.execution import InvocationsProcessor, ask_approval
from callboard.loop import AskApproval, Loop
from callboard.testing import Call, ScriptedModel
from callboard.tools import Ensemble, Invoker, Policy


class Unreadable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return hash("allow")


class Equal(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


NOT_ALLOWED = [None, 0, 1, 1.0, "", "no", "yes", "y", "Allow", "ALLOW", "allow ", " allow", "allowed", "DENY", "ask"]
NOT_ALLOWED += [b"allow", {}, {"verdict": "allow"}, [], ["allow"], ("allow",), object(), Unreadable(), Equal("no")]


CALL = Call("delete", {"path": "a"})


class Delete:
    """A tool that wants approval, and what it did."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

        @tool(approval=True)
        def delete(path: str) -> str:
            """Delete a file."""
            self.deleted.append(path)
            return "deleted"

        self.tool = delete
        self.ensemble = Ensemble("files", [delete])
        self.invoker = self.ensemble.access_invoker("delete")


def run(target: Delete, approve, *, call=CALL, **options):
    """The events and the result of an agent that is to delete."""
    run = Agent(ScriptedModel([call, "Done."]), [target.tool], approve=approve, **options).stream("Delete a.")

    async def follow():
        return [event async for event in run]

    return asyncio.run(follow()), run.result


def answering(answer, *, is_async):
    async def approve_later(_invocation, _why):
        return answer

    def approve(_invocation, _why):
        return answer

    return approve_later if is_async else approve


@table("is_async", [False, True])
@table("answer", NOT_ALLOWED, ids=lambda each: type(each).__name__)
def test_only_allow_runs_a_call(answer, is_async):
    target = Delete()
    events, result = run(target, answering(answer, is_async=is_async))
    assert target.deleted == []
    (denied,) = [each for each in result.canisters if isinstance(each, core.ResultCanister)]
    assert denied.error is not None
    assert denied.error.category == "permission"
    assert denied.error.message.startswith("delete may not run: the approval answered ")
    (alert,) = [each for each in events if isinstance(each, core.Note)]
    assert alert.kind == "alert"
    assert alert.text.startswith("delete was denied: the approval answered ")


def result_texts(result):
    """What the model reads of its calls."""
    return [each.text for each in result.canisters if isinstance(each, core.ResultCanister)]


@table("is_async", [False, True])
@table(
    ("answer", "deleted", "text"),
    [
        *[(answer, ["a"], "deleted") for answer in ("allow", True, core.Allow(), core.Allow({"path": "a"}))],
        *[(answer, [], "Error: delete may not run: the answer was no") for answer in ("deny", False)],
        (core.Deny("a is still needed"), [], "Error: delete may not run: a is still needed"),
    ],
)
def test_a_person_says_yes_or_no(answer, deleted, text, is_async):
    target = Delete()
    events, result = run(target, answering(answer, is_async=is_async))
    assert target.deleted == deleted
    assert not any(isinstance(each, core.Note) for each in events)
    assert result_texts(result) == [text]
    (answered,) = [each for each in events if isinstance(each, core.ApprovalAnswered)]
    assert (answered.verdict, answered.why) == ("allow" if deleted else "deny", getattr(answer, "why", ""))


@table("is_async", [False, True])
def test_a_person_edits_the_arguments_and_the_model_reads_it(is_async):
    target = Delete()
    edited = {"path": "b"}

    async def before(invocation):
        edited["path"] = "too late"
        assert invocation.raw == '{"path":"b"}'

    events, result = run(target, answering(core.Allow(edited), is_async=is_async), before_call=before)
    assert target.deleted == ["b"]
    assert result.canisters[1].arguments == {"path": "a"}
    assert result_texts(result) == ['The arguments of this call were edited before it ran: {"path":"b"}\ndeleted']
    (answered,) = [each for each in events if isinstance(each, core.ApprovalAnswered)]
    assert core.decode_event(core.encode_line(answered)) == answered
    assert answered.arguments == {"path": "b"}


@table(
    ("answer", "why"),
    [
        (core.Allow({"pth": "b"}), "the arguments of delete were edited, and do not fit: ArgValidationError"),
        (
            core.Allow({"path": "secret"}),
            "delete may not run: its arguments were edited, and the rule 'delete(secret)' says",
        ),
        (core.Allow("b"), "delete may not run: the edited arguments are 'b', not a mapping"),
        (core.Allow([("path", "b")]), "delete may not run: the edited arguments are a list, not a mapping"),
        (core.Allow({"path": object()}), "delete may not run: the edited arguments are no JSON"),
        (core.Allow({1: {2}, "path": float}), "delete may not run: the edited arguments are no JSON"),
        (core.Allow, "delete may not run: the approval answered a"),
        (core.Deny(3), "delete may not run: the approval answered a Deny"),
        (type("Allow", (core.Allow,), {})(), "delete may not run: the approval answered a Allow"),
    ],
    ids=lambda each: str(each)[:30],
)
def test_edited_arguments_that_cannot_be_run_nothing(answer, why):
    target = Delete()
    target.invoker = target.invoker.replace(subjects={"path": "path"})
    policy = Policy([("delete", "ask"), ("delete(secret)", "deny")])
    model = ScriptedModel([CALL, "Done."])
    agent = Agent(model, [target.invoker], approve=answering(answer, is_async=False), policy=policy)
    assert result_texts(agent.run_sync("?"))[0].startswith(f"Error: {why}")
    assert target.deleted == []


def test_arguments_whose_result_comes_from_outside_are_not_edited():
    invoker = Delete().invoker.replace(deferred=True)
    agent = Agent(ScriptedModel([CALL, "Done."]), [invoker], approve=lambda *_: core.Allow({"path": "b"}))
    assert "cannot be edited" in result_texts(agent.run_sync("?"))[0]


def test_an_edited_call_is_not_the_call_that_the_model_made():
    target = Delete()
    model = ScriptedModel([CALL, CALL, "Done."])
    answers = [core.Allow({"path": "b"}), "allow"]
    Agent(model, [target.tool], approve=lambda *_: answers.pop(0)).run_sync("?")
    assert target.deleted == ["b", "a"]


def test_an_answer_about_one_call_does_not_count_for_another_call_with_the_same_identifier():
    target, asked = Delete(), []

    def approve(invocation, _why):
        asked.append(invocation.arguments["path"])
        return invocation.arguments["path"] == "a"

    calls = [Call("delete", {"path": path}, identifier="x") for path in ("a", "b", "c")]
    _, result = run(target, approve, call=calls)
    assert asked == ["a", "b", "c"]
    assert target.deleted == ["a"]
    called = [each.identifier for each in result.canisters if isinstance(each, core.InvocationCanister)]
    assert len({*called}) == len(called)
    assert [each.invocation_id for each in result.canisters if isinstance(each, core.ResultCanister)] == called


def test_an_approval_that_raises_denies_the_call():
    target = Delete()

    def approve(_invocation, _why):
        raise ConnectionError("nobody there\n" * 100)

    events, result = run(target, approve)
    assert target.deleted == []
    assert result.state == "completed"
    (alert,) = [each for each in events if isinstance(each, core.Note)]
    assert alert.text.startswith("delete was denied: the approval failed: ConnectionError: nobody there")
    assert len(alert.text) < 200


def test_without_a_person_to_ask_the_call_is_denied():
    target = Delete()
    events, _ = run(target, None)
    assert target.deleted == []
    assert core.Note("alert", "delete was denied: nobody can be asked") in events


async def test_a_question_that_is_cancelled_ends_the_run():
    target = Delete()

    asked = asyncio.Event()

    async def approve(_invocation, _why):
        asked.set()
        await asyncio.Event().wait()

    agent = Agent(ScriptedModel([Call("delete", {"path": "a"})]), [target.tool], approve=approve)
    task = asyncio.create_task(agent.run("?"))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert target.deleted == []


@table("returned", [lambda call: "allow", lambda call: core.Allow(), lambda call: core.Allow(call.arguments)])
def test_an_approval_that_changes_the_call_passes_no_rule(returned):
    def approve(invocation, _why):
        invocation.arguments["path"] = "secret"
        return returned(invocation)

    target = Delete()
    target.invoker = target.invoker.replace(subjects={"path": "path"})
    policy = Policy([("delete", "ask"), ("delete(secret)", "deny")])
    agent = Agent(ScriptedModel([CALL, "Done."]), [target.invoker], approve=approve, policy=policy)
    result = agent.run_sync("?")
    assert "secret" not in target.deleted
    assert result.canisters[1].arguments == {"path": "a"}
    asyncio.run(execute_invoker(Delete().invoker, given := {"path": "a"}, approve=approve))
    assert given == {"path": "a"}


@table("answer", ["allow", True, core.Allow(), core.Allow({"path": "b"})])
async def test_an_answer_after_the_wait_was_cancelled_allows_nothing(answer):
    target = Delete()

    asked = asyncio.Event()

    async def approve(_invocation, _why):
        asked.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return answer

    for work in (
        Agent(ScriptedModel([CALL]), [target.tool], approve=approve).run("?"),
        execute_invoker(target.invoker, {"path": "a"}, approve=approve),
    ):
        asked.clear()
        task = asyncio.create_task(work)
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert target.deleted == []


def test_an_approval_that_handles_a_timeout_of_its_own_may_answer():
    async def approve(_invocation, _why):
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        return "allow"

    target = Delete()
    run(target, approve)
    assert target.deleted == ["a"]


@table("verdict", ["", "Allow", "yes", None, True, 1])
def test_the_loop_itself_lets_nothing_run_but_what_is_allowed(verdict):
    invocation = core.InvocationCanister("c1", "delete", {"path": "a"}, "")
    loop = Loop([], {"delete": Delete().invoker})
    loop.start(None)
    loop.feed(core.InvocationEnded(0, "c1", "delete", {"path": "a"}, ""), None)
    (question,) = loop.feed(core.ReplyEnded("invocations"), None)
    assert isinstance(question, AskApproval)
    (execute,) = loop.feed(core.ApprovalAnswered(invocation, verdict), None)
    assert "c1" in execute.answered


def test_an_answer_for_a_call_that_was_not_asked_about_runs_nothing():
    invocation = core.InvocationCanister("c1", "delete", {"path": "a"}, "")
    loop = Loop([], {"delete": Delete().invoker})
    assert loop.feed(core.ApprovalAnswered(invocation, "allow"), None) == []


@table("permission", ["denny", "Deny", "", "allow ", None, True])
def test_a_policy_with_an_unknown_permission_cannot_be_made(permission):
    with pytest.raises(CallerError, match=r"^bash: .* is not a permission; write allow, deny or ask$"):
        Policy([("bash", permission)])


def test_a_policy_of_another_hand_that_answers_oddly_denies():
    class Odd(Policy):
        def decide(self, *_):
            return "Allow", "it says so"

    target = Delete()
    _, result = run(target, answering("allow", is_async=True), policy=Odd())
    assert target.deleted == []
    assert "delete may not run: it says so" in result.canisters[2].text


@table("permission", [Unreadable(), Equal("deny"), True, None, b"allow"])
def test_a_policy_whose_answer_equals_everything_denies(permission):
    class Odd(Policy):
        def decide(self, *_):
            return permission, "it says so"

    target = Delete()
    _, result = run(target, answering("allow", is_async=True), policy=Odd())
    assert target.deleted == []
    assert "which is not a permission" in result.canisters[2].text


# Without an agent.


@table(
    ("approve", "text"),
    [
        (None, "Error: delete may not run: nobody can be asked"),
        (answering("deny", is_async=False), "Error: delete may not run: the answer was no"),
        (answering("no", is_async=True), "Error: delete may not run: the approval answered 'no', which is neither"),
        (answering("defer", is_async=True), "Error: delete may not run: the answer was defer, and nothing waits for"),
        (answering(core.Deny("not today"), is_async=True), "Error: delete may not run: not today"),
        (
            answering(core.Allow({"pth": "b"}), is_async=True),
            "Error: the arguments of delete were edited, and do not fit",
        ),
        (answering(core.Allow({"path": "a"}), is_async=True), "deleted"),
        (answering(True, is_async=True), "deleted"),
    ],
)
def test_execute_invoker_and_the_processor_ask_or_refuse(approve, text):
    target = Delete()
    result = asyncio.run(execute_invoker(target.invoker, {"path": "a"}, approve=approve))
    assert result.text.startswith(text)
    processor = InvocationsProcessor(approve=approve)
    called = {"id": "c1", "type": "function", "function": {"name": "delete", "arguments": '{"path": "a"}'}}
    invocations = processor.normalize_invocations({"role": "assistant", "content": None, "tool_calls": [called]})
    (result,) = asyncio.run(processor.execute_invocations(invocations, [target.ensemble]))
    assert result.text.startswith(text)
    assert target.deleted == (["a", "a"] if text == "deleted" else [])


def test_execute_invoker_and_the_processor_run_edited_arguments():
    target = Delete()
    approve = answering(core.Allow({"path": "b"}), is_async=False)
    text = 'The arguments of this call were edited before it ran: {"path":"b"}\ndeleted'
    assert asyncio.run(execute_invoker(target.invoker, {"path": "a"}, approve=approve)).text == text
    called = core.InvocationCanister("c1", "delete", {"path": "a"}, "")
    (result,) = asyncio.run(InvocationsProcessor(approve=approve).execute_invocations([called], [target.ensemble]))
    assert result.text == text
    assert target.deleted == ["b", "b"]


def test_the_processor_follows_a_policy():
    target = Delete()
    processor = InvocationsProcessor(policy=Policy([("delete", "deny")]), approve=answering("allow", is_async=True))
    called = core.InvocationCanister("c1", "delete", {"path": "a"}, "")
    (result,) = asyncio.run(processor.execute_invocations([called], [target.ensemble]))
    assert result.text == "Error: delete may not run: the rule 'delete' says deny"
    assert target.deleted == []


def test_nobody_is_asked_about_arguments_that_do_not_fit():
    target, asked = Delete(), []
    _, result = run(target, lambda *question: asked.append(question), call=Call("delete", {"pth": "a"}))
    assert asked == []
    assert result.canisters[2].error.category == "validation"
    assert asyncio.run(execute_invoker(target.invoker, {}, approve=None)).error.category == "validation"


def test_a_call_is_validated_before_it_waits():
    async def elsewhere(_context, _arguments):
        raise AssertionError

    schema = {"type": "object", "properties": {"room": {"type": "integer"}}, "required": ["room"]}
    book = Invoker("book", elsewhere, schema, deferred=True)
    model = ScriptedModel([Call("book", {"room": "the big one"}), Call("book", {"room": 7})])
    result = Agent(model, [book]).run_sync("Book.")
    assert result_texts(result) == ["Error: ArgValidationError: room\n  Input should be a valid integer"]
    assert result.state == "pending"
    assert [each.arguments for each in result.pending] == [{"room": 7}]


def test_a_long_answer_is_cut():
    answer = asyncio.run(
        ask_approval(answering("no" * 10_000, is_async=True), core.InvocationCanister("c1", "x", {}, ""), "")
    )
    assert len(answer.why) < 200


# Hooks.


@table("value", [False, True, "deny", 0, "", {}])
@table("hook", ["before_call", "after_call"])
def test_a_hook_that_gives_something_odd_ends_the_run(hook, value):
    target = Delete()

    async def give(*_):
        return value

    with pytest.raises(CallerError, match=rf"^{hook}: {hook} gave a "):
        run(target, answering("allow", is_async=True), **{hook: give})
    assert target.deleted == ([] if hook == "before_call" else ["a"])
