import pytest
from tests.tables import table

from callboard.coding.chat.approver import SavedApprovals, pattern_of
from callboard.errors import CallerError


def patterns(answers):
    return [rule.pattern for rule in answers.rules]


def test_answers_for_good_are_of_one_project(tmp_path):
    file = tmp_path / "answers.json"
    one, two = SavedApprovals(tmp_path / "one", file), SavedApprovals(tmp_path / "two", file)
    one.allow("bash(git status*)", for_good=True)
    one.allow("bash(ls*)", for_good=False)
    two.allow("file", for_good=True)
    assert patterns(one) == ["bash(git status*)", "bash(ls*)"]
    assert patterns(SavedApprovals(tmp_path / "one", file)) == ["bash(git status*)"]
    assert patterns(SavedApprovals(tmp_path / "two", file)) == ["file"]


def test_answers_are_for_their_owner_alone(tmp_path):
    file = tmp_path / "answers.json"
    SavedApprovals(tmp_path, file).allow("file", for_good=True)
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1}', '{"version": 2}', '{"version": "x"}'])
def test_a_spoiled_file_allows_nothing(tmp_path, text):
    file = tmp_path / "answers.json"
    file.write_text(text)
    with pytest.raises(CallerError, match=r"answers\.json"):
        SavedApprovals(tmp_path, file)


@table(
    ("name", "arguments", "allowed"),
    [
        ("bash", {"command": "git status --short"}, "bash(git status *)"),
        ("bash", {"command": "ls"}, "bash(ls *)"),
        ("bash", {"command": "ls; git log | head -3"}, ""),
        ("bash", {"command": "echo 'never closed"}, ""),
        ("bash", {"command": "$(make it)"}, ""),
        ("bash", {"command": "ls *.py"}, ""),
        ("git", {"action": "commit", "message": "x"}, "git"),
        ("write_file", {"path": "a.py", "content": ""}, "write_file(*)"),
        ("file", {"path": "src/app/a.py"}, "file(src/app/**)"),
        ("file", {"path": "../a.py"}, ""),
        ("file", {"path": "src/*"}, ""),
    ],
)
def test_the_pattern_that_an_answer_allows(name, arguments, allowed):
    assert pattern_of(name, arguments) == allowed
