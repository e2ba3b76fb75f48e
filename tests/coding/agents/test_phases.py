from tests.tables import table

from callboard.coding.agents.phases import actions_of_groups, phases_of

KINDS = ["build", "debug", "review", "triage"]


@table(
    ("kind", "names"),
    [
        ("build", ["analyze", "plan", "implement", "validate", "deliver"]),
        ("debug", ["reproduce", "investigate", "isolate", "fix", "verify", "commit"]),
        ("review", ["gather", "security", "quality", "compile"]),
        ("triage", ["gather", "diagnose"]),
    ],
)
def test_the_phases_are_those_of_the_seed(kind, names):
    assert [phase.name for phase in phases_of(kind, "phased")] == names


@table("kind", KINDS)
def test_the_short_form_is_one_phase_with_few_tools(kind):
    (phase,) = phases_of(kind, "short")
    assert len(actions_of_groups(phase.tools)) <= 5


@table("workflow", ["phased", "short"])
@table("kind", ["review", "triage"])
def test_who_looks_only_has_no_tool_that_edits(kind, workflow):
    edits = {*actions_of_groups(("edit",)), *actions_of_groups(("commit",))}
    for phase in phases_of(kind, workflow):
        assert not edits & {*actions_of_groups(phase.tools)}


@table("workflow", ["phased", "short"])
@table("kind", KINDS)
def test_prompts_tell_no_stories(kind, workflow):
    """Examples of conversations teach models to make results up (seed 003's lesson 4)."""
    for phase in phases_of(kind, workflow):
        assert "```" not in phase.prompt
        assert "xample" not in phase.prompt
        assert phase.rounds > 0


def test_groups_are_their_actions_once():
    assert actions_of_groups(("look", "read_file", "bash"))[-1] == "bash"
    assert len(set(actions_of_groups(("look", "look")))) == len(actions_of_groups(("look",)))
