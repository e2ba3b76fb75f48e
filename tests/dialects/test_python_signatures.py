import ast
import inspect
import json
import keyword

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables import table

from callboard.core import ToolDeclaration
from callboard.dialects.python_signatures import render_signature

TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict"}
names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: not keyword.iskeyword(name))
texts = st.text(max_size=20) | st.sampled_from(
    ['"""', '\\"""', 'ends in "', "\\", "a\\", '""""', "```\n", "\\N{", "\x00"]
)
values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
parameters = st.fixed_dictionaries(
    {"type": st.sampled_from([*TYPES])}, optional={"description": texts, "default": values, "format": texts}
)
objects = st.dictionaries(names, parameters, max_size=5).map(lambda held: {"type": "object", "properties": held})
junk = st.recursive(
    values,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "items", "anyOf", "enum", "const", "required", "default", "prefixItems"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


def tool(schema, name="get_weather", description=""):
    return ToolDeclaration(name, description, schema)


def function(text):
    (node,) = ast.parse(text).body
    return node


def properties(required=(), **held):
    return {"type": "object", "properties": held, "required": [*required]}


@table(
    ("schema", "signature"),
    [
        ({}, ""),
        (properties(), ""),
        (properties(["city"], city={"type": "string"}), "city: str"),
        (properties(city={"type": "string"}), "city: str = ..."),
        (properties(days={"type": "integer", "default": 1}), "days: int = 1"),
        (properties(["b"], a={"type": "number"}, b={"type": "boolean"}), "b: bool, a: float = ..."),
        (properties(["u"], u={"enum": ["C", "F"]}), 'u: Literal["C", "F"]'),
        (properties(["u"], u={"enum": [1, None, 'x"']}), "u: Literal[1, None, 'x\"']"),
        (properties(["u"], u={"const": True}), "u: Literal[True]"),
        (properties(["a"], a={"type": "array", "items": {"type": "string"}}), "a: list[str]"),
        (properties(["a"], a={"prefixItems": [{"type": "string"}, {}]}), "a: tuple[str, Any]"),
        (properties(["a"], a={"type": "object", "additionalProperties": {"type": "integer"}}), "a: dict[str, int]"),
        (properties(["a"], a={"type": ["string", "null"]}), "a: str | None"),
        (properties(a={"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}), "a: str = ..."),
        (properties(["a"], a={"oneOf": [{"type": "string"}, {"type": "integer"}]}), "a: str | int"),
        (properties(["a"], a={}), "a: Any"),
        (properties(["a"], a={"type": "file"}), "a: Any"),  # of another language than JSON Schema
        (properties(["from", "user-id"], **{"from": {"type": "string"}, "user-id": {}}), "from: str, user-id: Any"),
        (properties(["a b", "x: int)"], **{"a b": {}, "x: int)": {}}), '"a b": Any, "x: int)": Any'),
        (
            {**properties(["a"], a={"$ref": "#/$defs/A"}), "$defs": {"A": {"type": "integer"}}},
            "a: int",
        ),
    ],
)
def test_the_signature(schema, signature):
    assert render_signature(tool(schema)).startswith(f"def get_weather({signature}):")


@pytest.mark.parametrize("name", ["none", "math.factorial", "class", "get-weather", "mcp__files__read"])
def test_a_tool_stands_under_its_own_name(name):
    assert render_signature(tool({}, name)) == f"def {name}(): ..."


@pytest.mark.parametrize("name", ["two words", "", "a()", 'a"', "3d"])
def test_a_name_of_other_characters_stands_in_quotes(name):
    head = render_signature(tool({}, name)).removeprefix("def ").removesuffix("(): ...")
    assert ast.literal_eval(head) == name


def test_a_docstring_says_what_type_hints_do_not():
    place = properties(["lat"], lat={"type": "number"}, near={"type": "string", "description": "A town."})
    stops = {"type": "array", "minItems": 1, "items": properties(["at"], at={"type": "string", "default": "noon"})}
    days = {"type": "integer", "description": "How many.", "minimum": 1, "maximum": 7, "default": 1}
    schema = properties(["city"], city={"type": "string"}, days=days, place=place, stops=stops)
    assert render_signature(tool(schema, description="The weather.\nOf a city.")) == (
        "def get_weather(city: str, days: int = 1, place: dict = ..., stops: list[dict] = ...):\n"
        '    """The weather.\n'
        "    Of a city.\n"
        "\n"
        "    Args:\n"
        "        days: How many. (at least 1, at most 7)\n"
        "        place:\n"
        "            lat (float)\n"
        "            near (str, optional): A town.\n"
        "        stops: (length at least 1)\n"
        "            at (str)\n"
        '    """'
    )


@settings(max_examples=50)
@given(objects, texts)
def test_it_is_python_and_names_each_parameter_with_its_type(schema, description):
    node = function(render_signature(tool(schema, description=description)))
    hints = {each.arg: ast.unparse(each.annotation).partition("[")[0] for each in node.args.args}
    assert hints == {name: TYPES[each["type"]] for name, each in schema["properties"].items()}
    head = (ast.get_docstring(node) or "").partition("Args:")[0]
    assert head.split() == inspect.cleandoc(description).split()


@settings(max_examples=50)
@given(objects)
def test_defaults_are_those_of_the_schema(schema):
    node = function(render_signature(tool(schema)))
    defaults = dict(zip([each.arg for each in node.args.args], map(ast.literal_eval, node.args.defaults), strict=True))
    wanted = {name: each.get("default") for name, each in schema["properties"].items()}
    assert {name: None if each is ... else each for name, each in defaults.items()} == wanted


@settings(max_examples=50)
@given(junk)
def test_whatever_the_schema_is_there_is_a_function(schema):
    text = render_signature(tool({"properties": {"a": schema}} if not isinstance(schema, dict) else schema))
    assert text.startswith("def get_weather(")


def test_a_schema_of_100_kb_is_bounded():
    schema = properties(
        ["a"], **{f"p{each}": {"type": "string", "description": "Word " * 99} for each in range(300)}, a={}
    )
    assert len(json.dumps(schema)) > 100_000
    text = render_signature(tool(schema))
    assert len(text) < 40_000
    assert all(f"p{each}: str" in text for each in range(300))
