"""Write a tool as a Python function with a docstring in Google's style, for models that have read much code.

A name stands as it is, since the model has to write it in its call: `def math.factorial(number: int)` is no Python, and
says what the tool is called. A name with other characters than those of such names stands in quotes. A parameter that
may be left out has its default, or `...` as in a stub.

Laws: where all names are Python's, the text is Python, and its docstring is the tool's description; each parameter
stands with its type; no description can end the docstring that it stands in; the cost is linear.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from callboard.core import ToolDeclaration
from callboard.schema.shorten import cut_at_sentence, shorten_schema
from callboard.schema.subschemas import Schema

_MOST_DESCRIPTION: Final = 8000
_PLAIN: Final = re.compile(r"[^\W\d][\w.$@/:-]*")
"""A name that needs no quotes: nothing in it could be taken for another part of the signature."""
_TYPES: Final = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
    "array": "list",
    "object": "dict",
}
_NOTES: Final = {
    "format": "format {}",
    "pattern": "matches {}",
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "length at least {}",
    "maxLength": "length at most {}",
    "minItems": "length at least {}",
    "maxItems": "length at most {}",
    "examples": "such as {}",
}
"""What bounds a value, in words: type hints have none for it."""
_COMBINING: Final = ("anyOf", "oneOf")
_INDENT: Final = "    "
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")


class _Parameter(msgspec.Struct, frozen=True):
    name: str
    schema: Schema
    required: bool


def render_signature(tool: ToolDeclaration, protect: Callable[[str], str] = str) -> str:
    """The tool as a function.

    Args:
        tool: The tool; its schema is shortened where that is long.
        protect: Escapes what must not stand in a description or a value as a Python string escapes it.
    """
    writer = _SignatureWriter(protect)
    parameters = _parameters(shorten_schema(tool.schema))
    signature = ", ".join([writer.declare(each) for each in sorted(parameters, key=lambda each: not each.required)])
    head = f"def {writer.name(tool.name)}({signature}):"
    lines = writer.describe(cut_at_sentence(tool.full_description, _MOST_DESCRIPTION), parameters)
    return f"{head}\n{_quote(lines)}" if lines else f"{head} ..."


class _SignatureWriter:
    def __init__(self, protect: Callable[[str], str]) -> None:
        self._protect = protect

    def declare(self, parameter: _Parameter) -> str:
        """A parameter as it stands in the signature."""
        typed = f"{self.name(parameter.name)}: {self._annotate(parameter.schema)}"
        if parameter.required:
            return typed
        return f"{typed} = {self._literal(parameter.schema['default']) if 'default' in parameter.schema else '...'}"

    def name(self, name: str) -> str:
        return name if _PLAIN.fullmatch(name) else self._literal(name)

    def describe(self, description: str, parameters: Sequence[_Parameter]) -> list[str]:
        """The lines of the docstring."""
        arguments = [line for each in parameters for line in self._describe_argument(each)]
        lines = self._escape(description).splitlines()
        if arguments:
            lines += [*([""] if lines else []), "Args:", *[f"{_INDENT}{line}" for line in arguments]]
        return lines

    def _describe_argument(self, parameter: _Parameter, *, nested: bool = False) -> list[str]:
        """What there is to say of a parameter beside its type, and of the members that it has."""
        schema = parameter.schema
        notes = [
            words.format(", ".join(map(self._literal, value)) if isinstance(value, list) else self._plain(value))
            for keyword, words in _NOTES.items()
            if (value := schema.get(keyword)) is not None
        ]
        words = [self._escape(" ".join(str(schema.get("description", "")).split()))]
        words += [f"({', '.join(notes)})"] if notes else []
        text = " ".join([each for each in words if each])
        members = [f"{_INDENT}{line}" for line in self._describe_members(schema)]
        if not (text or members or nested):
            return []
        head = self.name(parameter.name)
        if nested:
            head += f" ({self._annotate(schema)}{'' if parameter.required else self._describe_default(schema)})"
        return [f"{head}: {text}" if text else f"{head}:" if members else head, *members]

    def _describe_default(self, schema: Schema) -> str:
        return f", default {self._literal(schema['default'])}" if "default" in schema else ", optional"

    def _describe_members(self, schema: Schema) -> Iterator[str]:
        for at, each in enumerate(_objects(schema)):
            if at:
                yield "or:"
            for parameter in _parameters(each):
                yield from self._describe_argument(parameter, nested=True)

    def _annotate(self, schema: Any) -> str:
        """The type hint of a value."""
        if "const" in schema:
            return f"Literal[{self._literal(schema['const'])}]"
        if "enum" in schema:
            return f"Literal[{', '.join(map(self._literal, schema['enum']))}]"
        for keyword in _COMBINING:
            if keyword in schema:
                return _join(map(self._annotate, schema[keyword]))
        types = schema.get("type") or _implied_type(schema)
        return _join([self._annotate_type(each, schema) for each in ([types] if isinstance(types, str) else types)])

    def _annotate_type(self, kind: str, schema: Schema) -> str:
        hint = _TYPES.get(kind, "Any")
        if hint == "list" and "prefixItems" in schema:
            return f"tuple[{', '.join(map(self._annotate, schema['prefixItems']))}]"
        if hint == "list" and "items" in schema:
            return f"list[{self._annotate(schema['items'])}]"
        if hint == "dict" and "additionalProperties" in schema and not schema.get("properties"):
            return f"dict[str, {self._annotate(schema['additionalProperties'])}]"
        return hint

    def _plain(self, value: Any) -> str:
        return self._escape(" ".join(value.split())) if isinstance(value, str) else self._literal(value)

    def _literal(self, value: Any) -> str:
        match value:
            case str():
                return self._string(value)
            case dict():
                return f"{{{', '.join(f'{self._literal(key)}: {self._literal(each)}' for key, each in value.items())}}}"
            case list() | tuple():
                return f"[{', '.join(map(self._literal, value))}]"
            case _:
                return self._protect(repr(value))

    def _string(self, text: str) -> str:
        """In double quotes, as models write most strings; a text with other characters as Python writes it."""
        if '"' in text or "\\" in text or not text.isprintable():
            return self._protect(repr(text).replace('"""', '\\"\\"\\"'))
        return f'"{self._protect(text)}"'

    def _escape(self, text: str) -> str:
        """Words in a docstring."""
        plain = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
        return self._protect(_UNPRINTABLE.sub(lambda match: repr(match[0])[1:-1], plain))


def _quote(lines: Sequence[str]) -> str:
    """The lines as a docstring in a function's body."""
    if len(lines) == 1 and not lines[0].endswith('"'):
        return f'{_INDENT}"""{lines[0]}"""'
    body = [f"{_INDENT}{line}".rstrip() for line in [*lines[1:], '"""']]
    return "\n".join([f'{_INDENT}"""{lines[0]}', *body])


def _parameters(schema: Mapping[str, Any]) -> list[_Parameter]:
    required = frozenset(schema.get("required", ()))
    return [_Parameter(name, each, name in required) for name, each in schema.get("properties", {}).items()]


def _objects(schema: Mapping[str, Any]) -> Iterator[Schema]:
    """The objects with declared members that a value may be, or hold."""
    if schema.get("properties"):
        yield schema
    for keyword in ("items", "additionalProperties"):
        if keyword in schema:
            yield from _objects(schema[keyword])
    for keyword in (*_COMBINING, "prefixItems"):
        for each in schema.get(keyword, ()):
            yield from _objects(each)


def _implied_type(schema: Schema) -> str:
    if "properties" in schema or "additionalProperties" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else ""


def _join(hints: Any) -> str:
    return " | ".join(dict.fromkeys(hints))
