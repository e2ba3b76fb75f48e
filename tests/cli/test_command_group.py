"""Help of every command, on screens of several widths, in a pipe and without colors."""

import os
import pty
import subprocess
from contextlib import suppress
from functools import cache

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from callboard.cli import app

MAX_LINES = 52
"""Lines of a screen. The longest help is that of `callboard serve`."""


def find_commands(command, name=()):
    command = command.load() if hasattr(command, "load") else command
    yield name
    for word, below in getattr(command, "commands", {}).items():
        yield from find_commands(below, (*name, word))


@cache
def helps(columns):
    """The help of every command by its name, as a pipe gets it."""
    found = {}
    for name in find_commands(get_command(app)):
        # The runner ignores COLUMNS.
        result = CliRunner().invoke(app, [*name, "--help"], prog_name="callboard", terminal_width=columns - 2)
        assert (result.exit_code, result.stderr) == (0, ""), name
        found[name] = result.stdout
    return found


def test_help_fits_one_screen():
    lines = {name: text.splitlines() for name, text in helps(100).items()}
    assert {name: len(each) for name, each in lines.items() if len(each) > MAX_LINES} == {}
    assert [name for name, each in lines.items() if max(map(len, each)) > 100] == []


def test_help_of_a_narrow_screen_has_the_same_words():
    narrow, wide = ({name: "".join(text.split()) for name, text in helps(columns).items()} for columns in (40, 200))
    assert narrow == wide


def test_help_in_a_pipe_has_no_escape_codes():
    assert [name for name, text in helps(100).items() if "\x1b" in text] == []


def test_every_command_has_a_heading():
    assert "\nCommands:" not in helps(100)[()]


def test_advanced_options_are_last_and_hidden_ones_are_not_shown():
    text = helps(100)[("debug",)]
    headings = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["Arguments:", "Options:", "In a worker:", "Advanced:"]
    assert text.index("--dialect") > text.index("Advanced:") > text.index("--model")
    assert "--symptoms" not in text
    assert "--direct " not in text


@pytest.mark.parametrize("arguments", [(), ("serve", "--help"), ("run", "--no-such-option")])
def test_a_narrow_terminal_without_colors_gets_no_escape_codes(callboard, arguments):
    ours, theirs = pty.openpty()
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "40"}
    with subprocess.Popen([*callboard.command, *arguments], stdout=theirs, stderr=theirs, env=environment):
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the end
            while piece := os.read(ours, 65_536):
                shown += piece
    os.close(ours)
    assert b"callboard" in shown
    assert b"\x1b" not in shown
