"""The commands of `callboard chat`: the table from which /help is made, and what each command shows."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from callboard.cli.diffs import HasTell, show_diff
from callboard.coding.agents.job_request import parse_access
from callboard.coding.chat.session import ChatSession
from callboard.core import Model
from callboard.modes import get_plan
from callboard.profiles.prices import describe_pricing
from callboard.text.display import escape
from callboard.text.plural import format_count
from callboard.text.suggest import suggest

_COMMAND: Final = re.compile(r"/([A-Za-z-]*)(?:\s+(.*))?", re.DOTALL)


class ChatCommand(NamedTuple):
    """A command of a chat. `run` is None for the command that ends the chat."""

    arguments: str
    summary: str
    run: Callable[[ChatSession, str, HasTell], Awaitable[None]] | None


async def _help(_chat: ChatSession, _rest: str, display: HasTell) -> None:
    rows = {f"/{name} {each.arguments}".rstrip(): each.summary for name, each in COMMANDS.items()}
    width = max(map(len, rows))
    for name, summary in rows.items():
        display.tell(f"{name.ljust(width)}  {summary}")
    display.tell("alt-enter, or a backslash before enter, starts a new line of the prompt", "2")


async def _mode(chat: ChatSession, rest: str, display: HasTell) -> None:
    if rest:
        chat.access = parse_access(rest, "/mode")
    display.tell(f"access: {chat.access} ({_MEANINGS[chat.access]})")


async def _tools(chat: ChatSession, _rest: str, display: HasTell) -> None:
    tools = chat.tools()
    width = max(len(name) for name, _, _ in tools)
    for name, purpose, is_free in tools:
        display.tell(f"{name.ljust(width)}  {'no approval needed' if is_free else 'asks first':18}  {purpose}")


async def _undo(chat: ChatSession, _rest: str, display: HasTell) -> None:
    display.tell(f"undone: {', '.join(map(escape, await chat.undo()))}")


def _unknown_cost(model: Model) -> str:
    price = describe_pricing(get_plan(model).prices, model.name, datetime.now(UTC))
    return f"; the cost is unknown: {price.why or 'not every reply reported its tokens'}" + (
        f" ({price.hint})" if price.hint else ""
    )


async def _cost(chat: ChatSession, _rest: str, display: HasTell) -> None:
    usage = chat.usage
    cost = _unknown_cost(chat.model) if chat.cost is None and chat.rounds else f", ${chat.cost or 0.0:.4f}"
    rounds = format_count(chat.rounds, "round")
    display.tell(f"{usage.input} tokens in ({usage.cached} cached), {usage.output} out, {rounds}{cost}")


async def _diff(chat: ChatSession, _rest: str, display: HasTell) -> None:
    show_diff(display, await chat.diff() or "nothing has changed")


async def _clear(chat: ChatSession, _rest: str, display: HasTell) -> None:
    chat.clear()
    display.tell("started a new conversation; your files did not change")


QUIT: Final = "quit"
COMMANDS: Final[Mapping[str, ChatCommand]] = {
    "help": ChatCommand("", "shows this list", _help),
    "mode": ChatCommand("[read-only|edit|full]", "shows or sets what the model may do", _mode),
    "tools": ChatCommand("", "lists the model's tools, and which of them ask you first", _tools),
    "undo": ChatCommand("", "undoes the changes of the last turn", _undo),
    "diff": ChatCommand("", "shows all changes of the chat", _diff),
    "cost": ChatCommand("", "shows tokens, rounds, and the cost if prices are known", _cost),
    "clear": ChatCommand("", "forgets the conversation", _clear),
    QUIT: ChatCommand("", "ends the chat", None),
}
_MEANINGS: Final = {
    "read-only": "the model can only read",
    "edit": "the model reads freely, and asks before it changes or runs anything",
    "full": "the model never asks",
}


def parse_command(line: str) -> tuple[str, str] | None:
    """Return the name and the arguments of a command, or None for a prompt, such as one that starts with a path."""
    match = _COMMAND.fullmatch(line)
    return (match[1], (match[2] or "").strip()) if match else None


async def run_command(chat: ChatSession, name: str, rest: str, display: HasTell) -> None:
    """Run a command, or suggest one if the name is unknown. Raises CallerError."""
    command = COMMANDS.get(name)
    if command is None or command.run is None:
        display.tell(f"no command /{name}; {suggest(name, COMMANDS)}", "33")
    else:
        await command.run(chat, rest, display)
