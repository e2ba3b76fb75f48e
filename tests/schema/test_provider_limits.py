"""What a schema becomes for a provider fits, says what it lost, and calls come back as the schema was given."""

from __future__ import annotations

import json
import re

import jsonschema_rs
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.core import Request, ToolDeclaration, UserCanister
from callboard.schema import compile_schema
from callboard.schema.provider_limits import RULES, fit_schema, restore_names
from callboard.wires import WIRES

TEXT = {"type": "string"}


def obj(**members):
    return {"type": "object", "properties": members}


ZOO = {
    "plain": (obj(a=TEXT), {"a": "x"}),
    "one of two members": (
        obj(a=TEXT, b=TEXT) | {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"b": "x"},
    ),
    "a discriminated union": (
        {
            "oneOf": [
                obj(kind={"const": "file"}, path=TEXT) | {"required": ["kind", "path"], "additionalProperties": False},
                {"$ref": "#/$defs/link"},
            ],
            "$defs": {
                "link": obj(kind={"const": "link"}, url=TEXT)
                | {"required": ["kind", "url"], "additionalProperties": False}
            },
        },
        {"kind": "link", "url": "x"},
    ),
    "all of several": ({"allOf": [obj(a=TEXT) | {"required": ["a"]}, obj(b=TEXT)]}, {"a": "x", "b": "y"}),
    "a root that is a reference": ({"$ref": "#/definitions/x", "definitions": {"x": obj(a=TEXT)}}, {"a": "x"}),
    "references into a union": (
        {"type": "object", "anyOf": [obj(a=TEXT), obj(b={"$ref": "#/anyOf/0/properties/a"})]},
        {"b": "x"},
    ),
    "not and enum at the root": (obj(a=TEXT) | {"not": {"required": ["b"]}, "enum": [{"a": "x"}]}, {"a": "x"}),
    "no properties": ({"type": "object"}, {}),
    "no type": ({"properties": {"a": TEXT}}, {"a": "x"}),
    "a root that may be null": (obj(a=TEXT) | {"type": ["object", "null"]}, {"a": "x"}),
    "an object without properties inside": (obj(a={"type": "object"}), {"a": {"b": 1}}),
    "a list of anything": (obj(a={"type": "array"}, b={"type": ["array", "null"]}), {"a": [1], "b": None}),
    "a tuple of draft 7": (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            **obj(a={"type": "array", "items": [TEXT], "additionalItems": False}),
        },
        {"a": ["x"]},
    ),
    "bounds of draft 4": (
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            **obj(
                a={"type": "number", "minimum": 0, "exclusiveMinimum": True},
                b={"type": "number", "maximum": 9, "exclusiveMaximum": False},
            ),
        },
        {"a": 1, "b": 9},
    ),
    "names that are refused": (
        obj(**{"$filter": TEXT, "full name": obj(größe=TEXT), "full_name": TEXT, "x" * 65: TEXT})
        | {"required": ["full name"], "dependentRequired": {"$filter": ["full name"]}},
        {"$filter": "f", "full name": {"größe": "L"}, "full_name": "n", "x" * 65: "y"},
    ),
    "names that are refused, everywhere": (
        obj(
            **{
                "a b": {"type": "array", "items": {"anyOf": [obj(**{"c d": {"$ref": "#/properties/a%20b"}}), TEXT]}},
                "t": {"type": "array", "prefixItems": [obj(**{"e f": TEXT})]},
                "m": {"type": "object", "additionalProperties": obj(**{"g h": TEXT})},
                "p": {"type": "object", "patternProperties": {"^x": obj(**{"g h": TEXT})}},
            }
        ),
        {
            "a b": ["x", {"c d": []}],
            "t": [{"e f": "x"}],
            "m": {"a b": {"g h": "x"}},
            "p": {"x y": {"g h": "x"}},
        },
    ),
    "an empty choice": (obj(a={"type": "string", "enum": ["", "x"]}), {"a": "x"}),
}
SPELLED = {
    "names that are refused": {
        "_filter_0c097d40": "f",
        "full_name_3409ef49": {"gr__e_d353a267": "L"},
        "full_name": "n",
        "x" * 48 + "_9537c5fd": "y",
    },
    "names that are refused, everywhere": {
        "a_b_c8687a08": ["x", {"c_d_b561f19f": []}],
        "t": [{"e_f_526c8fec": "x"}],
        "m": {"a b": {"g_h_0cf976b5": "x"}},
        "p": {"x y": {"g_h_0cf976b5": "x"}},
    },
}
"""The arguments as a model writes them that was told names that are not refused."""


def sent(wire, schema):
    request = Request("m", (UserCanister("u"),), (ToolDeclaration("f", "d", schema),))
    low = WIRES[wire].encode_request(request)
    tool = json.loads(json.dumps(low.body["tools"][0]))
    tool = tool.get("function", tool)
    tool = tool["functionDeclarations"][0] if "functionDeclarations" in tool else tool
    keys = ("parameters", "input_schema", "parametersJsonSchema")
    return next((tool[key] for key in keys if key in tool), None), low


def inside(schema):
    """Every schema in a schema, as far as the zoo goes."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key, held in schema.items():
        if key in {"properties", "$defs", "definitions", "patternProperties"}:
            for part in held.values():
                yield from inside(part)
        elif key in {"items", "additionalProperties", "not"}:
            yield from inside(held)
        elif key in {"anyOf", "oneOf", "allOf", "prefixItems"}:
            for part in held:
                yield from inside(part)


def openai(schema):
    """openai-agents#449, oh-my-pi#1147 (nested), bnbchain-mcp#68, and the text of the API's 400 for the root."""
    yield from (f"{key} at the root" for key in ("oneOf", "anyOf", "allOf", "enum", "not", "const") if key in schema)
    for part in inside(schema):
        if "object" in part.get("type", ()) and "properties" not in part:
            yield "object schema missing properties"
        if "array" in part.get("type", ()) and not isinstance(part.get("items"), (dict, bool)):
            yield "array schema missing items"
    yield from newest(schema)


def anthropic(schema):
    """langchain#39271, notion-mcp-server#341, opencode#47543 (the root); twilio-labs/mcp#49 and #56 (names)."""
    yield from (f"{key} at the root" for key in ("oneOf", "anyOf", "allOf") if key in schema)
    for part in inside(schema):
        for name in part.get("properties", ()):
            if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name):
                yield f"property key {name}"
    yield from newest(schema)


def newest(schema):
    """The root is an object (livekit/agents#2689), and a schema of draft 2020-12."""
    if schema.get("type") != "object":
        yield "the root is no object"
    try:
        jsonschema_rs.Draft202012Validator({key: held for key, held in schema.items() if key != "$schema"})
    except ValueError as error:
        yield str(error)


CHECKS = {
    "chat": openai,
    "responses": openai,
    "messages": anthropic,
    "gemini": newest,
}


@table("wire", WIRES)
@table("name", ZOO)
def test_no_provider_refuses_what_is_sent(wire, name):
    schema, _ = sent(wire, ZOO[name][0])
    assert [*CHECKS[wire](schema)] == []


@table("wire", WIRES)
@table("name", ZOO)
def test_a_call_that_follows_what_was_sent_comes_back_as_the_tool_was_declared(wire, name):
    given, arguments = ZOO[name]
    schema, low = sent(wire, given)
    spelled = SPELLED.get(name, arguments) if wire == "messages" else arguments
    jsonschema_rs.Draft202012Validator(schema).validate(spelled)
    back = low.restore("f", spelled)
    assert back == arguments
    assert compile_schema(given).validate(back) == arguments


@table(
    ("wire", "name", "lost"),
    [
        ("chat", "one of two members", ("anyOf",)),
        ("messages", "one of two members", ("anyOf",)),
        ("gemini", "one of two members", ()),
        ("responses", "a discriminated union", ("oneOf",)),
        ("messages", "all of several", ()),
        ("chat", "a root that is a reference", ()),
        ("chat", "not and enum at the root", ("enum", "not")),
        ("chat", "names that are refused", ()),
        ("messages", "names that are refused, everywhere", ()),
    ],
)
def test_what_is_lost_is_told(wire, name, lost):
    _, low = sent(wire, ZOO[name][0])
    assert sorted(low.dropped) == [f"{keyword} at the root of the parameters of f" for keyword in lost]


@table("part", [{"minProperties": 1}, {"properties": {"a": {"minLength": 3}}}])
def test_a_part_of_all_that_says_more_is_told_as_lost(part):
    assert fit_schema({**obj(a=TEXT), "allOf": [part]}, RULES["chat"]).dropped == ("allOf",)


def test_what_the_branches_of_a_union_share_is_still_required():
    form = fit_schema(ZOO["a discriminated union"][0], RULES["messages"])
    assert (form.schema["required"], form.schema["additionalProperties"]) == (["kind"], False)
    assert [*form.schema["properties"]] == ["kind", "path", "url"]


@table("wire", RULES)
def test_what_a_provider_takes_is_sent_as_it_came(wire):
    schema = ZOO["plain"][0]
    assert fit_schema(schema, RULES[wire]).schema is schema


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
SCHEMAS = st.recursive(
    st.sampled_from([{}, TEXT, True, {"type": "array"}, {"$ref": "#/$defs/d"}, {"$ref": "#"}, {"const": 1}]) | JSON,
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", ["object", "null"]]),
            "properties": st.dictionaries(st.sampled_from(["a", "b c", "b_c", "ü"]), inner, max_size=3),
            "required": st.lists(st.sampled_from(["a", "b c"]), max_size=2),
            "allOf": st.lists(inner, max_size=3),
            "anyOf": st.lists(inner, max_size=3),
            "oneOf": st.lists(inner, max_size=3),
            "items": inner | st.lists(inner, max_size=2),
            "additionalItems": inner,
            "additionalProperties": inner | st.booleans(),
            "$defs": st.dictionaries(st.sampled_from(["d", "root"]), inner, max_size=2),
            "exclusiveMinimum": st.booleans() | st.integers(),
            "minimum": st.integers() | st.booleans(),
        },
    ),
    max_leaves=12,
)


@given(SCHEMAS.filter(lambda each: isinstance(each, dict)), st.sampled_from([*RULES]), JSON)
def test_fitting_never_fails_and_what_fits_stays(schema, wire, arguments):
    before = json.dumps(schema)
    form = fit_schema(schema, RULES[wire])
    again = fit_schema(form.schema, RULES[wire])
    assert again.schema == form.schema
    assert (again.names, again.dropped) == ({}, ())
    assert json.dumps(schema) == before
    restore_names(arguments if isinstance(arguments, dict) else {}, form)


@table("wire", RULES)
@table("kind", ["branches", "references", "nested", "names"])
def test_the_size_grows_with_the_schema(wire, kind):
    def large(count):
        if kind == "branches":
            return {"anyOf": [obj(kind={"const": each}, **{f"m {each}": TEXT}) for each in range(count)]}
        if kind == "references":
            return {
                "allOf": [{"$ref": "#/$defs/d"}] * count,
                "$defs": {"d": obj(**{f"m {n}": TEXT for n in range(count)})},
            }
        if kind == "names":
            return obj(**{"ü" * each: TEXT for each in range(count)})
        schema = obj(a=TEXT)
        for _ in range(count // 10):
            schema = {"allOf": [schema, {"anyOf": [schema["properties"]["a"]]}], "properties": {"a": TEXT}}
        return schema

    for count in (50, 200):
        given = large(count)
        assert len(json.dumps(fit_schema(given, RULES[wire]).schema)) <= 3 * len(json.dumps(given)) + 200


@table("closed", [False, True])
def test_many_parts_that_all_hold_are_joined_in_linear_time(closed):
    """Whoever runs an MCP server says how many there are."""

    class Name(str):
        __slots__ = ()
        __eq__ = str.__eq__

        def __hash__(self):
            nonlocal looked_up
            looked_up += 1
            return str.__hash__(self)

    def lookups(count):
        nonlocal looked_up
        parts = [
            obj(**{f"m{each}": TEXT}) | ({"additionalProperties": False} if closed else {}) for each in range(count)
        ]
        schema = {
            "allOf": [part | {"properties": {Name(n): t for n, t in part["properties"].items()}} for part in parts]
        }
        looked_up = 0
        fit_schema(schema, RULES["chat"])
        return looked_up

    looked_up = 0
    assert 0 < lookups(1000) <= 2.5 * lookups(500)


def test_a_schema_that_is_too_deep_is_left_as_it_is():
    schema = {}
    for _ in range(3000):
        schema = {"type": "array", "items": schema}
    whole = obj(a=schema)
    assert fit_schema(whole, RULES["messages"]).schema is whole


def test_a_boolean_is_an_object_where_llama_cpp_wants_one_and_stays_where_it_closes():
    given = obj(any=True, none=False, list={"type": "array", "items": True}, either={"anyOf": [True, TEXT]})
    given |= {"additionalProperties": False}
    made = fit_schema(given, RULES["chat"]).schema
    assert made == obj(any={}, none={"not": {}}, list={"type": "array", "items": {}}, either={"anyOf": [{}, TEXT]}) | {
        "additionalProperties": False
    }
    assert fit_schema(obj(any=True), RULES["messages"]).schema == obj(any=True)
