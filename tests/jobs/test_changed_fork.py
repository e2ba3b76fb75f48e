"""A fork in which one entry differs."""

from unittest.mock import AsyncMock

import pytest
from tests.jobs.test_agent_kind import Bench, conversation_of

from callboard.core import AssistantCanister, InvocationCanister, ResultCanister, UserCanister
from callboard.errors import CallerError
from callboard.jobs.changed_fork import find_prompt, fork_with_change
from callboard.testing import Call, ScriptedModel


async def find(queue, job, kind):
    return next(each.number for each in await queue.store.read_entries(job.id) if isinstance(each.item, kind))


async def run_forked(database, kind, text):
    """Run a job, and a fork of it with another text of its first entry of this kind."""
    bench = Bench([Call("change", {"number": 1}), "Done.", Call("change", {"number": 2}), "Done again.", "Unused."])
    queue, job = await bench.run(database)
    forked = await fork_with_change(queue.store, job.id, await find(queue, job, kind), text)
    await queue.drain()
    return bench, await queue.store.get(forked.id), await conversation_of(queue, forked), job


async def test_a_result_differs(database):
    bench, forked, canisters, job = await run_forked(database, ResultCanister, "nothing changed")
    # The fork continues behind the result: the third reply calls.
    assert [each.text for each in canisters if isinstance(each, ResultCanister)] == ["nothing changed", "changed 2"]
    assert bench.effects == {1: 1, 2: 1}
    assert (forked.state, forked.parent) == ("completed", f"{job.id}@1")


async def test_a_call_runs_with_other_arguments(database):
    bench, forked, canisters, _ = await run_forked(database, InvocationCanister, '{"number": 7}')
    assert next(dict(each.arguments) for each in canisters if isinstance(each, InvocationCanister)) == {"number": 7}
    assert bench.effects == {1: 1, 7: 1, 2: 1}
    assert forked.state == "completed"


async def test_a_prompt_differs(database):
    bench, forked, canisters, job = await run_forked(database, UserCanister, "Say something else")
    assert [each.text for each in canisters if isinstance(each, UserCanister)] == ["Say something else"]
    assert forked.title == "Say something else"
    assert (forked.parent, bench.effects) == (f"{job.id}@0", {1: 1, 2: 1})


async def test_a_prompt_differs_and_the_rounds_stay(database):
    bench = Bench([Call("change", {"number": 1}), "Done.", "Done again."])
    queue, job = await bench.run(database)
    prompt = await find_prompt(queue.store, job.id)
    forked = await fork_with_change(queue.store, job.id, prompt.number, "Say something else", at_round=1)
    await queue.drain()
    canisters = await conversation_of(queue, forked)
    assert [each.text for each in canisters if isinstance(each, UserCanister)] == ["Say something else"]
    assert [each.text for each in canisters if isinstance(each, AssistantCanister)] == ["Done again."]
    assert (forked.parent, forked.title, bench.effects) == (f"{job.id}@1", "Say something else", {1: 1})


async def test_another_model_answers(database, monkeypatch):
    opened = []

    def open_model(name):
        opened.append(name)
        other = ScriptedModel(["From the other."])
        other.aclose = AsyncMock()
        return other

    monkeypatch.setattr("callboard.jobs.agent_kind.open_model", open_model)
    bench = Bench([Call("change", {"number": 1}), "Done."])
    queue, job = await bench.run(database)
    prompt = await find_prompt(queue.store, job.id)
    forked = await fork_with_change(
        queue.store, job.id, prompt.number, prompt.item.text, model="openai:gpt-5", at_round=1
    )
    await queue.drain()
    canisters = await conversation_of(queue, forked)
    assert [each.text for each in canisters if isinstance(each, AssistantCanister)] == ["From the other."]
    job = await queue.store.get(forked.id)
    assert (job.model, job.state, opened) == ("openai:gpt-5", "completed", ["openai:gpt-5"])


async def test_another_model_of_a_run_is_among_its_options(store):
    job = await store.create(
        "run", input={"agent": "", "options": {"model": "a", "budget": 1}}, items=[UserCanister("Hi")]
    )
    forked = await fork_with_change(store, job.id, 1, "Hi", model="openai:gpt-5")
    assert forked.input["options"] == {"model": "openai:gpt-5", "budget": 1}


@pytest.mark.parametrize("model", ["command:rm x", "local:/tmp/x.gguf", "openai:gpt-5,command:rm"])
async def test_a_program_is_not_chosen_for_a_job_that_exists(store, model):
    job = await store.create("agent", items=[UserCanister("Hi")])
    with pytest.raises(CallerError, match="a program or a file"):
        await fork_with_change(store, job.id, 1, "Hi", model=model)
    assert len(await store.list()) == 1


async def test_what_cannot_be_changed_is_refused(database):
    bench = Bench([Call("change", {"number": 1}), "Done."])
    queue, job = await bench.run(database)
    call, reply = await find(queue, job, InvocationCanister), await find(queue, job, AssistantCanister)
    for number, text, message in (
        (call, "[1]", "not a JSON object"),
        (reply, "x", "only a message"),
        (99, "x", "no such"),
    ):
        with pytest.raises(CallerError, match=message):
            await fork_with_change(queue.store, job.id, number, text)
    assert len(await queue.store.list()) == 1
