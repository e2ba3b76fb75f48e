"""The type of a run's output.

Owns the way from a type to what a model is told and back from what it wrote. Knows nothing of runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Generic, cast

import msgspec
from typing_extensions import TypeForm, TypeVar

from callboard.core import Constraint
from callboard.schema import ArgumentsInvalid, derive

OutputT_co = TypeVar("OutputT_co", default=str, covariant=True)
"""The type of an agent's output."""


class Output(Generic[OutputT_co]):
    """An output of the type `kind`: anything a tool's parameter may be.

    A type that is no object in JSON travels as `{"answer": value}`, since providers constrain to objects. Models that
    nothing constrains write the value alone as well, which is taken.
    Raises ToolDefinitionError for a type that JSON cannot say.
    """

    def __init__(self, kind: TypeForm[OutputT_co]) -> None:
        def answer(answer: Any) -> None: ...

        answer.__annotations__ = {"answer": kind}
        self._derived = derive(answer)
        whole = self._derived.schema
        inner = whole["properties"]["answer"]
        self._wrapped = inner.get("type") != "object"
        definitions = {"$defs": whole["$defs"]} if "$defs" in whole else {}
        self.schema: Mapping[str, Any] = whole if self._wrapped else {**inner, **definitions}

    @property
    def instructions(self) -> str:
        schema = msgspec.json.encode(self.schema).decode()
        return f"When you are done, answer with one JSON object of this schema and nothing else:\n{schema}"

    @property
    def constraint(self) -> Constraint:
        return Constraint("answer", self.schema, strict=False)

    def read(self, text: str) -> OutputT_co:
        """The value that a text spells. Raises ArgumentsInvalid."""
        from callboard.adapters import parse_json_response  # noqa: PLC0415 - costs 20 ms, on first use

        found: Any = parse_json_response(text)
        if found is None and self._wrapped:
            found = _scalar(text)
        if not (self._wrapped and isinstance(found, dict) and "answer" in found):
            return self._validated({"answer": found})
        try:
            return self._validated(found)
        except ArgumentsInvalid:
            with suppress(ArgumentsInvalid):  # a value that has such a key itself
                return self._validated({"answer": found})
            raise

    def _validated(self, arguments: Mapping[str, Any]) -> OutputT_co:
        return cast("OutputT_co", self._derived.validate(arguments)["answer"])

    def complaint(self, text: str) -> str:
        """What is wrong with a text, as the model is told; empty if nothing is."""
        try:
            self.read(text)
        except ArgumentsInvalid as invalid:
            return f"Error: {invalid}\nAnswer with one JSON object of the schema and nothing else."
        return ""


_FENCED = re.compile(r"```\w*\n(.*)\n```", re.DOTALL)


def _scalar(text: str) -> Any:
    """The JSON value that a text is, but for a fence around it and thoughts before it; None where it is none."""
    said = text.rpartition("</think>")[2].strip()
    fenced = _FENCED.fullmatch(said)
    try:
        return msgspec.json.decode(fenced[1] if fenced else said)
    except msgspec.DecodeError:
        return None
