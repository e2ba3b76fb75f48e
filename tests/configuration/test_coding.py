import pytest

from callboard.errors import CallerError

OWN = """
[coding.limits]
max_inference_runs = 5
[coding.git]
always_draft_pr = false
branch_prefix = "mine/"
[coding.modes.build]
access = "edit"
rounds = 3
[coding.context.tool_result_limits]
grep = 100
"""


@pytest.fixture
def load(load_files):
    return lambda project, own=OWN, trust=True: load_files(own, project, trust).coding


def test_the_tables_of_both_files_are_joined_key_by_key(load):
    coding = load("[coding.limits]\nmax_task_duration_minutes = 3\n[coding.git]\nbranch_prefix = 'theirs/'\n")
    assert (coding.limits.max_task_duration_minutes, coding.limits.max_inference_runs) == (3, 5)
    assert (coding.git.branch_prefix, coding.git.always_draft_pr) == ("theirs/", False)
    assert coding.modes["build"].rounds == 3


def test_what_is_true_by_default_can_be_switched_off_and_on_again(load):
    """A zero value is a value (seed 003's mistake)."""
    assert load("").git.always_draft_pr is False
    assert load("[coding.git]\nalways_draft_pr = true\n").git.always_draft_pr is True


def test_limits_of_results(load):
    context = load("").context
    assert [context.result_limit(name) for name in ("grep", "file", "bash")] == [100, 24_000, 8000]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[coding]\nlimit = 1", "limit"),
        ("[coding.limits]\nmax_rounds = 1", "coding.limits"),
        ("[coding.limits]\nmax_inference_runs = 0", "coding.limits.max_inference_runs"),
        ("[coding.context]\ncompact_at = 2", "coding.context.compact_at"),
        ("[coding.modes.cook]\nrounds = 1", "cook"),
        ("[coding.modes.build]\naccess = 'all'", "access"),
    ],
)
def test_what_cannot_be_is_told_by_its_place(load, text, place):
    with pytest.raises(CallerError, match=r"callboard\.toml:") as told:
        load(text)
    assert place in str(told.value)


@pytest.mark.parametrize(
    "text",
    [
        '[coding.sandbox]\nhosts = ["example.org"]',
        '[coding.sandbox]\nreadable = ["/home"]',
        '[coding.git]\nremote = "elsewhere"',
        '[coding.tools]\nallowed_bash_commands = ["curl"]',
        '[coding.modes.review]\naccess = "full"',
    ],
)
def test_a_project_does_not_widen_what_may_be_done(load, text):
    assert load(text, trust=False) == load("")
    assert load(text) != load("")


@pytest.mark.parametrize("trust", [True, False])
def test_no_file_takes_back_a_denial_of_another_file(load, trust):
    own = '[coding.tools]\nforbidden_commands = ["curl"]\n[coding.modes.chat]\ndeny = ["git"]\n'
    nothing = "[coding.tools]\nforbidden_commands = []\n[coding.modes.chat]\ndeny = []"
    assert load(nothing, own, trust) == load("", own)
    text = '[coding.tools]\nforbidden_commands = ["wget"]\n[coding.modes]\nchat.deny = ["bash"]\nbuild.deny = ["test"]'
    coding = load(text, own, trust)
    assert coding.tools.forbidden_commands == ("curl", "wget")
    assert (coding.modes["chat"].deny, coding.modes["build"].deny) == (("git", "bash"), ("test",))
