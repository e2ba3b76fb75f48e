"""Callboard's parser of dialects, and the watcher around it."""

import json
import sys
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterable

from bench.contenders.calls import NAME, SCHEMA, Call, arguments, content, cut

from callboard.core import Event, InvocationCanister, InvocationEnded, TextPiece, ToolDeclaration, identify_in_turn
from callboard.dialects import DIALECTS, Dialect, NotSpellable, Parser, get_dialect, render_calls
from callboard.errors import CallerError
from callboard.modes import Watcher

_COMMAND = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
_WRITE = ToolDeclaration(NAME, "Write a file.", SCHEMA)
_BASH = ToolDeclaration("bash", "Run a command.", _COMMAND)
_SPELLED_AS = {"auto": "hermes"}


def names() -> list[str]:
    return list(dict.fromkeys([*DIALECTS, watched().name]))


def watched() -> Dialect:
    """What prose is watched for."""
    try:
        return get_dialect("auto")
    except CallerError:
        return get_dialect("json")


def reading(dialect: str, size: int) -> tuple[Call, Callable[[], list[Call]]]:
    call, tool, text = _spelled(dialect, size)
    pieces = cut(text)

    def events() -> Iterable[Event]:
        parser = Parser([tool], dialect)
        for piece in pieces:
            yield from parser.feed(piece)
        yield from parser.finish("stop")

    return call, lambda: [(each.name, each.arguments) for each in events() if isinstance(each, InvocationEnded)]


def memory(dialect: str, size: int) -> int:
    """Bytes that reading takes at most, beyond the call's own text: the arguments and how they were written."""
    _, tool, text = _spelled(dialect, size)
    parser = Parser([tool], dialect)
    own = 0
    tracemalloc.start()
    for at in range(0, len(text), 4):
        for event in parser.feed(text[at : at + 4]):
            own += _own(event)
    for event in parser.finish("stop"):
        own += _own(event)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak - own


def watching(text: str, length: int) -> Callable[..., Iterable[list[Event]]]:
    """What watches the text in pieces of a length, and keeps so many of the answers: by default none."""
    pieces = [TextPiece(piece) for piece in cut(text, length)]
    dialect = watched()

    def watch(keep: int | None = 0) -> Iterable[list[Event]]:
        watcher = Watcher(dialect, [_WRITE], identify_in_turn(0))
        answers = deque(map(watcher.feed, pieces), maxlen=keep)
        answers.append(watcher.finish("stop"))
        return answers

    if "".join([event.text for answer in watch(None) for event in answer if isinstance(event, TextPiece)]) != text:
        raise AssertionError(text[:80])
    return watch


def _spelled(dialect: str, size: int) -> tuple[Call, ToolDeclaration, str]:
    """The call, its tool and its spelling: a command where the dialect has nothing else."""
    row = get_dialect(_SPELLED_AS.get(dialect, dialect))
    try:
        return _of(row, _WRITE, arguments(size))
    except NotSpellable:
        return _of(row, _BASH, {"command": content(size)})


def _of(row: Dialect, tool: ToolDeclaration, given: dict[str, str]) -> tuple[Call, ToolDeclaration, str]:
    invocation = InvocationCanister(identifier="a1b2c3d4e", name=tool.name, arguments=given, raw=json.dumps(given))
    return (tool.name, given), tool, render_calls(row, [invocation], [tool])


def _own(event: Event) -> int:
    if not isinstance(event, InvocationEnded):
        return 0
    return sum(map(sys.getsizeof, [event.raw, *(event.arguments or {}).values()]))
