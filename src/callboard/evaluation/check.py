"""Judge the reply of a model at a step: solved, or missed under one of the labels.

The first failed check decides the label. The checks ask: is a call expected, was the reply cut, is there a call, can its
arguments be read, is the number of calls right, is each call right? Then they check the text.

Calls are compared by the rules of BFCL's official checker (bfcl-eval, `ast_checker`), so that results are comparable.
The name is exact. Every required argument is present. Every argument is declared and expected. A value has the declared
type, or the type of the first accepted value. An integer is accepted for a `number`. Texts are compared without case,
spaces and some punctuation.

Law: the judgement depends only on the step and the attempt. It agrees with the official checker on every answer to every
single-turn task (see `bench/bfcl.py`). A turn on simulated APIs was judged by `simulation`. docs/evaluation.md lists stricter rules.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import msgspec

from callboard.core import InvocationCanister
from callboard.core.request import ToolDeclaration
from callboard.evaluation.task import Attempt, ExpectedCall, Judgement, Label, Step, Task
from callboard.text.display import display

_TYPES: Final[Mapping[str, type]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
}
_UNTYPED: Final = str
"""Type of a schema without a type. Values of other types are right if the first accepted value has their type."""
_IGNORED: Final = re.compile(r"[ ,./\-_*^]")
_ESCAPE: Final = re.compile(r"\\+(.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r"}
_WRAPPED: Final = "\"'`"
_EXCERPT: Final = 80
"""Maximum characters of a value in a reason."""


class Mismatch(msgspec.Struct, frozen=True):
    """A label and a sentence that describe an error."""

    label: Label
    why: str


def match_call(call: InvocationCanister, expected: ExpectedCall, tool: ToolDeclaration) -> Mismatch | None:
    """Return the first error of the call, or None. `tool` is the declaration of the expected tool."""
    if call.arguments is None:
        return explain_malformed(call)
    if call.name != expected.name:
        return Mismatch("wrong_tool", f"{expected.name} was to be called, not {_excerpt(call.name)}")
    try:
        return next(_mismatches(call.arguments, expected, tool.schema), None)
    except (RecursionError, OverflowError, ValueError):  # a number can be too large for a float, or for the message
        return Mismatch(
            "schema_violation", f"the arguments of {expected.name} are too large or too deep to be compared"
        )


def explain_malformed(call: InvocationCanister) -> Mismatch:
    """Return the error of a call whose arguments are not a JSON object."""
    return Mismatch(
        "malformed_json", f"the arguments of {_excerpt(call.name)} are not a JSON object: {_excerpt(call.raw)}"
    )


def _mismatches(arguments: Mapping[str, Any], expected: ExpectedCall, schema: Mapping[str, Any]) -> Iterator[Mismatch]:
    properties, required = schema.get("properties"), schema.get("required")
    properties = properties if isinstance(properties, Mapping) else {}
    for name in required if isinstance(required, list) else ():
        if isinstance(name, str) and name not in arguments:
            yield Mismatch("missing_required", f"{expected.name} needs the argument {name}")
    for name, value in arguments.items():
        if name not in properties:
            yield Mismatch("hallucinated_param", f"{expected.name} has no argument {_excerpt(name)}")
        elif name not in expected.arguments:
            yield Mismatch("hallucinated_param", f"nothing asks for the argument {name}: {_excerpt(value)}")
        elif not _comparison(name, expected)(value, expected.arguments[name], properties[name]):
            yield _explain(name, value, expected, properties[name])
    for name, accepted in expected.arguments.items():
        if name not in arguments and "" not in accepted:
            yield Mismatch("missing_required", f"the task gives a value for the argument {name}, which was left out")


def _is_accepted(value: Any, accepted: Sequence[Any], schema: Any) -> bool:
    kind = _type_of(schema)
    inner = _type_of(schema["items"]) if kind is list and "items" in schema else None
    if kind is float and type(value) is int:
        value = float(value)
    first = _first_type(accepted)
    if type(value) is not kind:
        # A type other than the declared type is right if the task's own values have it.
        return type(value) is first and value in accepted
    if isinstance(value, list) and inner is not None and not any(_is_list_of(value, one, inner) for one in accepted):
        return False
    if first is not None and first is not kind:
        return value in accepted
    return _COMPARE.get((kind, inner is dict), _compare_plain)(value, accepted)


def _is_verbatim(value: Any, accepted: Sequence[Any], schema: Any) -> bool:
    del schema
    return any(type(value) is type(one) and value == one for one in accepted)


def _type_of(schema: Any) -> type:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), None)
    return _TYPES.get(kind, _UNTYPED) if isinstance(kind, str) else _UNTYPED


def _first_type(accepted: Sequence[Any]) -> type | None:
    return next((type(one) for one in accepted if one != ""), None)


def _is_list_of(value: list[Any], accepted: Any, inner: type) -> bool:
    """Return whether each item has the declared type, or the type of the first accepted item."""
    if type(accepted) is not list:
        return True
    first = _first_type(accepted)
    return all(type(item) is inner or (first is not None and type(item) is first) for item in value)


def _compare_plain(value: Any, accepted: Sequence[Any]) -> bool:
    return value in accepted


def _compare_text(value: str, accepted: Sequence[Any]) -> bool:
    return _fold(value) in [_fold(one) for one in accepted if type(one) is str]


def _compare_list(value: list[Any], accepted: Sequence[Any]) -> bool:
    folded = [_fold(item) for item in value]
    return any(folded == [_fold(item) for item in one] for one in accepted if isinstance(one, list | str))


def _compare_object(value: dict[str, Any], accepted: Sequence[Any]) -> bool:
    return any(_is_object(value, one) for one in accepted if isinstance(one, dict))


def _compare_objects(value: list[Any], accepted: Sequence[Any]) -> bool:
    return any(
        len(value) == len(one) and all(map(_is_object, value, one)) for one in accepted if isinstance(one, list | str)
    )


def _is_object(value: Any, accepted: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(accepted, dict):
        return False
    options = {key: values if isinstance(values, list | str) else [values] for key, values in accepted.items()}
    known = all(key in options and _fold(item) in map(_fold, options[key]) for key, item in value.items())
    return known and all(key in value or "" in values for key, values in options.items())


_COMPARE: Final[Mapping[tuple[type, bool], Callable[[Any, Sequence[Any]], bool]]] = {
    (dict, False): _compare_object,
    (list, True): _compare_objects,
    (list, False): _compare_list,
    (str, False): _compare_text,
}


def _fold(value: Any) -> Any:
    return _IGNORED.sub("", value).lower().replace("'", '"') if type(value) is str else value


def _explain(name: str, value: Any, expected: ExpectedCall, schema: Mapping[str, Any]) -> Mismatch:
    """Return the label and the reason for a wrong value."""
    accepted = expected.arguments[name]
    compare = _comparison(name, expected)
    options = [option for option in accepted if option != ""][:3]
    why = f"the argument {name} is {_excerpt(value)}, not {' or '.join(map(_excerpt, options))}"
    if compare(_unescape(value), [*map(_unescape, accepted)], schema):
        return Mismatch("escaping_error", f"{why}: it was escaped, or unescaped, once too often")
    if any(compare(other, accepted, schema) for other in _coerce(value)):
        return Mismatch("type_coercion", f"{why}: it has the wrong type")
    return Mismatch("schema_violation", why)


def _comparison(name: str, expected: ExpectedCall) -> Callable[[Any, Sequence[Any], Any], bool]:
    return _is_verbatim if name in expected.verbatim else _is_accepted


def _unescape(value: Any) -> Any:
    """Return the value with escapes, entities and enclosing quotes removed from its texts."""
    match value:
        case str():
            text = _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), html.unescape(value))
            return text.strip(_WRAPPED)
        case list():
            return [_unescape(item) for item in value]
        case dict():
            return {key: _unescape(item) for key, item in value.items()}
    return value


def _coerce(value: Any) -> Iterator[Any]:
    """Yield the value in other types, such as 5, 5.0, "5" and [5], and a list with all items in another type."""
    match value:
        case str():
            yield from _decode(value)
        case float() if value.is_integer():
            yield int(value)
        case [single]:
            yield single
    yield [value]
    yield _spell(value)
    if isinstance(value, list):
        yield from ([*items] for items in zip(*map(_other_types, value), strict=True))


def _other_types(item: Any) -> tuple[Any, Any]:
    return _spell(item), next(_decode(item), item) if isinstance(item, str) else item


def _decode(text: str) -> Iterator[Any]:
    for spelling in (text, text.lower()):  # Python's True and False
        with suppress(ValueError):
            yield json.loads(spelling)


def _spell(value: Any) -> str:
    return value if isinstance(value, str) else _encode(value)


def _excerpt(value: Any) -> str:
    return display(_encode(value), _EXCERPT)


def _encode(value: Any) -> str:
    """Return the value as JSON. Unlike msgspec, accept lone surrogates and numbers beyond 64 bits."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_SOLVED: Final = Judgement(True)
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_LENGTH: Final = 120
"""Maximum characters of a model's text in a reason."""
_NEAREST: Final[tuple[Label, ...]] = ("malformed_json", "wrong_tool")
"""Labels of the calls that differ most from the expected call, the worst first."""


def check_step(task: Task, step: Step, attempt: Attempt) -> Judgement:
    """Return whether the `attempt` solves the `step` of the `task`."""
    if attempt.failure:
        return Judgement(False, "", f"the reply failed: {attempt.failure}")
    if attempt.judgement is not None:
        return attempt.judgement
    wrong = _compare(task.tools, step, attempt.calls) or _compare_answer(step, attempt.text)
    if wrong is None:
        return _SOLVED
    if attempt.ending == "length" and wrong.label != "should_not_have_called":
        return Judgement(False, "truncation", f"the reply was cut at its maximum length; {wrong.why}")
    return Judgement(False, wrong.label, wrong.why)


def _compare(tools: Sequence[ToolDeclaration], step: Step, calls: Sequence[InvocationCanister]) -> Mismatch | None:
    """Return the first error of the calls."""
    least = 1 if step.any_call else len(step.expected)
    if least and not calls:
        return Mismatch("no_call", "expected a tool call, got none")
    if calls and not least:
        names = ", ".join(display(call.name, _LENGTH) for call in calls[:3])
        return Mismatch("should_not_have_called", f"expected no tool call, got {names}")
    for call in calls:
        if call.arguments is None:
            return explain_malformed(call)
    if len(calls) < least:
        return Mismatch("parallel_collapse", f"{least} calls were to be made at once, and {len(calls)} were")
    if step.any_call:
        return None
    if len(calls) > least:
        return Mismatch("should_not_have_called", f"{least} calls were to be made, and {len(calls)} were")
    return _pair(tools, step, list(calls))


def _pair(tools: Sequence[ToolDeclaration], step: Step, calls: list[InvocationCanister]) -> Mismatch | None:
    """Match each expected call with the first right call, or return the error of the nearest call."""
    for expected in step.expected:
        tool = next((tool for tool in tools if tool.name == expected.name), ToolDeclaration(expected.name))
        candidates = calls[:1] if step.ordered else calls
        mismatches = [match_call(call, expected, tool) for call in candidates]
        wrong = [mismatch for mismatch in mismatches if mismatch is not None]
        if len(wrong) == len(candidates):
            return max(wrong, key=_nearness)
        del calls[mismatches.index(None)]
    return None


def _nearness(mismatch: Mismatch) -> int:
    return _NEAREST.index(mismatch.label) if mismatch.label in _NEAREST else len(_NEAREST)


def _compare_answer(step: Step, text: str) -> Mismatch | None:
    """Return an error for the first expected fact that the text does not have."""
    folded = _THOUSANDS.sub("", text).casefold()
    for spellings in step.answer:
        if not any(_pattern(spelling).search(folded) for spelling in spellings):
            why = f"the answer does not say {' or '.join(spellings)}: {display(text, _LENGTH)}"
            return Mismatch("schema_violation", why)
    return None


@lru_cache(maxsize=256)
def _pattern(spelling: str) -> re.Pattern[str]:
    """Return the pattern of the spelling as whole words: 4 does not match 14 or 4.5."""
    plain = re.escape(_THOUSANDS.sub("", spelling).casefold())
    return re.compile(rf"(?<![a-z0-9])(?<!\d[.,]){plain}(?![a-z0-9])(?![.,]\d)")
