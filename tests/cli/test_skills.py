import json
from pathlib import Path

import pytest


@pytest.fixture
def project(tmp_path, own, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "nobody")
    project = tmp_path / "mine"
    for name, description in (("notes", "Writes notes."), ("bad", "")):
        folder = project / ".agents/skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {description}\n---\nWrite.\n")
    assert not own.exists()
    monkeypatch.chdir(project)
    return project


def test_skills_are_listed_with_why_they_are_off_and_trust_turns_them_on(invoke, project):
    listed = invoke("skills").stdout
    assert f"off  project  notes  Writes notes.\n     {project}/.agents/skills/notes\n" in listed
    assert f"you do not trust this project; callboard trust {project}\n" in listed
    assert "the description has 0 characters; write 1 to 1024 printable characters\n" in listed
    trusted = invoke("trust", "--yes")
    assert f"skill notes: Writes notes. ({project}/.agents/skills/notes)" in trusted.stderr
    rows = json.loads(invoke("skills", str(project), "--json").stdout)
    assert [(each["name"], bool(each["problem"])) for each in rows] == [("bad", True), ("notes", False)]
    assert rows[1]["folder"] == f"{project}/.agents/skills/notes"


def test_without_skills_the_places_are_named(invoke, project):
    listed = invoke("skills", str(project.parent))
    assert (listed.stdout, "no skills in .agents/skills and .claude/skills" in listed.stderr) == ("", True)
