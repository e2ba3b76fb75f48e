"""Answers to BFCL's tasks, right ones and right ones that were changed in one place: what two checkers are asked about.

Each is a name of the change and the calls, each call its name and arguments. The same task gives the same answers.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeAlias

from callboard.core import ToolDeclaration
from callboard.evaluation import ExpectedCall, Task

Call: TypeAlias = tuple[str, dict[str, Any]]
Change: TypeAlias = Callable[[Any], Iterable[tuple[str, Any]]]
OPTIONS = 6
"""Accepted values of an argument that are tried."""


def answers(task: Task) -> Iterator[tuple[str, list[Call]]]:
    """Every answer to the task's one step."""
    expected = task.steps[0].expected
    right = [(call.name, {name: choose(values) for name, values in call.arguments.items()}) for call in expected]
    full = [(name, {key: value for key, value in given.items() if value is not LEFT_OUT}) for name, given in right]
    least = [(call.name, without_optional(given, call)) for call, (_, given) in zip(expected, full, strict=True)]
    yield "right", full
    yield "fewest arguments", least
    yield from whole_replies(full, task.tools)
    for number, call in enumerate(expected):
        for change, changed in arguments_of(full[number][1], call, task.tools):
            yield change, [*full[:number], (call.name, changed), *full[number + 1 :]]


class Absent:
    """The value of an argument that is left out."""


LEFT_OUT = Absent()


def choose(values: tuple[Any, ...], number: int = 0) -> Any:
    """An accepted value as a model would write it: of the lists in objects, one item each."""
    chosen = values[number % len(values)] if values else LEFT_OUT
    return LEFT_OUT if chosen == "" and len(values) > 1 else written(chosen)


def written(value: Any) -> Any:
    match value:
        case dict():
            chosen = {key: choose(tuple(options)) for key, options in value.items() if isinstance(options, list)}
            return {key: item for key, item in chosen.items() if item is not LEFT_OUT}
        case list():
            return [written(item) for item in value]
    return value


def without_optional(given: dict[str, Any], call: ExpectedCall) -> dict[str, Any]:
    return {name: value for name, value in given.items() if "" not in call.arguments[name]}


def whole_replies(calls: list[Call], tools: tuple[ToolDeclaration, ...]) -> Iterator[tuple[str, list[Call]]]:
    (name, given), *others = calls
    yield "no call", []
    yield "no arguments", [(name, {}), *others]
    yield "another order", [*others, (name, given)]
    yield "reversed", calls[::-1]
    yield "a call too few", others
    yield "a call twice", [*calls, calls[-1]]
    yield "one call for all", [calls[0]] * len(calls)
    yield "a name in capitals", [(name.upper(), given), *others]
    yield "a name with a dot", [(name.replace("_", "."), given), *others]
    yield from (("another tool", [(tool.name, given), *others]) for tool in tools if tool.name != name)


def arguments_of(
    given: dict[str, Any], call: ExpectedCall, tools: tuple[ToolDeclaration, ...]
) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "an invented argument", {**given, "invented": 1}
    tool = next(tool for tool in tools if tool.name == call.name)
    for name, schema in tool.schema.get("properties", {}).items():
        if name not in given:
            yield "an argument more", {**given, name: schema.get("default", "")}
    for name, values in call.arguments.items():
        for number in range(min(len(values), OPTIONS)):
            if (value := choose(values, number)) is not LEFT_OUT:
                yield "another accepted value", {**given, name: value}
    for name, value in given.items():
        yield "an argument less", {key: item for key, item in given.items() if key != name}
        yield from ((change, {**given, name: changed}) for change, changed in values_of(value))


def values_of(value: Any) -> Iterator[tuple[str, Any]]:
    """The value changed: to other values, and to other types."""
    yield "null", None
    yield "an empty text", ""
    yield "a text", json.dumps(value)
    yield "a list of one", [value]
    yield "an empty list", []
    yield "an empty object", {}
    yield "true", True
    yield "a number", 7
    yield from _CHANGES[type(value)](value) if type(value) in _CHANGES else ()


def changed_text(value: str) -> Iterator[tuple[str, Any]]:
    yield "capitals", value.upper()
    yield "punctuation", f"{value[:1]}, {value[1:]}.-_/*^"
    yield "quotation marks", f'"{value}"'
    yield "apostrophes", value.replace('"', "'") + "'"
    yield "escapes", value.replace(" ", "\\n")
    yield "a text more", f"{value} x"
    yield "a text less", value[:-1]


def changed_number(value: float) -> Iterator[tuple[str, Any]]:
    yield "one more", value + 1
    yield "a half more", value + 0.5
    yield "a fraction", float(value)
    yield "a whole number", int(value)
    yield "the negative", -value
    yield "a bare text", str(value)


def changed_boolean(value: bool) -> Iterator[tuple[str, Any]]:
    yield "the opposite", not value
    yield "a bit", int(value)
    yield "a bare text", str(value)


def changed_list(value: list[Any]) -> Iterator[tuple[str, Any]]:
    yield "a list reversed", value[::-1]
    yield "an item less", value[1:]
    yield "an item more", [*value, *value[:1]]
    yield "an item of null", [*value, None]
    yield "items as texts", [item if isinstance(item, str) else json.dumps(item) for item in value]
    if value:
        yield from ((f"{change} inside", [changed, *value[1:]]) for change, changed in values_of(value[0]))


def changed_object(value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "a key more", {**value, "invented": 1}
    for key, item in value.items():
        yield "a key less", {name: other for name, other in value.items() if name != key}
        yield from ((f"{change} inside", {**value, key: changed}) for change, changed in islice(values_of(item), 20))


_CHANGES: dict[type, Change] = {
    str: changed_text,
    int: changed_number,
    float: changed_number,
    bool: changed_boolean,
    list: changed_list,
    dict: changed_object,
}
