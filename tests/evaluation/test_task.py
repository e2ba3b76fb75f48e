import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.core import InvocationCanister, ResultCanister, SupervisorCanister, ToolError, UserCanister
from callboard.core.request import ToolDeclaration
from callboard.errors import CallerError
from callboard.evaluation import ExpectedCall, ScriptedResult, Step, Task, decode_task, decode_tasks, encode_task
from callboard.evaluation.task import LINE

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
objects = st.dictionaries(texts, values, max_size=2)
canisters = st.one_of(
    st.builds(UserCanister, texts),
    st.builds(SupervisorCanister, texts),
    st.builds(InvocationCanister, texts, texts, st.none() | objects, texts),
    st.builds(ResultCanister, content=texts, invocation_id=texts),
)
calls = st.builds(
    ExpectedCall, texts, st.dictionaries(texts, st.tuples(values) | st.tuples(values, values), max_size=2)
)
results = st.builds(ScriptedResult, texts, st.none() | st.builds(ToolError, st.just("timeout"), texts))
steps = st.builds(
    Step,
    canisters=st.tuples(canisters) | st.just(()),
    expected=st.tuples(calls) | st.just(()),
    ordered=st.booleans(),
    any_call=st.booleans(),
    results=st.dictionaries(texts, st.tuples(results), max_size=2),
    answer=st.just(()) | st.tuples(st.tuples(texts)),
)
tools = st.builds(ToolDeclaration, name=texts, description=texts, schema=objects)
tasks = st.builds(Task, texts, texts, texts, st.tuples(tools) | st.just(()), st.tuples(steps) | st.tuples(steps, steps))


@given(tasks)
def test_a_line_gives_the_same_task_again(task):
    line = encode_task(task)
    assert b"\n" not in line
    assert decode_task(line) == task


@given(st.binary(max_size=40) | texts)
def test_a_line_that_is_no_task_is_refused_by_its_place(line):
    with pytest.raises(CallerError, match=r"mine\.jsonl:1"):
        decode_task(line, path="mine.jsonl:1")


def test_a_file_is_read_line_by_line():
    task = Task("one", "callboard", "simple", (), (Step((UserCanister("Hi"),)),))
    assert [*decode_tasks([encode_task(task), b"", b"\n"])] == [task]
    with pytest.raises(CallerError, match=r"mine\.jsonl:3.*not a task"):
        [*decode_tasks([encode_task(task), b"", b"{}"], path="mine.jsonl")]


def test_a_line_too_long_is_not_read():
    with pytest.raises(CallerError, match="too long"):
        decode_task(b"[" * (LINE + 1))
