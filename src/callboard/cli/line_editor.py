"""Read what a person types: two line editors, one with prompt_toolkit and one without.

Law: waiting for a line can be cancelled without losing what was typed meanwhile, and the terminal is left as it was.
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
"""The answers to a question about a call. After any other one the question is asked again."""
MAX_LINE: Final = 1024 * 1024
"""Bytes of a line."""
_BLOCK = 65536


class Interrupted(Exception):
    """Ctrl-C, while a line was edited."""


class Editor(Protocol):
    """Reads what a person types. Raises Interrupted at ctrl-C, EOFError at ctrl-D. `is_person`: a person is at it."""

    is_person: bool

    async def prompt(self, before: str) -> str:
        """A prompt, of several lines where they end with a backslash."""
        ...

    async def answer(self, question: str) -> str:
        """One line that is typed after the question was shown; "" for a paste of several lines."""
        ...


def open_editor(history: Path) -> Editor:
    """prompt_toolkit's where it is installed and there is a terminal, else a plain one."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return PlainEditor(sys.stdin.fileno(), is_person=sys.stdin.isatty())
    try:
        return RichEditor(history)
    except ImportError:
        return PlainEditor(sys.stdin.fileno(), is_person=True)


async def read_line() -> str | None:
    """As `read_answer`; waiting for the line can be cancelled."""
    line: str | None = await ThreadPool(1).run(read_answer)
    return line


def read_answer() -> str | None:
    """Read a line of standard input, None at its end. A paste of several lines counts as an empty line."""
    line = sys.stdin.readline()
    if not line:
        return None
    return "" if _has_input(sys.stdin.fileno()) else line


def discard_input(terminal: int = 0) -> None:
    """Discard what was typed before a question is shown: it was not meant for the question."""
    try:
        import termios  # noqa: PLC0415  # not on Windows
    except ImportError:
        return
    with suppress(termios.error):  # not a terminal
        termios.tcflush(terminal, termios.TCIFLUSH)


def _has_input(source: int) -> bool:
    """Whether more input is there: nobody types a second line so fast."""
    return os.isatty(source) and bool(select.select([source], [], [], 0)[0])


class PlainEditor:
    """Lines of a file descriptor, as they come; at a terminal the system's own editing of lines.

    What was read before a cancellation is kept for the next call.
    """

    def __init__(self, source: int, *, is_person: bool) -> None:
        self.is_person = is_person
        self._source = source
        self._threads = ThreadPool(1)
        self._buffer = b""
        self._reading: asyncio.Task[bytes] | None = None

    async def prompt(self, before: str) -> str:
        lines = [await self._read_line(before)]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(await self._read_line("... "))
        return "\n".join(lines)

    async def answer(self, question: str) -> str:
        if self.is_person:
            discard_input(self._source)
            self._buffer = b""
            if self._reading is not None and self._reading.done():
                self._reading = None
        line = await self._read_line(f"{question} ")
        return "" if self.is_person and (self._buffer or _has_input(self._source)) else line

    async def _read_line(self, before: str) -> str:
        if self.is_person:
            sys.stderr.write(before)
            sys.stderr.flush()
        while b"\n" not in self._buffer:
            if self._reading is None:
                self._reading = asyncio.ensure_future(self._threads.run(lambda: os.read(self._source, _BLOCK)))
            try:
                block = await asyncio.shield(self._reading)
            except OSError:
                raise EOFError from None  # the terminal is gone
            self._reading = None
            if not block and not self._buffer:
                raise EOFError
            self._buffer += block or b"\n"
            if len(self._buffer) > MAX_LINE and b"\n" not in self._buffer:
                raise EOFError
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace").removesuffix("\r")


class RichEditor:
    """prompt_toolkit: history in a file, alt-enter for a new line. Raises ImportError where it is not installed."""

    is_person = True

    def __init__(self, history: Path) -> None:
        from prompt_toolkit import PromptSession  # noqa: PLC0415  # 100 ms, and an extra's
        from prompt_toolkit.history import FileHistory  # noqa: PLC0415  # as above

        history.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Only the owner can read what was typed.
        os.close(os.open(history, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        options: dict[str, Any] = {"interrupt_exception": Interrupted}
        self._prompts: PromptSession[str] = PromptSession(
            history=FileHistory(str(history)),
            multiline=True,
            key_bindings=_make_key_bindings(),
            prompt_continuation="... ",
            **options,
        )
        self._questions: PromptSession[str] = PromptSession(**options)

    async def prompt(self, before: str) -> str:
        # Ctrl-C is a key here; the signal belongs to the program that runs the event loop.
        return await self._prompts.prompt_async(before, handle_sigint=False)

    async def answer(self, question: str) -> str:
        from prompt_toolkit.input.typeahead import clear_typeahead  # noqa: PLC0415  # as above

        clear_typeahead(self._questions.input)
        discard_input(self._questions.input.fileno())
        return await self._questions.prompt_async(f"{question} ", handle_sigint=False)


def _make_key_bindings() -> Any:
    """Enter ends a prompt, but for one whose line ends with a backslash; alt-enter begins a line."""
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
