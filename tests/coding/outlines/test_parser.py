"""Texts are parsed in a process of their own, and cost nobody else anything."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.tables import table

from callboard.coding.edits.replace_definitions import replace_definitions
from callboard.coding.edits.text_edits import EditRefused
from callboard.coding.outlines import find_syntax_error, make_outline
from callboard.coding.outlines.languages import find_language
from callboard.coding.outlines.parser import ParserProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux: looks at /proc")

PYTHON = find_language("a.py")
JAVA = find_language("A.java")


@pytest.fixture
def parser():
    made = ParserProcess()
    yield made
    made.close()


def memory():
    """The most that this process ever had, in kilobytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


@pytest.mark.parametrize("count", [20_000, 30_000, 200_000])
def test_a_text_that_ends_its_parser_ends_nothing_else(count, parser):
    before = memory()
    assert parser.parse("a<" * count, JAVA) is None
    assert memory() - before < 100_000
    assert parser.parse("class A {}", JAVA).symbols[0].name == "A"


def test_a_hostile_text_gets_little_of_the_processor(parser):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    assert parser.parse("a<" * 18_000, JAVA) is None
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 3


def test_a_text_that_could_not_be_parsed_is_not_tried_again(parser):
    assert parser.parse("a<" * 30_000, JAVA) is None
    parser.parse("x = 1", PYTHON)
    process = parser._process.pid
    assert parser.parse("a<" * 30_000, JAVA) is None
    assert parser._process.pid == process


def test_what_cannot_be_parsed_has_no_outline_and_takes_no_code():
    text = "a<" * 30_000 + "\npublic class Known {}\n"
    assert make_outline(text, "A.java") is None
    assert find_syntax_error(text, "A.java") is None
    with pytest.raises(EditRefused, match="the java could not be parsed; write the whole file with write_file"):
        replace_definitions(text, "class B {}", "A.java")


def test_a_parser_that_was_killed_is_started_again(parser):
    assert parser.parse("x = 1", PYTHON).statements
    os.kill(parser._process.pid, signal.SIGKILL)
    for number in range(2):
        answer = parser.parse(f"y = {number}", PYTHON)
    assert answer.statements


def test_the_parser_sees_nothing_of_ours(parser, monkeypatch, tmp_path):
    """No environment, no directory of the user's, nothing that lies there is imported."""
    monkeypatch.setenv("SECRET", "hunter2")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("json", "msgspec", "tree_sitter", "resource", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert parser.parse("x = 1", PYTHON).statements
    place = Path("/proc", str(parser._process.pid))
    assert (place / "environ").read_bytes() == b""
    assert (place / "cwd").readlink() == Path("/")
    program, isolated, script = (place / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    assert program.startswith(b"/")
    assert isolated == b"-I"
    assert script.startswith(b"/")
    assert not (tmp_path / "ran").exists()
    limits = {line[:26].strip(): line[26:].split()[0] for line in (place / "limits").read_text().splitlines()[1:]}
    assert int(limits["Max address space"]) == 1024**3
    assert limits["Max core file size"] == limits["Max file size"] == "0"


@table("text", ["x = 1", "a<" * 18_000])
def test_the_parser_ends_with_us_however_we_end(text):
    """Also in the midst of a text."""
    program = """
        import json, os, sys, threading
        from callboard.coding.outlines.languages import find_language
        from callboard.coding.outlines.parser import ParserProcess
        parser = ParserProcess()
        parser.parse("x = 0", find_language("a.py"))
        print(json.dumps(parser._process.pid), flush=True)
        sys.stdin.readline()
        threading.Thread(target=parser.parse, args=(sys.argv[1], find_language("A.java")), daemon=True).start()
        print("begun", flush=True)
        sys.stdin.readline()
    """
    ours = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    child = os.pidfd_open(json.loads(ours.stdout.readline()))
    try:
        print(file=ours.stdin, flush=True)
        assert ours.stdout.readline() == "begun\n"
        ours.kill()
        ours.communicate()
        assert select.select([child], [], [], 30)[0], "the parser lives on"
    finally:
        os.close(child)
