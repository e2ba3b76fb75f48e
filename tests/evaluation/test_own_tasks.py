import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from callboard.core import InvocationCanister
from callboard.evaluation import Attempt, Judgement, check_step, load_own_tasks
from callboard.evaluation.runner import attempt_task
from callboard.schema.json_schema import compile_schema
from callboard.testing import Call, ScriptedModel

TASKS = load_own_tasks()
every_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.identifier)


def right_value(options):
    """The first accepted value that is one; in objects each member's."""
    value = next((option for option in options if option != ""), "")
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [right_object(item) for item in value]
    return right_object(value) if isinstance(value, dict) else value


def right_object(members):
    return {name: right_value(options) for name, options in members.items()}


def right_attempt(step):
    calls = [
        InvocationCanister(str(n), call.name, right_object(call.arguments)) for n, call in enumerate(step.expected)
    ]
    return Attempt(tuple(calls), " and ".join(spellings[0] for spellings in step.answer))


@every_task
def test_the_right_answers_solve_every_step(task):
    for step in task.steps:
        judgement = check_step(task, step, right_attempt(step))
        assert judgement.solved, judgement.why


@every_task
def test_nothing_said_solves_no_step_that_wants_a_call_or_an_answer(task):
    for step in task.steps:
        assert check_step(task, step, Attempt()).solved == (not step.expected and not step.answer)


@every_task
def test_the_right_arguments_fit_the_schemas(task):
    validators = {tool.name: compile_schema(tool.schema) for tool in task.tools}
    assert not any(validator.dropped for validator in validators.values())
    for step in task.steps:
        for call in right_attempt(step).calls:
            assert validators[call.name].validate(call.arguments) == call.arguments


@every_task
def test_a_model_that_answers_rightly_is_asked_for_every_step(task):
    """By the runner, so the tools can be declared, and a step that goes on has results before it."""
    attempts = [right_attempt(step) for step in task.steps]
    replies = [[each.text or "Done.", *[Call(call.name, call.arguments) for call in each.calls]] for each in attempts]
    played = asyncio.run(attempt_task(ScriptedModel(replies), task))
    assert [check_step(task, *pair) for pair in zip(task.steps, played, strict=True)] == [Judgement(True)] * len(
        attempts
    )
    for step, following in pairwise(task.steps):
        assert following.canisters or step.results.keys() == {call.name for call in step.expected} != set()


def test_the_suite_has_what_the_page_says():
    assert len({task.identifier for task in TASKS}) == len(TASKS)
    assert {task.suite for task in TASKS} == {"callboard"}
    assert Counter(task.category for task in TASKS) == {
        "multi_turn": 6,
        "parallel": 5,
        "long_arguments": 5,
        "correction": 6,
        "results": 5,
        "two_calls": 3,
        "restraint": 6,
        "odd_tools": 6,
        "languages": 3,
    }
    long = [
        value
        for task in TASKS
        if task.category == "long_arguments"
        for call in task.steps[0].expected
        for value in call.arguments.get("content", ())
    ]
    assert max(map(len, long)) > 2_000
    assert all('"' in text and "\n" in text for text in long)
