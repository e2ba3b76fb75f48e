"""Compile schemas that others wrote: descriptors, MCP servers, raw dicts.

jsonschema_rs validates, `explain_errors` explains. Drafts 4 to 2020-12 work; the last is the default. References stay
within the schema. Keywords that cannot be enforced are removed and listed in `dropped`. Formats are annotations.

Law: a schema is untrusted; its size, depth, references and patterns are limited before it is compiled. One cost is not
limited: a schema that applies itself twice to each part of a value can take time exponential in the value's depth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from callboard.errors import SchemaError
from callboard.schema.coercion import Coercion, as_object, as_plain_json, coerce_arguments, compile_coercion, encode
from callboard.schema.errors import UNEXPLAINED, ArgumentsInvalid, shorten
from callboard.schema.explain_errors import explain
from callboard.schema.provider_limits import newer
from callboard.schema.regex import engine, is_accepted
from callboard.schema.subschemas import IN_PLACE, Schema, Steps, inside, pointer, pointer_steps, resolve

SIZE: Final = 256 * 1024
"""Maximum bytes of a schema as JSON."""
DEPTH: Final = 64
"""Maximum depth of nested objects and arrays, and maximum length of reference chains for one value."""
APPLIED: Final = 2000
"""Maximum schemas that apply to one value, including references."""
PATTERNS: Final = 256
"""Maximum patterns of a schema."""

_REFUSED: Final = ("$dynamicRef", "$recursiveRef")


class _Subschema(NamedTuple):
    steps: Steps
    schema: dict[str, Any]


class Validator:
    """A compiled JSON Schema: `coerce` changes arguments, and `judge` checks them.

    `schema` is enforced; `dropped` lists the removed keywords and why.
    """

    __slots__ = ("_coerce", "_judge", "dropped", "schema")

    def __init__(self, schema: Schema, dropped: tuple[str, ...], judge: Any, coerce: Coercion) -> None:
        self.schema = schema
        self.dropped = dropped
        self._judge = judge
        self._coerce = coerce

    def validate(self, arguments: Mapping[str, Any], /) -> dict[str, Any]:
        """Return a copy of the `arguments` with defaults and coercions.

        Raises ArgumentsInvalid with every mistake.
        """
        values = coerce_arguments(self._coerce, msgspec.json.decode(encode(as_object(arguments))))
        if self._judge(values):
            return values
        raise ArgumentsInvalid(explain(self.schema, values) or [((), UNEXPLAINED)])


def compile_schema(schema: Mapping[str, Any], *, path: str = "") -> Validator:
    """Return the validator of `schema`, the schema of a tool's arguments. `path` is the source of the schema.

    Raises SchemaError, with the place, if the schema is invalid, too large or too deep, allows no object, refers to
    other documents, or has a circular reference that stays at the same value.
    """
    import jsonschema_rs  # noqa: PLC0415 - 28 ms that only a foreign schema needs

    own = _private(schema, path)
    if "$schema" not in own:  # without a draft: MCP servers write tuples as in draft 7
        own = newer(own)
    subschemas = _examine(own, path)
    _bound_references(own, subschemas, path)
    dropped = [*_drop_patterns(subschemas, path)]
    try:
        judge = jsonschema_rs.validator_for(own, pattern_options=engine(), validate_formats=False, offline=True)
    except jsonschema_rs.ValidationError as error:
        place = path + pointer(tuple(error.instance_path))
        raise SchemaError(f"not a valid JSON Schema: {shorten(error.message)}", path=place) from None
    except ValueError as error:
        raise SchemaError(f"not a valid JSON Schema: {shorten(str(error))}", path=path + "#") from None
    for steps, part in subschemas.values():  # a default that does not fit its own schema would fail each call
        if "default" in part and explain(own, part["default"], at=part):
            del part["default"]
            dropped.append(f"{pointer(steps)}: default is left out: it does not fit its own schema")
    coerce = compile_coercion(own)
    if "object" not in coerce.types:
        raise SchemaError("arguments are an object, and this allows none", path=path + "#")
    return Validator(own, tuple(dropped), judge.is_valid, coerce)


def _private(schema: Any, path: str) -> dict[str, Any]:
    """Return our own copy, as plain JSON."""
    if not isinstance(schema, Mapping):
        raise SchemaError("not a JSON object", path=path + "#")
    try:
        encoded = msgspec.json.encode(schema, enc_hook=as_plain_json)
    except RecursionError:
        raise SchemaError(f"nested deeper than {DEPTH} levels", path=path + "#") from None
    except (TypeError, ValueError) as error:
        raise SchemaError(f"not JSON: {shorten(str(error))}", path=path + "#") from None
    if len(encoded) > SIZE:
        raise SchemaError(f"larger than {SIZE // 1024} KB", path=path + "#")
    own: dict[str, Any] = msgspec.json.decode(encoded)
    level: list[Any] = [own]
    for _ in range(DEPTH):
        held = [part for whole in level for part in (whole.values() if isinstance(whole, dict) else whole)]
        level = [part for part in held if isinstance(part, dict | list)]
    if level:
        raise SchemaError(f"nested deeper than {DEPTH} levels", path=path + "#")
    return own


def _examine(root: dict[str, Any], path: str) -> dict[int, _Subschema]:
    """Return all schemas in this one, by identity. Refuse keywords that are not followed here."""
    subschemas: dict[int, _Subschema] = {}
    todo: list[tuple[Steps, Any]] = [((), root)]
    while todo:
        steps, schema = todo.pop()
        if not isinstance(schema, dict) or id(schema) in subschemas:
            continue
        subschemas[id(schema)] = _Subschema(steps, schema)
        if "$id" in schema and steps:
            raise SchemaError("$id below the root", path=path + pointer(steps), hint="put the parts under $defs")
        for keyword in _REFUSED & schema.keys():
            raise SchemaError(f"{keyword} is not supported", path=path + pointer(steps), hint="use $ref")
        if "$ref" in schema:
            todo.append(_target(root, schema["$ref"], path + pointer((*steps, "$ref"))))
        todo.extend((steps + further, part) for further, part in inside(schema))
    return subschemas


def _target(root: dict[str, Any], reference: Any, place: str) -> tuple[Steps, Any]:
    if not isinstance(reference, str):
        raise SchemaError("$ref is not a string", path=place)
    try:
        return tuple(pointer_steps(reference)), resolve(root, reference)
    except (LookupError, ValueError):
        raise SchemaError(
            f"{shorten(reference)} is not in this schema", path=place, hint="use references such as #/$defs/name"
        ) from None


def _drop_patterns(subschemas: dict[int, _Subschema], path: str) -> Iterator[str]:
    count = 0
    for steps, schema in subschemas.values():
        named = schema.get("patternProperties")
        patterns = [("patternProperties", pattern) for pattern in named] if isinstance(named, dict) else []
        if isinstance(schema.get("pattern"), str):
            patterns.append(("pattern", schema["pattern"]))
        for keyword, pattern in patterns:
            if is_accepted(pattern):
                count += 1
                if count > PATTERNS:
                    raise SchemaError(f"more than {PATTERNS} patterns", path=path + "#")
                continue
            if keyword == "pattern":
                del schema["pattern"]
            else:  # without the pattern additionalProperties would mean something else, so drop it as well
                del schema["patternProperties"][pattern]
                schema.pop("additionalProperties", None)
                schema.pop("unevaluatedProperties", None)
            yield f"{pointer(steps)}: {keyword} is left out: not of linear time, or no regular expression: {shorten(pattern)}"


def _bound_references(root: dict[str, Any], subschemas: dict[int, _Subschema], path: str) -> None:
    """Limit the schemas for one value: refuse circles, long chains and fans. Linear in the schema."""
    totals: dict[int, int] = {}

    def count(here: _Subschema, chain: tuple[int, ...]) -> int:
        if id(here.schema) in totals:
            return totals[id(here.schema)]
        place = path + pointer(here.steps)
        total = 1
        for part in _applied_schemas(root, subschemas, here):
            if id(part.schema) in chain:
                hint = "go through properties or items"
                raise SchemaError("a circle of references that goes nowhere", path=place, hint=hint)
            if id(part.schema) not in totals and len(chain) >= DEPTH:
                raise SchemaError(f"a chain of more than {DEPTH} references", path=place)
            total += count(part, (*chain, id(part.schema)))
        if total > APPLIED:
            raise SchemaError(f"more than {APPLIED} schemas for one value", path=place)
        totals[id(here.schema)] = total
        return total

    for start in subschemas.values():
        count(start, (id(start.schema),))


def _applied_schemas(root: dict[str, Any], subschemas: dict[int, _Subschema], here: _Subschema) -> Iterator[_Subschema]:
    """Yield the schemas that apply to the same value as this one."""
    if "$ref" in here.schema:
        target = resolve(root, here.schema["$ref"])
        if id(target) in subschemas:
            yield subschemas[id(target)]
    for steps, part in inside(here.schema):
        if steps[0] in IN_PLACE and id(part) in subschemas:
            yield subschemas[id(part)]
