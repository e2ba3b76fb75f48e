"""Rules for values that a JSON Schema describes.

What is held: types, `enum`, `const`, properties (in the order in which they are declared, each once, required ones
always), `additionalProperties`, items and their number, the length of strings, small ranges of integers, `anyOf`,
`oneOf` (as `anyOf`), `allOf` (put together), `$ref` inside the document. What is not: `pattern`, `format`, other bounds
of numbers, `uniqueItems`, `not`, `if`, `dependentRequired`, `patternProperties`: validation tells the model of those.
An object whose schema declares properties has no others, unless `additionalProperties` names them: what a model adds
of its own is made up.

Where a schema is nested too deep, any value may stand; where the rules of a tool grow beyond the limit,
`GrammarRules.add` raises TooLarge, and its arguments are any object.

Law: what the rules write is valid JSON; it is valid against the schema where only the keywords above are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from callboard.dialects.constraints.literal_rules import JSON_VALUES, ValueSyntax, integer, json_character, number
from callboard.dialects.constraints.rules import NOTHING, GrammarRules, TooLarge, literal, sequence
from callboard.dialects.grammar import NotSpellable
from callboard.dialects.grammars.typed_values import type_named
from callboard.schema.subschemas import Schema, required_names, resolve

_MAX_DEPTH = 40
_MAX_COUNT = 64
"""The greatest number of items, or of characters, that is counted."""
_MAX_KEY = 64
"""Characters of a declared key that others may have in common with it."""
_MAX_STEPS = 50_000
"""Schemas that are looked at for one tool: references that lead to each other are many where few are written."""
_END = ""
_QUOTE = literal('"')
_BARE_KEY = "[A-Za-z_] [A-Za-z0-9_]*"
_MAX_RANGE = 64
"""Integers of a range that are written out."""
_ANNOTATIONS = frozenset({"description", "default", "title", "examples", "deprecated", "readOnly", "$comment", "$defs"})
_Via: TypeAlias = frozenset[str]
_NOWHERE: _Via = frozenset()
Member: TypeAlias = tuple[str, bool]
"""The expression of a member, and whether it is required."""


class SchemaRules:
    """Writes the rules of the values of one document, in one syntax."""

    def __init__(self, rules: GrammarRules, root: Schema, syntax: ValueSyntax = JSON_VALUES) -> None:
        self.rules = rules
        self.root = root
        self.syntax = syntax
        self._references: dict[str, str] = {}
        self._space = syntax.space(rules)
        self._steps = 0
        self._depth = 0
        """How many schemas the one is nested in that is being written."""

    def arguments(self) -> str:
        """The object of a tool's arguments; nothing in it where the tool declares nothing."""
        schema = self.combine(self.root)
        if (
            not schema.get("properties")
            and not schema.get("additionalProperties")
            and "patternProperties" not in schema
        ):
            return literal("{}")
        return self.value(schema)

    def value(self, schema: Any, via: _Via = _NOWHERE) -> str:
        """The expression of a value.

        Args:
            schema: Describes it.
            via: The references that led to this value without one around it.
        """
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise TooLarge
        if not isinstance(schema, Mapping) or self._depth >= _MAX_DEPTH:
            return self.any_value()
        self._depth += 1
        try:
            return self._rule_of(schema, via)
        finally:
            self._depth -= 1

    def _rule_of(self, schema: Schema, via: _Via) -> str:
        reference = schema.get("$ref")
        if isinstance(reference, str) and schema.keys() <= {"$ref", *_ANNOTATIONS}:
            return self._refer(reference, via)
        if any(key in schema for key in ("$ref", "allOf")):
            return self.value(self.combine(schema), via)
        for keyword in ("anyOf", "oneOf"):
            variants = schema.get(keyword)
            if isinstance(variants, (list, tuple)) and variants:
                rest = {key: each for key, each in schema.items() if key != keyword and key not in _ANNOTATIONS}
                return self._either(
                    [self.value(_merge(rest, each) if rest else each, via) for each in variants if each is not False]
                )
        if "const" in schema:
            return self._constant(schema["const"])
        if isinstance(schema.get("enum"), (list, tuple)) and schema["enum"]:
            return self.rules.add("enum", _or([self._constant(each) for each in schema["enum"]]))
        types = types_in(schema)
        if not types:
            return self.any_value()
        return self._either([_WRITERS.get(each, SchemaRules._any)(self, schema) for each in types])

    def combine(self, schema: Schema) -> dict[str, Any]:
        """The schema with what it refers to and all of its `allOf` in one."""
        combined: dict[str, Any] = {}
        waiting: list[Any] = [schema]
        seen: set[str] = set()
        while waiting:
            each = waiting.pop(0)
            if not isinstance(each, Mapping):
                continue
            reference = each.get("$ref")
            if isinstance(reference, str) and reference not in seen:
                seen.add(reference)
                waiting.append(self.find(reference))
            parts = each.get("allOf")
            if isinstance(parts, (list, tuple)):
                waiting += parts
            combined = _merge(combined, {key: held for key, held in each.items() if key not in ("$ref", "allOf")})
        return combined

    def find(self, reference: str) -> Any:
        try:
            return resolve(self.root, reference)
        except LookupError:
            return {}

    def any_value(self) -> str:
        """Any value at all."""
        name = f"{self.syntax.name}-value"
        return self.rules.find(name, self._any_body)

    def any_object(self) -> str:
        self.any_value()
        return f"{self.syntax.name}-object"

    def key(self, key: str) -> str:
        """A member's key and what stands behind it."""
        return sequence([literal(self.syntax.spell_key(key)), *self._colon()])

    def members(
        self,
        schema: Schema,
        write: Callable[[str, Any], str],
        *,
        comma: Sequence[str],
        other: str = "",
    ) -> str:
        """The members of an object, in order; those that are not required may be left out.

        Each member that may come first is a rule, and each that may come next: the rules are as many as the members.

        Args:
            schema: Has the properties.
            write: The expression of a member. Where it raises NotSpellable, one that is not required is left out.
            comma: What stands between two.
            other: The expression of a member that nobody declared.
        """
        members = list(self._spellable(schema, write))
        after, empty = NOTHING, NOTHING
        if other:
            after = f"({sequence([*comma, other])})*"
            empty = f"({sequence([other, after])})?"
        for place, (member, required) in enumerate(reversed(members)):
            first = sequence([member, after])
            then = sequence([*comma, member, after])
            if not required:
                first, then = f"{first} | {empty}", f"{then} | {after}"
            if place < len(members) - 1:
                after = self.rules.add("more", then)
            empty = self.rules.add("members", first)
        return empty

    def _spellable(self, schema: Schema, write: Callable[[str, Any], str]) -> Iterator[Member]:
        properties = schema.get("properties")
        declared = dict(properties) if isinstance(properties, Mapping) else {}
        required = frozenset(required_names(schema))
        for key in required_names(schema):
            declared.setdefault(key, {})
        for key, held in declared.items():
            is_required = key in required
            if held is False:
                continue
            try:
                yield write(key, held), is_required
            except NotSpellable:
                if is_required:
                    raise

    def _refer(self, reference: str, via: _Via) -> str:
        name = self._references.get(reference)
        if reference in via:
            return self.any_value()
        if name is None:
            target = self.find(reference)
            name = self.rules.reserve(reference.rpartition("/")[2] or "root")
            self._references[reference] = name
            self.rules.define(name, self.value(target, via | {reference}))
        elif via:
            # It is being written, and nothing stands between: a rule that begins with itself.
            return self.value(self.find(reference), via | {reference})
        return name

    def _either(self, expressions: Sequence[str]) -> str:
        if not expressions:
            return self.any_value()
        return expressions[0] if len(expressions) == 1 else self.rules.add("one", _or(expressions))

    def _constant(self, value: Any) -> str:
        ways = [literal(text) for text in self.syntax.spellings(value)]
        return ways[0] if len(ways) == 1 else self.rules.add("value", _or(ways))

    def _any(self, _schema: Schema) -> str:
        return self.any_value()

    def _string(self, schema: Schema) -> str:
        string = self.syntax.string(self.rules)
        least, most = _count(schema, "minLength"), _count(schema, "maxLength")
        if least is None and most is None:
            return string
        most = None if most is None else max(least or 0, most)
        counted = f"{self.syntax.char(self.rules)}{{{least or 0},{'' if most is None else most}}}"
        quote = literal(self.syntax.quote)
        return self.rules.add("string", f"{quote} {counted} {quote}")

    def _integer(self, schema: Schema) -> str:
        least, most = _bound(schema, "minimum", 1), _bound(schema, "maximum", -1)
        if least is not None and most is not None and 0 <= most - least <= _MAX_RANGE:
            return self.rules.add("range", _or([literal(str(each)) for each in range(least, most + 1)]))
        if least == 0 and most is None:
            return self.rules.find("natural", lambda: '"0" | [1-9] [0-9]{0,15}')
        if least == 1 and most is None:
            return self.rules.find("positive", lambda: "[1-9] [0-9]{0,15}")
        return integer(self.rules)

    def _number(self, schema: Schema) -> str:
        return number(self.rules)

    def _boolean(self, _schema: Schema) -> str:
        return self.rules.find(
            f"{self.syntax.name}-boolean",
            lambda: f"{literal(self.syntax.words[True])} | {literal(self.syntax.words[False])}",
        )

    def _null(self, _schema: Schema) -> str:
        return literal(self.syntax.words[None])

    def _array(self, schema: Schema) -> str:
        first = schema.get("prefixItems")
        fixed = [self.value(each) for each in first] if isinstance(first, (list, tuple)) else []
        item = self.value(schema.get("items"))
        least, most = _count(schema, "minItems") or 0, _count(schema, "maxItems")
        most = None if most is None else max(least, most)
        comma = self._comma()
        if fixed:
            inside = sequence([part for each in fixed for part in (*comma, each)][len(comma) :])
        elif most == 0:
            inside = NOTHING
        else:
            times = (
                "*" if least < 2 and most is None else f"{{{max(least - 1, 0)},{'' if most is None else most - 1}}}"
            )  # the first is written
            more = f"({sequence([*comma, item])}){times}"
            inside = sequence([item, more]) if least else f"({sequence([item, more])})?"
        return self.rules.add("list", sequence(['"["', self._space, inside, self._space, '"]"']))

    def _object(self, schema: Schema) -> str:
        others = schema.get("additionalProperties")
        if not schema.get("properties") and not schema.get("required"):
            if others is False and "patternProperties" not in schema:
                return literal("{}")
            if not isinstance(others, Mapping) or not others:
                return self.any_object()

        def write(key: str, held: Any) -> str:
            return sequence([self.key(key), self.value(held)])

        other = self._other(schema, others) if others is True or isinstance(others, Mapping) else ""
        members = self.members(schema, write, comma=self._comma(), other=other)
        return self.rules.add("object", sequence(['"{"', self._space, members, self._space, '"}"']))

    def _other(self, schema: Schema, others: Any) -> str:
        properties = schema.get("properties")
        declared = list(properties) if isinstance(properties, Mapping) else []
        if not self.syntax.quotes_keys:
            return "" if declared else sequence([_BARE_KEY, *self._colon(), self.value(others)])
        key = key_other_than(self.rules, declared, self.syntax.avoids)
        return sequence([_QUOTE, key, _QUOTE, *self._colon(), self.value(others)])

    def _comma(self) -> list[str]:
        return [self._space, '","', self._space] if self.syntax.blank else ['","']

    def _colon(self) -> list[str]:
        colon = literal(self.syntax.colon)
        return [self._space, colon, self._space] if self.syntax.blank else [colon]

    def _any_body(self) -> str:
        name, rules = self.syntax.name, self.rules
        value = f"{name}-value"
        comma, blank = sequence(self._comma()), self._space
        key = [_QUOTE, f"{json_character(self.syntax.avoids)}*", _QUOTE] if self.syntax.quotes_keys else [_BARE_KEY]
        member = rules.add("member", sequence([*key, *self._colon(), value]))
        rules.find(f"{name}-object", lambda: sequence(['"{"', blank, f"({member} ({comma} {member})*)?", blank, '"}"']))
        rules.find(f"{name}-array", lambda: sequence(['"["', blank, f"({value} ({comma} {value})*)?", blank, '"]"']))
        scalars = [self.syntax.string(rules), number(rules), self._boolean({}), self._null({})]
        return " | ".join([f"{name}-object", f"{name}-array", *scalars])


_WRITERS: Mapping[str, Callable[[SchemaRules, Schema], str]] = {
    "string": SchemaRules._string,  # noqa: SLF001  # a table of its own methods
    "integer": SchemaRules._integer,  # noqa: SLF001
    "number": SchemaRules._number,  # noqa: SLF001
    "boolean": SchemaRules._boolean,  # noqa: SLF001
    "null": SchemaRules._null,  # noqa: SLF001
    "array": SchemaRules._array,  # noqa: SLF001
    "object": SchemaRules._object,  # noqa: SLF001
}


def any_object(rules: GrammarRules) -> str:
    """The rule of any object as JSON."""
    return SchemaRules(rules, {}).any_object()


def types_in(schema: Schema) -> list[str]:
    """The types that a schema states, or that its keywords speak of."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return [type_named(kind)]
    if isinstance(kind, (list, tuple)):
        return list(dict.fromkeys([type_named(each) for each in kind if isinstance(each, str)]))
    for keyword, implied in _IMPLIED.items():
        if keyword in schema:
            return [implied]
    return []


_IMPLIED: Mapping[str, str] = {
    "properties": "object",
    "additionalProperties": "object",
    "items": "array",
    "prefixItems": "array",
    "minLength": "string",
    "maxLength": "string",
    "pattern": "string",
}


def key_other_than(rules: GrammarRules, keys: Sequence[str], avoids: str = "") -> str:
    """The rule of a key that is none of these: their tree, left at any of its places.

    Its characters are written as they are: an escaped one could spell a key that has a rule of its own.
    """
    tree: dict[str, Any] = {}
    for key in keys:
        place = tree
        for char in key:
            place = place.setdefault(char, {})
        place[_END] = {}
    return _leave(rules, tree, avoids)


def _leave(rules: GrammarRules, tree: Mapping[str, Any], avoids: str, depth: int = 0) -> str:
    chars = [each for each in tree if each != _END]
    ways: list[str] = []
    if depth < _MAX_KEY:  # a key that begins with so much of a declared one is not written
        ways = [f"{literal(each)} {_leave(rules, tree[each], avoids, depth + 1)}" for each in chars]
    ways.append(f"{json_character(avoids + ''.join(chars))} {json_character(avoids)}*")
    if _END not in tree:
        ways.append(NOTHING)
    return rules.add("key", " | ".join(ways))


def _or(expressions: Sequence[str]) -> str:
    return " | ".join(dict.fromkeys(expressions))


def _merge(base: Mapping[str, Any], other: Any) -> Any:
    """Both schemas in one: the properties of both, and what both require."""
    if not isinstance(other, Mapping):
        return base
    merged = {**base, **other}
    if isinstance(base.get("properties"), Mapping) and isinstance(other.get("properties"), Mapping):
        merged["properties"] = {**base["properties"], **other["properties"]}
    if "required" in base and "required" in other:
        merged["required"] = list(dict.fromkeys([*required_names(base), *required_names(other)]))
    return merged


def _count(schema: Schema, keyword: str) -> int | None:
    """A number of items or characters; None where there is none, or too great a one to be counted."""
    count = schema.get(keyword)
    return count if type(count) is int and 0 <= count <= _MAX_COUNT else None


def _bound(schema: Schema, keyword: str, step: int) -> int | None:
    """The least or greatest integer that is allowed."""
    bound, beyond = schema.get(keyword), schema.get(f"exclusive{keyword.capitalize()}")
    if isinstance(beyond, int) and not isinstance(beyond, bool):
        return beyond + step
    return bound if isinstance(bound, int) and not isinstance(bound, bool) else None
