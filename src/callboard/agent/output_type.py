"""The type of a run's output: how to ask a model for a value of the type, and how to read its text."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Generic, TypeAlias, cast

import msgspec
from msgspec import UNSET, UnsetType
from typing_extensions import TypeForm, TypeVar

from callboard.core import Constraint, Event, ReplyStarted, TextPiece
from callboard.errors import CallerError, ToolDefinitionError
from callboard.schema import ArgumentsInvalid, derive

OutputT_co = TypeVar("OutputT_co", default=str, covariant=True)
"""The type of an agent's output."""


_TYPING: Final = ("types", "typing", "typing_extensions")
"""Modules whose classes represent types that are not classes, such as `list[str]` and `City | None`."""
_HINT: Final = "give a type that JSON can say, such as str, a dataclass, a pydantic model or list[int]"

OutputValidator: TypeAlias = Callable[[OutputT_co], str | Awaitable[str | None] | None]
"""Returns what is wrong with an output, in words for the model. None or an empty text accepts it. Sync or async."""


class Output(Generic[OutputT_co]):
    """An output of the type `kind`, which is any type that a tool's parameter may have.

    A type that is not a JSON object is sent as `{"answer": value}`, because providers constrain replies to objects.
    Unconstrained models often write the value alone; that is accepted too.
    Raises CallerError if `kind` is not a type, or JSON cannot express it.
    """

    def __init__(self, kind: TypeForm[OutputT_co]) -> None:
        def answer(answer: Any) -> None: ...

        if not (isinstance(kind, type) or type(kind).__module__ in _TYPING):
            raise CallerError(f"{kind!r} is not a type".replace("\n", " ")[:200], path="output", hint=_HINT)
        answer.__annotations__ = {"answer": kind}
        try:
            self._derived = derive(answer)
        except ToolDefinitionError as error:
            raise CallerError(error.message, path="output", hint=_HINT) from error
        whole = self._derived.schema
        inner = whole["properties"]["answer"]
        definitions = {"$defs": whole["$defs"]} if "$defs" in whole else {}
        if "$ref" in inner:  # a type that refers to itself
            inner = definitions["$defs"][inner["$ref"].rpartition("/")[2]]
        self.wrapped = inner.get("type") != "object"
        self.schema: Mapping[str, Any] = whole if self.wrapped else {**inner, **definitions}

    @property
    def instructions(self) -> str:
        schema = msgspec.json.encode(self.schema).decode()
        return f"When you are done, answer with one JSON object of this schema and nothing else:\n{schema}"

    @property
    def constraint(self) -> Constraint:
        return Constraint("answer", self.schema, strict=False)

    def read(self, text: str) -> OutputT_co:
        """Return the value that a text contains. Raises ArgumentsInvalid."""
        from callboard.adapters import parse_json_response  # noqa: PLC0415 - costs 20 ms, on first use

        value: Any = parse_json_response(text)
        if value is None and self.wrapped:
            value = _scalar(text)
        if not (self.wrapped and isinstance(value, dict) and "answer" in value):
            return self._validate({"answer": value})
        try:
            return self._validate(value)
        except ArgumentsInvalid:
            with suppress(ArgumentsInvalid):  # the value itself has a key "answer"
                return self._validate({"answer": value})
            raise

    def _validate(self, arguments: Mapping[str, Any]) -> OutputT_co:
        return cast("OutputT_co", self._derived.validate(arguments)["answer"])


class PartialObject:
    """Read the first JSON object of a text that is still arriving.

    Law: the result does not depend on how the text is split. A number counts when the next character shows its end.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def feed(self, text: str) -> None:
        """Add the next piece of the text."""
        self._pieces.append(text)

    @property
    def value(self) -> dict[str, Any] | None:
        """Return the object's members so far, or None before the object begins."""
        text = "".join(self._pieces)
        start = text.find("{")
        while start >= 0:
            self._pieces = [text[start:]]
            try:
                return _read_partial(text[start:])
            except ValueError:  # not an object, no matter what follows
                start = text.find("{", start + 1)
        self._pieces = []
        return None


_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_NUMBER_AT_END = re.compile(r"[-+.0-9eE]++\Z")


def _read_partial(text: str) -> dict[str, Any]:
    """Return the members that have been written. Raise ValueError if the text does not begin with an object."""
    from pydantic_core import from_json  # noqa: PLC0415  # costs 20 ms

    if '"' not in _STRING.sub("", text):  # no string is open, so digits at the end are an unfinished number
        text = _NUMBER_AT_END.sub("", text)
    return cast("dict[str, Any]", from_json(text, allow_partial="trailing-strings", allow_inf_nan=False))


class OutputCheck(Generic[OutputT_co]):
    """Read the text of a reply that would end the run, and ask the user's validator about the value.

    `value` is the value of the last text, or UNSET if something was wrong with it.
    """

    def __init__(self, output: Output[OutputT_co] | None, validator: OutputValidator[OutputT_co] | None) -> None:
        self.value: OutputT_co | UnsetType = UNSET
        self._output = output
        self._validator = validator
        self._partial = PartialObject() if output is not None else None

    def follow(self, event: Event) -> None:
        """Read an event of the reply, if a typed value is expected."""
        if self._partial is None:
            return
        if isinstance(event, TextPiece):
            self._partial.feed(event.text)
        elif isinstance(event, ReplyStarted):
            self._partial = PartialObject()

    @property
    def partial(self) -> Any:
        """The JSON of the value, as far as the last reply has arrived."""
        value = self._partial.value if self._partial is not None else None
        return value.get("answer") if value is not None and self._output and self._output.wrapped else value

    async def complaint(self, text: str) -> str:
        """Return what is wrong with a text, in words for the model; empty if nothing is wrong.

        Raises:
            CallerError: The validator returned neither a text nor None.
        """
        self.value = UNSET
        try:
            value = self.read(text)
        except ArgumentsInvalid as invalid:
            return f"Error: {invalid}\nAnswer with one JSON object of the schema and nothing else."
        reason: Any = self._validator(value) if self._validator else ""
        if inspect.isawaitable(reason):
            reason = await reason
        if reason is not None and not isinstance(reason, str):
            hint = "give what is wrong with the output as a text, or None where nothing is"
            raise CallerError(f"it gave a {type(reason).__name__}", path="output_validator", hint=hint)
        if not reason:
            self.value = value
        return reason or ""

    def read(self, text: str) -> OutputT_co:
        """Return the value of a text, or the text itself if there is no output type. Raises ArgumentsInvalid."""
        return cast("OutputT_co", text) if self._output is None else self._output.read(text)


_FENCED = re.compile(r"```\w*\n(.*)\n```", re.DOTALL)


def _scalar(text: str) -> Any:
    """Return the JSON value of a text, without a fence and thoughts. Return the text if it is not JSON."""
    stripped = text.rpartition("</think>")[2].strip()
    fenced = _FENCED.fullmatch(stripped)
    try:
        return msgspec.json.decode(fenced[1] if fenced else stripped)
    except msgspec.DecodeError:
        return stripped
