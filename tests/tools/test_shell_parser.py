"""Which command lines are one simple command, and which words it has."""

from __future__ import annotations

import shlex
import time

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.tools.shell_parser import MAX_LENGTH, split_command


@table(
    ("line", "words"),
    [
        ("git status", ["git", "status"]),
        (" ls\t-l\n", ["ls", "-l"]),
        ("echo ';' \"&&\" \\| x", ["echo", ";", "&&", "|", "x"]),
        ("r'm' -\"rf\" \\x", ["rm", "-rf", "x"]),
        ("ls 2>&1 >/dev/null </dev/null 2>&-", ["ls"]),
        ("ls *.py ~ a? HEAD~1 x=~/b", ["ls", "*.py !", "~ !", "a? !", "HEAD~1", "x=~/b !"]),
        ('echo "a \\$HOME \\` \\" \\n"', ["echo", 'a $HOME ` " \\n']),
        ("echo '$HOME'", ["echo", "$HOME"]),
        ("'A=b' rm x", ["A=b", "rm", "x"]),
        ("echo 'a\nb'", ["echo", "a\nb"]),
        ("'time' x", ["time", "x"]),
        ("pytest -q tests/test_a.py::test_b", ["pytest", "-q", "tests/test_a.py::test_b"]),
    ],
)
def test_a_simple_command(line, words):
    found = split_command(line)
    assert [word.text + " !" * (not word.certain) for word in found] == words


@table(
    "line",
    [
        "", "  # nothing", "a;", "a; b", "a && b", "a || b", "a | b", "a &", "a\nb", "a \\\n b", "! a", "(a)", "{ a; }",
        "a # b", "ls {a,b}", "echo $HOME", 'echo "$HOME"', "echo $(a)", 'echo "`a`"', "echo `a`", "A=b a", "A='b' a",
        "a[0]=b c", "a+=b c", "a > b", "a 2>>b", "a < b", "a &> b", "a &>/dev/null", "a 10>/dev/null", "a >&b",
        "a <<E", "a <<< b", "a <(b)", "a {fd}>/dev/null", "if a", "time a", "[[ a ]]", "[ -f a ]", "r* a", "'' a",
        "echo 'a", 'echo "a', "echo a\\", "a\rb", "a\x00", "a\u00a0b", "a\u2028b", "f() { a; }", "x" * (MAX_LENGTH + 1),
    ],
)  # fmt: skip
def test_not_a_simple_command(line):
    assert split_command(line) is None


@given(st.text(alphabet=" \n\t\\'\"$`;|&()<>#*?[]{}~!=-abrm01\x00é", max_size=60))
def test_any_text_is_read(text):
    words = split_command(text)
    assert words is None or words[0].text


@given(st.lists(st.text(alphabet="ab'\"$;| *\\", min_size=1), min_size=1, max_size=5))
def test_what_is_quoted_comes_out_as_it_was(words):
    found = split_command(f"x {shlex.join(words)}")
    assert [word.text for word in found[1:]] == words
    assert all(word.certain for word in found)


@table("piece", ["a", "'", '"a', "\\", "\\\\", "''", '"\\', " 2>&1", "*"])
def test_a_long_line_takes_linear_time(piece):
    line = "x " + piece * (MAX_LENGTH // len(piece) - 2)
    start = time.process_time()
    split_command(line)
    assert time.process_time() - start < 0.2
