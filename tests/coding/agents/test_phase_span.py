"""A coding agent's trace: the job, its phases, of which one plans, and the runs and commands below them."""

from callboard.testing import Call

REPLIES = [
    Call("file", {"path": "calc.py"}),
    "add is in calc.py.",
    "1. Mend add.",
    Call(
        "file", {"action": "replace", "path": "calc.py", "old": "a ^ b", "new": "b + a"}
    ),  # as no other test: their runs are cached
    "TASK_COMPLETE",
    "All tests pass.",
    "Mend add\n\nIt subtracted.",
]


def test_the_spans_of_a_job(run, telemetry):
    told = telemetry()
    done = run("build", {"description": "Make add work"}, REPLIES, workflow="phased")
    job = told.named("invoke_agent build")
    assert job.attributes["callboard.job.id"] == done.job.id
    phases = [each for each in told.spans if "callboard.phase" in each.attributes]
    assert [each.name for each in phases][:2] == ["phase analyze", "plan build"]
    assert {each.parent.span_id for each in phases} == {job.context.span_id}
    plan = told.named("plan build")
    assert plan.attributes["gen_ai.operation.name"] == "plan"
    runs = [each for each in told.spans if each.name == "invoke_agent"]
    assert plan.context.span_id in {each.parent.span_id for each in runs}
    assert len({each.context.trace_id for each in told.spans}) == 1
    commands = [each for each in told.spans if each.name.startswith("execute_command")]
    assert commands
    assert "subtracted" not in " ".join([each.to_json() for each in told.spans])
