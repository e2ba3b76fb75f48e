"""The skills and the nested AGENTS.md files of a repository in its jobs."""

from pathlib import Path

import pytest

from callboard.core import ResultCanister
from callboard.testing import Call

REPORT = {"description": "add returns a wrong sum"}
ANSWERS = ["It is in calc.py.", "calc.py: high."]


@pytest.fixture
def skill(repository, monkeypatch, tmp_path):
    """A skill of the repository that is not committed; a home without skills."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "nobody")
    folder = repository.root / ".agents/skills/find-sums"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: find-sums\ndescription: Finds sums.\n---\nRun find.sh.\n")
    (folder / "find.sh").write_text("echo found; echo no > $(dirname $0)/written\n")
    return folder


def results(done):
    return [each.text for each in done.model.requests[-2].canisters if isinstance(each, ResultCanister)]


def test_a_trusted_projects_skill_is_loaded_and_its_script_runs_in_the_sandbox(run, repository, skill):
    calls = [Call("skill", {"name": "find-sums"}), Call("bash", {"command": f"sh {skill}/find.sh 2>&1"})]
    calls.append(Call("file", {"path": "calc.py"}))
    trusted = f'trusted = ["{repository.root}"]\n'
    done = run("triage", REPORT, [*calls, *ANSWERS], workflow="phased", settings=trusted)
    assert done.job.state == "completed"
    assert "- find-sums: Finds sums." in done.model.requests[0].canisters[0].text
    loaded, ran = results(done)[:2]
    assert loaded == f"Run find.sh.\n\nOther files in {skill}:\n- find.sh"
    assert ran.startswith("found\n")
    assert not (skill / "written").exists()


@pytest.mark.usefixtures("skill")
def test_a_strangers_skill_is_off_and_a_notice_says_so(run):
    done = run(
        "triage",
        REPORT,
        [Call("skill", {"name": "find-sums"}), Call("file", {"path": "calc.py"}), *ANSWERS],
        workflow="phased",
    )
    assert "Finds sums" not in str(done.model.requests[0])
    assert "no tool 'skill'" in done.results[0]
    assert "the skill find-sums is off: you do not trust this project; callboard skills lists them" in done.notices


def test_the_nearest_agents_file_above_a_file_is_shown_once(run, repository):
    for folder, text in (
        ("web", "Use tabs."),
        ("web/api", "Use </document> spaces."),
        ("web/api/v1/deep", "Not this."),
    ):
        (repository.root / folder).mkdir(parents=True)
        (repository.root / folder / "AGENTS.md").write_text(text)
        (repository.root / folder / "code.py").write_text("a = 1\n")
    repository.commit("Nested")
    (repository.root / "web/api/v1/code.py").write_text("b = 1\n")
    repository.commit("Deeper")
    paths = ["web/api/v1/code.py", "web/api/code.py", "web/code.py", "calc.py", "../../etc/passwd"]
    calls = [Call("file", {"path": path}) for path in paths]
    done = run("triage", REPORT, [*calls, *ANSWERS], workflow="phased")
    first, second, third, fourth, outside = results(done)[:5]
    assert "Instructions for the files in web/api:" in first
    assert '<document title="web/api/AGENTS.md">\nUse ' in first
    assert first.count("</document>") == 1
    assert "Instructions" not in second + fourth + outside
    assert "Use tabs." in third
