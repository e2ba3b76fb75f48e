"""The commands of `callboard chat`.

Owns their table, from which /help is made, and what each shows. Knows nothing of how they are typed.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from callboard.cli.jobs import JobDisplay
    from callboard.coding.chat.session import Chat

_TYPED: Final = re.compile(r"/([A-Za-z-]*)(?:\s+(.*))?", re.DOTALL)


class Command(NamedTuple):
    """What follows the name, what it does in words, and what does it; None where the chat ends."""

    arguments: str
    says: str
    act: Callable[[Chat, str, JobDisplay], Awaitable[None]] | None


async def _help(_chat: Chat, _rest: str, display: JobDisplay) -> None:
    rows = {f"/{name} {each.arguments}".rstrip(): each.says for name, each in COMMANDS.items()}
    width = max(map(len, rows))
    for name, says in rows.items():
        display.tell(f"{name.ljust(width)}  {says}")
    display.tell("alt-enter, or a backslash at the end of a line, begins a new line of a prompt", "2")


async def _mode(chat: Chat, rest: str, display: JobDisplay) -> None:
    from callboard.coding.agents.job_request import rights_of  # noqa: PLC0415  # not for --help

    if rest:
        chat.rights = rights_of(rest, "/mode")
    display.tell(f"rights: {chat.rights} ({_MEANINGS[chat.rights]})")


async def _tools(chat: Chat, _rest: str, display: JobDisplay) -> None:
    tools = chat.tools()
    width = max(len(name) for name, _, _ in tools)
    for name, does, free in tools:
        display.tell(f"{name.ljust(width)}  {'free' if free else 'asks'}  {does}")


async def _undo(chat: Chat, _rest: str, display: JobDisplay) -> None:
    from callboard.text.display import escape  # noqa: PLC0415  # not for --help

    display.tell(f"taken back: {', '.join(map(escape, await chat.undo()))}")


async def _cost(chat: Chat, _rest: str, display: JobDisplay) -> None:
    usage = chat.usage
    cost = "" if chat.cost is None else f", cost {chat.cost:.4f}"
    display.tell(f"{usage.input} tokens in ({usage.cached} cached), {usage.output} out, {chat.rounds} rounds{cost}")


async def _diff(chat: Chat, _rest: str, display: JobDisplay) -> None:
    from callboard.cli.approvals import tell_diff  # noqa: PLC0415  # not for --help

    tell_diff(display, await chat.diff() or "nothing has changed")


async def _clear(chat: Chat, _rest: str, display: JobDisplay) -> None:
    chat.clear()
    display.tell("the conversation begins anew; files stay as they are")


QUIT: Final = "quit"
COMMANDS: Final[Mapping[str, Command]] = {
    "help": Command("", "shows this", _help),
    "mode": Command("[read-only|edit|full]", "shows or sets what the model may do", _mode),
    "tools": Command("", "lists the model's tools, and which of them ask", _tools),
    "undo": Command("", "takes back what the last turn changed", _undo),
    "diff": Command("", "shows what has changed since the chat's first change", _diff),
    "cost": Command("", "shows tokens, rounds, and the cost where prices are known", _cost),
    "clear": Command("", "forgets the conversation", _clear),
    QUIT: Command("", "leaves", None),
}
_MEANINGS: Final = {
    "read-only": "the model can only look",
    "edit": "it looks freely, and asks before it changes or runs something",
    "full": "nothing is asked",
}


def command_of(typed: str) -> tuple[str, str] | None:
    """The name and the rest of what is typed as a command; None for a prompt, such as one that begins with a path."""
    found = _TYPED.fullmatch(typed)
    return (found[1], (found[2] or "").strip()) if found else None


async def obey(chat: Chat, name: str, rest: str, display: JobDisplay) -> None:
    """Does what a command says, and says so where there is none of that name. Raises CallerError."""
    from callboard.text.suggest import suggest  # noqa: PLC0415  # not for --help

    command = COMMANDS.get(name)
    if command is None or command.act is None:
        display.tell(f"no command /{name}; {suggest(name, COMMANDS)}", "33")
    else:
        await command.act(chat, rest, display)
