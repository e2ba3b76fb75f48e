import subprocess
import sys

import pytest
from evals.attempt import Handed, Limits, attempt, copied, run_agent
from evals.fixture import git, lay_out, overlay
from evals.run import cells, last_job, line, shares
from evals.task import TASKS, load_task
from tests.tables import table

FIX = load_task(TASKS / "python/page-count.toml")
REVIEW = load_task(TASKS / "python/customer-search.toml")


@pytest.fixture
def tried(tmp_path):
    """What comes of a try by an agent that is a function of its place."""

    def of(task, agent, **options):
        def called(_, __, place, ___):
            return agent(place)

        return attempt(task, "scripted", called, "none", Limits(), go_cache=tmp_path / "go", **options)

    return of


def solves(place):
    overlay(FIX.solution, place.fixture.root)
    return Handed(tree=copied(place.fixture.root, place.home / "handed"), rounds=3, calls=2, input=100, output=10)


def test_a_solved_task(tried):
    result = tried(FIX, solves)
    assert (result.solved, result.reason, result.rounds, result.calls) == (True, "", 3, 2)
    assert (result.task, result.kind, result.language, result.agent) == (
        "python/page-count",
        "fix",
        "python",
        "scripted",
    )
    assert "solved" in line(result)


def test_a_task_that_nobody_touched(tried):
    result = tried(
        FIX, lambda place: Handed(tree=copied(place.fixture.root, place.home / "handed"), reason="max rounds")
    )
    failing = "tests/test_paging.py::test_a_full_last_page"
    assert (result.solved, result.reason) == (False, f"still fails: {failing} (max rounds)")


def test_nothing_is_handed_over(tried):
    assert tried(FIX, lambda _: Handed(reason="nothing was committed")).reason == "nothing was committed"
    assert tried(REVIEW, lambda _: Handed()).reason == "no review"


def test_a_review(tried):
    assert tried(REVIEW, lambda _: Handed(text="crm/customers.py: SQL injection")).solved


def test_a_crash_is_a_line(tried):
    def crashes(_):
        raise OSError("no\nmodel")

    result = tried(FIX, crashes)
    assert (result.solved, result.reason) == (False, "OSError: no model")


def test_what_is_kept(tried, tmp_path):
    tried(FIX, solves, keep=tmp_path / "kept")
    assert [each.name.rpartition("-")[0] for each in (tmp_path / "kept").iterdir()] == ["python-page-count-none"]


def test_a_fixture(tmp_path):
    fixture = lay_out(FIX, tmp_path / "repository")
    assert fixture.untouched
    git(fixture.root, "checkout", "--quiet", "-b", "mended")
    overlay(FIX.solution, fixture.root)
    git(fixture.root, "commit", "--quiet", "--all", "--message", "Mend it")
    git(fixture.root, "checkout", "--quiet", "main")
    assert fixture.untouched
    assert (fixture.commits("mended"), fixture.commits("main")) == (1, 0)
    fixture.export("mended", tmp_path / "exported")
    mended = "catalogue/paging.py"
    assert (tmp_path / "exported" / mended).read_text() == FIX.solution[mended]
    (fixture.root / "left.txt").touch()
    assert not fixture.untouched


def test_a_branch_that_is_none(tmp_path):
    fixture = lay_out(FIX, tmp_path / "repository")
    with pytest.raises(subprocess.CalledProcessError):
        fixture.commits("--all")
    with pytest.raises(subprocess.CalledProcessError):
        fixture.export("nowhere", tmp_path / "exported")


def test_a_branch_under_review(tmp_path):
    fixture = lay_out(REVIEW, tmp_path / "repository")
    assert fixture.untouched
    assert git(fixture.root, "diff", "--name-only", f"main...{REVIEW.branch}").split() == [
        "crm/customers.py",
        "tests/test_customers.py",
    ]


def test_an_agent_that_hangs_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr("evals.attempt.GRACE", 0.2)
    command = [sys.executable, "-c", "print('begun', flush=True)\nwhile True: pass"]
    reason = run_agent(command, tmp_path, {}, tmp_path / "log", Limits(seconds=0.3))
    assert reason == "killed after 0 s"


@table(
    ("printed", "state"),
    [
        ('{"type": "step"}\n{"type": "job", "state": "completed"}\n', "completed"),
        ('{"type": "job", "state": "failed"}\nTraceback ...\n', "failed"),
        ('{"type": "job", "state": "running"}\n{"type": "step"}\n', None),
        ('{"type": "job", "sta', None),
        ("[1]\n", None),
        ("", None),
    ],
)
def test_the_last_line_is_the_job(printed, state):
    job = last_job(printed)
    assert (job and job["state"]) == state


def test_the_table(tried):
    handed = [Handed(text="customers.py:32", rounds=1), Handed(rounds=2)]
    results = [tried(REVIEW, lambda _, each=each: each) for each in handed]
    by_name = dict(shares(results))
    assert by_name["review, python"] == by_name["review"] == by_name["all"] == results
    assert by_name["fix"] == []
    assert cells(results)[:3] == ["1/2", "2/2", "1.5"]
