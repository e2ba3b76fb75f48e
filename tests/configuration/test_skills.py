"""Agent Skills: where they are found, which are off, and what the model reads (agentskills.io)."""

import pytest
from tests.tables import table

from callboard import Agent
from callboard.configuration.skills import describe_skills, find_skills, load_skills, make_skills_ensemble
from callboard.errors import CallerError
from callboard.testing import Call, ScriptedModel

BODY = "# Pdf\nRun scripts/fill.py.\n"


def write(place, name="pdf-forms", front=None, body=BODY):
    folder = place / name
    folder.mkdir(parents=True)
    front = (
        f"name: {name}\ndescription: Fills PDF forms. Use when: a form is to be filled.\n" if front is None else front
    )
    (folder / "SKILL.md").write_text(f"---\n{front}---\n{body}")
    return folder


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    (root / ".git").mkdir(parents=True)
    return root


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def states(skills):
    return [(each.name, each.source, each.problem) for each in skills]


def test_a_strangers_skills_are_off_until_the_project_is_trusted(project, home):
    write(project / ".agents/skills")
    write(project / "sub/.claude/skills", "lint")
    write(home / ".claude/skills", "mine")
    off = "you do not trust this project"
    skills = find_skills(project / "sub", (), home)
    assert states(skills) == [("lint", "project", off), ("mine", "user", ""), ("pdf-forms", "project", off)]
    assert skills[2].hint == f"callboard trust {project}"
    assert [each.problem for each in find_skills(project / "sub", [str(project)], home)] == ["", "", ""]


def test_the_nearest_skill_of_a_name_is_on(project, home):
    write(project / ".agents/skills")
    first = write(project / "sub/.claude/skills")
    write(home / ".agents/skills")
    skills = find_skills(project / "sub", [str(project)], home)
    assert [each.folder for each in skills if not each.problem] == [first]
    assert {each.problem for each in skills} == {"", f"another skill has this name: {first}"}
    # A stranger's skill does not hide the user's own.
    assert [each.source for each in find_skills(project, (), home) if not each.problem] == ["user"]


def test_a_link_between_the_two_places_is_one_skill(project, home):
    folder = write(project / ".agents/skills")
    (project / ".claude/skills").mkdir(parents=True)
    (project / ".claude/skills/pdf-forms").symlink_to(folder)
    assert states(find_skills(project, [str(project)], home)) == [("pdf-forms", "project", "")]


@table(
    ("front", "told"),
    [
        ("name: Pdf\ndescription: x\n", "the name 'Pdf' is not valid"),
        ("name: other\ndescription: x\n", "the name is other, and the folder is pdf-forms"),
        ('name: "a\\u001b[31mb"\ndescription: x\n', "the name 'a\\x1b[31mb' is not valid"),
        (f"name: {'a' * 65}\ndescription: x\n", "is not valid"),
        ("name: pdf-forms\n", "the description has 0 characters"),
        (f"name: pdf-forms\ndescription: {'x' * 1025}\n", "the description has 1025 characters"),
        ("name: pdf-forms\ndescription: a\x1b[2Jb\n", "the description has"),
        ("<html>\n", "not `key: value`: <html>"),
        ("- a\n- b\n", "not `key: value`: - a"),
        ("name: pdf-forms\nname: pdf-forms\ndescription: x\n", "a key is there twice"),
        (f"name: pdf-forms\ndescription: x\nmetadata: {'x' * 20_000}\n", "no front matter"),
        (f"name: pdf-forms\ndescription: {'x' * 10_000_000}\n", "has more than 262144 bytes"),
    ],
)
def test_a_wrong_skill_is_off_and_says_why(front, told, tmp_path):
    home = tmp_path / str(len([*tmp_path.iterdir()]))
    write(home / ".agents/skills", front=front)
    write(home / ".agents/skills", "good")
    skills = find_skills(tmp_path, (), home)
    assert [each.name for each in skills if not each.problem] == ["good"]
    assert told in next(each.problem for each in skills if each.problem)


def test_front_matter_as_people_write_it(tmp_path):
    front = (
        "# ours\nname: 'pdf-forms'\ndescription: >-\n  Fills forms:\n  it's quick.\nlicense: MIT\n"
        "metadata:\n  author: us\n  tags: [a, b]\nallowed-tools:\n- Read\n- Bash(git *)\n"
    )
    [skill] = load_skills([write(tmp_path, front=front)])
    assert (skill.name, skill.description) == ("pdf-forms", "Fills forms: it's quick.")


def test_nothing_outside_of_the_folder_is_read(project, home, tmp_path):
    secret = tmp_path / "secret.md"
    secret.write_text("---\nname: leak\ndescription: x\n---\nTOP")
    outside = write(tmp_path / "elsewhere", "far")
    place = project / ".agents/skills"
    (place / "leak").mkdir(parents=True)
    (place / "leak/SKILL.md").symlink_to(secret)
    (place / "far").symlink_to(outside)
    (place / "loop").symlink_to(place / "loop")
    inner = write(place)
    (inner / "inner.md").symlink_to(secret)
    (inner / "up").symlink_to("..")
    skills = find_skills(project, [str(project)], home)
    problems = {each.name: each.problem for each in skills}
    assert "outside of" in problems["leak"]
    assert "outside of the project" in problems["far"]
    assert problems["loop"]
    assert problems["pdf-forms"] == ""
    load = make_skills_ensemble([each for each in skills if not each.problem]).invokers["skill"]

    for file in ("inner.md", "up/leak/SKILL.md", "../leak/SKILL.md", str(secret), "/etc/passwd"):
        model = ScriptedModel([Call("skill", {"name": "pdf-forms", "file": file}), "ok"])
        result = Agent(model, tools=[load]).run_sync("Go.")
        assert "TOP" not in str(result.canisters)
        assert "outside of" in str(result.canisters[2]), file


def test_an_agent_lists_its_skills_and_loads_what_the_model_asks_for(tmp_path):
    folder = write(tmp_path)
    (folder / "scripts").mkdir()
    (folder / "scripts/fill.py").write_text("print(1)\n")
    calls = [{"name": "pdf-forms"}, {"name": "pdf-forms", "file": "scripts/fill.py"}, {"name": "pdf-form"}]
    model = ScriptedModel([*[Call("skill", each) for each in calls], "Done."])
    agent = Agent(model, skills=[tmp_path], instructions="Be brief.")
    result = agent.run_sync("Fill it.")
    assert "Be brief." in model.requests[0].canisters[0].text
    assert "- pdf-forms: Fills PDF forms. Use when: a form is to be filled." in model.requests[0].canisters[0].text
    body, script, missing = [each for each in result.canisters if type(each).__name__ == "ResultCanister"]
    assert body.text == f"{BODY.strip()}\n\nOther files in {folder}:\n- scripts/fill.py"
    assert script.text == "print(1)\n"
    assert "pdf-forms" in missing.error.message
    with pytest.raises(CallerError, match=r"no SKILL\.md here"):
        Agent(model, skills=[folder / "scripts"])
    other = write(tmp_path / "other")
    with pytest.raises(CallerError, match="another skill has this name"):
        Agent(model, skills=[folder, other])
    with pytest.raises(CallerError, match="a list of paths"):
        Agent(model, skills=str(folder))


def test_the_list_takes_a_share_of_a_small_window_and_says_what_it_leaves_out(tmp_path):
    for number in range(30):
        write(tmp_path, f"skill-{number}", f"name: skill-{number}\ndescription: {'words ' * 20}\n")
    skills = load_skills([tmp_path])
    text = describe_skills(skills, 4096)
    assert len(text) < 4096 * 4 * 0.05 + 200
    assert "24 more: too many to list" in text
    assert "skill-9" in describe_skills(skills)
    assert describe_skills([]) == ""
