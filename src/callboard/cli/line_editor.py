"""Read what a person types with prompt_toolkit, or the lines of a pipe.

Rule: cancelling the wait for a line loses no input, and the terminal is restored.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from callboard.execution.thread_pool import ThreadPool

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

YES: Final = ("y", "yes")
NO: Final = ("n", "no", "d", "deny")
"""Valid answers to a question about a call. After any other input the question is asked again."""
MAX_LINE: Final = 1024 * 1024
"""Maximum bytes of a line."""


class Interrupted(Exception):
    """The person pressed ctrl-C while editing a line."""


class Editor(Protocol):
    """Reads typed lines. Raises Interrupted at ctrl-C, EOFError at ctrl-D. `is_person` is true at a terminal."""

    is_person: bool

    async def prompt(self, before: str) -> str:
        """Read a prompt. It continues on the next line after a backslash."""
        ...

    async def answer(self, question: str) -> str:
        """Read one line typed after the question was shown; "" for a paste of several lines."""
        ...


def open_editor(history: Path) -> Editor:
    """Return an editor for a terminal, or for piped lines."""
    return RichEditor(history) if sys.stdin.isatty() else PipeEditor(sys.stdin.fileno())


async def read_line() -> str | None:
    """Like `read_answer`, but waiting for the line can be cancelled."""
    line: str | None = await ThreadPool(1).run(read_answer)
    return line


def read_answer() -> str | None:
    """Read a line of standard input, None at its end. A paste of several lines counts as an empty line."""
    line = sys.stdin.readline()
    if not line:
        return None
    source = sys.stdin.fileno()
    # A person cannot type a second line this fast.
    is_pasted = os.isatty(source) and select.select([source], [], [], 0)[0]
    return "" if is_pasted else line


def discard_input(terminal: int = 0) -> None:
    """Discard input that was typed before a question: it was not meant as an answer."""
    try:
        import termios  # noqa: PLC0415  # not on Windows
    except ImportError:
        return
    with suppress(termios.error):  # not a terminal
        termios.tcflush(terminal, termios.TCIFLUSH)


class PipeEditor:
    """Reads lines of a file descriptor that is not a terminal. The next call gets the line of a cancelled read."""

    is_person = False

    def __init__(self, source: int) -> None:
        self._file = os.fdopen(source, "rb", closefd=False)
        self._threads = ThreadPool(1)
        self._reading: asyncio.Task[bytes] | None = None

    async def prompt(self, before: str) -> str:
        lines = [await self._read_line()]
        while lines[-1].endswith("\\"):
            lines[-1:] = lines[-1][:-1], await self._read_line()
        return "\n".join(lines)

    async def answer(self, question: str) -> str:
        raise EOFError

    async def _read_line(self) -> str:
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._threads.run(lambda: self._file.readline(MAX_LINE)))
        line = await asyncio.shield(self._reading)
        self._reading = None
        if not line or len(line) == MAX_LINE:
            raise EOFError
        return line.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")


class RichEditor:
    """Reads with prompt_toolkit: a history file, and alt-enter for a new line."""

    is_person = True

    def __init__(self, history: Path) -> None:
        from prompt_toolkit import PromptSession  # noqa: PLC0415  # 100 ms, and belongs to an extra
        from prompt_toolkit.history import FileHistory  # noqa: PLC0415  # as above
        from prompt_toolkit.output import create_output  # noqa: PLC0415  # as above

        history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Only the owner can read the history.
        os.close(os.open(history, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        # Standard output may be a file while the person is at the terminal.
        options: dict[str, Any] = {
            "interrupt_exception": Interrupted,
            "output": create_output(always_prefer_tty=True),
        }
        self._prompts: PromptSession[str] = PromptSession(
            history=FileHistory(str(history)),
            multiline=True,
            key_bindings=_make_key_bindings(),
            prompt_continuation="... ",
            **options,
        )
        self._questions: PromptSession[str] = PromptSession(**options)

    async def prompt(self, before: str) -> str:
        # Ctrl-C is a key here; the program that runs the event loop handles the signal.
        return await self._prompts.prompt_async(before, handle_sigint=False)

    async def answer(self, question: str) -> str:
        from prompt_toolkit.input.typeahead import clear_typeahead  # noqa: PLC0415  # as above

        clear_typeahead(self._questions.input)
        discard_input(self._questions.input.fileno())
        return await self._questions.prompt_async(f"{question} ", handle_sigint=False)


def _make_key_bindings() -> Any:
    """Bind enter to end the prompt, except after a backslash, and alt-enter to start a line."""
    from prompt_toolkit.key_binding import KeyBindings  # noqa: PLC0415  # as above

    keys = KeyBindings()

    @keys.add("enter")
    def _end(event: Any) -> None:
        buffer = event.current_buffer
        if buffer.document.current_line_before_cursor.endswith("\\") and not buffer.document.current_line_after_cursor:
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _new_line(event: Any) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys
