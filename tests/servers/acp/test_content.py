from __future__ import annotations

from pathlib import Path

from tests.tables import table

from callboard.coding.workspace.changed_files import ChangedFile
from callboard.core import ResultCanister, error_result
from callboard.servers.acp.content import (
    MAX_FILE,
    MAX_TEXT,
    describe_call,
    describe_changes,
    describe_invisible,
    describe_result,
    input_of,
    kind_of,
    locations_of,
    title_of,
)

ROOT = Path("/project")


def texts(contents):
    return [each.content.text for each in contents]


@table(
    ("action", "kind"),
    [
        ("read_file", "read"),
        ("git_diff", "read"),
        ("grep", "search"),
        ("replace_in_file", "edit"),
        ("apply_patch", "edit"),
        ("delete_file", "delete"),
        ("bash", "execute"),
        ("run_tests", "execute"),
        ("", "other"),
    ],
)
def test_kinds(action, kind):
    assert kind_of(action) == kind


@table(
    ("name", "arguments", "title"),
    [
        ("file", {"action": "read", "path": "a.py"}, "file read `a.py`"),
        ("bash", {"command": "echo `date`\n\x1b[2J"}, "bash `` echo `date` [2J ``"),
        ("think", {"depth": 3}, "think"),
        ("a\nb", None, "`a b`"),
        ("www.evil.example", None, "`www.evil.example`"),
        ("![x](//evil.example)", {"action": "[y](//evil.example)"}, "`![x](//evil.example)` `[y](//evil.example)`"),
    ],
)
def test_a_title_is_one_line(name, arguments, title):
    assert title_of(name, arguments) == title


@table(
    ("arguments", "places"),
    [
        ({"path": "src/a.py", "start_line": 7}, [("/project/src/a.py", 7)]),
        ({"path": "/project/a.py", "line": True}, [("/project/a.py", None)]),
        ({"path": "../a.py"}, []),
        ({"path": "/etc/passwd"}, []),
        ({"path": "a\0b"}, []),
        ({"path": 7}, []),
        (None, []),
    ],
)
def test_a_location_is_beneath_the_directory(arguments, places):
    assert [(each.path, each.line) for each in locations_of(ROOT, arguments)] == places


def test_all_of_a_call_is_shown():
    nested = {}
    for _ in range(1000):
        nested = {"a": nested}
    assert texts(describe_call({"command": "a\n```\nb"}, "")) == ["````\na\n```\nb\n````"]
    assert '"timeout": 9' in texts(describe_call({"command": "a", "timeout": 9}, ""))[0]
    assert texts(describe_call(None, "{broken")) == ["```\n{broken\n```"]
    assert texts(describe_call(nested, "raw")) == ["```\nraw\n```"]
    assert (input_of(nested), input_of({"a": [1]})) == (None, {"a": [1]})


def test_what_is_invisible_in_a_call_is_spelled_out():
    assert texts(describe_call({"command": "ls\u3164\u202e\n\tx"}, "")) == ["```\nls\\u3164\\u202e\n\tx\n```"]
    assert '"a\\ufe0f"' in texts(describe_call({"command": "a\ufe0f", "timeout": 9}, ""))[0]
    assert texts(describe_call(None, "{\u2066broken")) == ["```\n{\\u2066broken\n```"]


def test_what_is_invisible_in_a_change_is_spelled_out_beside_the_editors_diff():
    plain = ChangedFile("a.py", b"x = 1\r\n", b"\tx = 2\r\n")
    assert describe_invisible([plain]) == []
    [shown] = texts(describe_invisible([plain, ChangedFile("b.py", None, "y = 1\u202e # \ufe0f\n".encode())]))
    assert "+y = 1\\u202e # \\ufe0f\n" in shown


def test_a_change_is_a_diff_of_the_whole_file():
    changes = [
        ChangedFile("new.py", None, b"x\n"),
        ChangedFile("old.py", b"x\n", None),
        ChangedFile("link", None, None),
        ChangedFile("a.bin", b"\0", b"\0\1"),
        ChangedFile("large", b"x\n" * MAX_FILE, b"x\n" * MAX_FILE + b"y\n"),
    ]
    new, old, binary, large = describe_changes(ROOT, changes)
    assert (new.path, new.old_text, new.new_text) == ("/project/new.py", None, "x\n")
    assert (old.path, old.old_text, old.new_text) == ("/project/old.py", "x\n", "")
    assert "it is no text" in binary.content.text
    assert large.content.text.endswith(" x\n+y\n\n```")


def test_a_result_is_code():
    hostile = "[click](https://evil.example)\n```\n![x](https://evil.example)"
    assert texts(describe_result(ResultCanister(hostile, invocation_id="c1"))) == [f"````\n{hostile}\n````"]
    assert texts(describe_result(error_result("c1", "execution", "it broke"))) == ["```\nit broke\n```"]
    assert len(texts(describe_result(ResultCanister("x" * (MAX_TEXT + 1), invocation_id="c1")))[0]) == MAX_TEXT + 8
