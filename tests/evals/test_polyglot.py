import argparse
import json

import pytest
from evals.attempt import Handed, Limits, copied
from evals.fixture import overlay
from evals.polyglot import Score, Try, languages, load_exercise, load_exercises, missing, play, row

RIGHT = "def greet(name):\n    return f'Hello, {name}!'\n"


@pytest.fixture
def checkout(tmp_path):
    """A made-up exercise in the layout of the benchmark."""
    config = {"files": {"solution": ["greeting.py"], "test": ["greeting_test.py"], "example": [".meta/example.py"]}}
    files = {
        ".docs/instructions.md": "Greet people by name.",
        ".docs/instructions.append.md": "Mind the comma.",
        ".meta/config.json": json.dumps(config),
        ".meta/example.py": RIGHT,
        "greeting.py": "def greet(name):\n    pass\n",
        "greeting_test.py": "from greeting import greet\n\n\ndef test_it():\n    assert greet('Bo') == 'Hello, Bo!'\n",
    }
    overlay(files, tmp_path / "python/exercises/practice/greeting")
    return tmp_path


@pytest.fixture
def played(checkout, tmp_path):
    """Play the exercise with an agent that writes one text after the other, and return what it was asked."""
    exercise = load_exercise(checkout / "python/exercises/practice/greeting", "python")

    def play_texts(*texts):
        asked = []

        def agent(task, _, place, __):
            root = place.fixture.root
            asked.append((task.description, (root / "greeting.py").read_text(), (root / "greeting_test.py").exists()))
            (root / "greeting.py").write_text(texts[len(asked) - 1])
            (root / "greeting_test.py").write_text("")
            return Handed(tree=copied(root, place.home / "tree"))

        tries = play(exercise, "none", agent, Limits(), checkout=checkout, go_cache=tmp_path / "go")
        return [each.passed for each in tries], asked

    return play_texts


def test_a_first_try_that_passes(played):
    passed, [(task, text, tests)] = played(RIGHT)
    assert (passed, tests) == ([True], False)
    assert task.startswith("Greet people by name.\n\nMind the comma.\n####\n\nUse the above instructions")
    assert "modify the supplied files: greeting.py" in task
    assert text == "def greet(name):\n    pass\n"


def test_the_second_try_sees_the_tests_output(played):
    wrong = "def greet(name):\n    return 'Hello'\n"
    passed, [_, (task, text, tests)] = played(wrong, RIGHT)
    assert (passed, text, tests) == ([False, True], wrong, False)
    assert "AssertionError" in task
    assert "Fix the code in greeting.py to resolve the errors." in task


def test_there_are_two_tries(played):
    assert played("", "")[0] == [False, False]


def test_shares():
    tries = [[Try(passed=True)], [Try(), Try(passed=True)], [Try(), Try()], [Try(), Try()]]
    scores = [Score(exercise="a", language="go", model="m", seed=1, tries=each) for each in tries]
    assert row("go", scores).split()[:8] == ["go", "4", "25.0%", "(5%", "to", "70%)", "50.0%", "(15%"]


def test_a_seed_chooses(checkout):
    practice = checkout / "python/exercises/practice"
    for name in "abcdef":
        (practice / "greeting").rename(practice / name) if name == "a" else overlay(
            {".meta/config.json": (practice / "a/.meta/config.json").read_text(), "greeting_test.py": ""},
            practice / name,
        )
    names = [[each.name for each in load_exercises(checkout, ["python"], 3, seed)] for seed in (1, 1, 2)]
    assert names[0] == names[1] != names[2]
    assert len(load_exercises(checkout, ["python"], None, 1)) == 6


def test_jest_is_named(checkout, monkeypatch):
    monkeypatch.setattr("evals.polyglot.program", lambda _: "/usr/bin/node")
    assert "npm install --prefix" in missing(checkout, "javascript")
    assert missing(checkout, "python") == ""


def test_languages():
    assert languages("go, python") == ["go", "python"]
    with pytest.raises(argparse.ArgumentTypeError, match="javascript"):
        languages("rust")
