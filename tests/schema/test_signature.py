from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Optional

import pytest
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator
from pydantic.json_schema import SkipJsonSchema
from tests.tables import table
from typing_extensions import TypedDict

from callboard.errors import ToolDefinitionError
from callboard.schema import ArgumentsInvalid, check_signature, derive
from callboard.schema.signature import simplify

if TYPE_CHECKING:
    from somewhere import Unknown


class Color(enum.Enum):
    RED = "r"
    GREEN = "g"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Row(TypedDict):
    name: str


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Tree(BaseModel):
    """A tree."""

    title: str
    children: list[Tree] = []


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    known: int


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def _even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("odd")
        return number


POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
    "required": ["x"],
    "additionalProperties": False,
}


def function_of(annotation: Any, *default: Any) -> Callable[..., Any]:
    def tool(value):
        return value

    tool.__annotations__ = {"value": annotation}
    tool.__defaults__ = default or None
    return tool


@table(
    ("annotation", "schema", "given", "value"),
    [
        (str, {"type": "string"}, "5", "5"),
        (int, {"type": "integer"}, 5, 5),
        (int, {"type": "integer"}, "5", 5),
        (int, {"type": "integer"}, 5.0, 5),
        (float, {"type": "number"}, 5, 5.0),
        (float, {"type": "number"}, "0.5", 0.5),
        (bool, {"type": "boolean"}, "true", True),
        (None, {"type": "null"}, None, None),
        (Any, {}, {"a": "5"}, {"a": "5"}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
        (Optional[str], {"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", "null"),  # noqa: UP045 - the older spelling is a case
        ("int | str", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "5", "5"),
        (Literal["a", 1], {"enum": ["a", 1]}, 1, 1),
        (Literal[1, 2], {"type": "integer", "enum": [1, 2]}, "2", 2),
        (Color, {"type": "string", "enum": ["r", "g"]}, "g", Color.GREEN),
        (Level, {"type": "integer", "enum": [1, 2]}, "2", Level.HIGH),
        (list[int], {"type": "array", "items": {"type": "integer"}}, ["1", 2], [1, 2]),
        (list[int], {"type": "array", "items": {"type": "integer"}}, "[1,2]", [1, 2]),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}, {"a": "1"}, {"a": 1}),
        (set[int], {"type": "array", "items": {"type": "integer"}}, [2, 1, 2], {1, 2}),
        (
            tuple[int, str],
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
            ["1", "1"],
            (1, "1"),
        ),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}, [1, 2], (1, 2)),
        (dt.date, {"type": "string", "format": "date"}, "2024-02-29", dt.date(2024, 2, 29)),
        (Point, POINT, {"x": "5"}, Point(5)),
        (list[Point], {"type": "array", "items": POINT}, [{"x": 1, "y": 2}], [Point(1, 2)]),
        (
            Row,
            {
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "required": ["name"],
                "additionalProperties": False,
            },
            {"name": "n"},
            {"name": "n"},
        ),
        (
            Pair,
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string", "default": "r"}],
                "minItems": 1,
                "maxItems": 2,
            },
            [1],
            Pair(1),
        ),
        (
            Open,
            {
                "type": "object",
                "properties": {"known": {"type": "integer"}},
                "required": ["known"],
                "additionalProperties": True,
            },
            {"known": 1, "other": 2},
            Open(known=1, other=2),
        ),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}, 1, 1),
        (Annotated[int, Field(ge=1, description="n")], {"type": "integer", "minimum": 1, "description": "n"}, 1, 1),
    ],
)
def test_an_annotation_becomes_a_schema_and_a_value(annotation, schema, given, value):
    derived = derive(function_of(annotation))
    assert derived.schema == {
        "type": "object",
        "properties": {"value": schema},
        "required": ["value"],
        "additionalProperties": False,
    }
    validated = derived.validate({"value": given})
    assert validated == {"value": value}
    assert type(validated["value"]) is type(value)


def test_recursive_and_shared_types_stay_definitions():
    def tool(tree: Tree, a: Point, b: Point | None = None): ...

    derived = derive(tool)
    assert derived.schema == {
        "type": "object",
        "properties": {
            "tree": {"$ref": "#/$defs/Tree"},
            "a": {"$ref": "#/$defs/Point"},
            "b": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}], "default": None},
        },
        "required": ["tree", "a"],
        "additionalProperties": False,
        "$defs": {
            "Point": POINT,
            "Tree": {
                "type": "object",
                "description": "A tree.",
                "properties": {
                    "title": {"type": "string"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}, "default": []},
                },
                "required": ["title"],
                "additionalProperties": False,
            },
        },
    }
    values = derived.validate({"tree": {"title": "t", "children": '[{"title": "u"}]'}, "a": {"x": "1"}})
    assert values == {"tree": Tree(title="t", children=[Tree(title="u")]), "a": Point(1), "b": None}


SENTINEL = object()


@table(
    ("annotation", "default", "schema"),
    [
        (int, 3, {"type": "integer", "default": 3}),
        (int, None, {"type": "integer", "default": None}),
        (Color, Color.RED, {"type": "string", "enum": ["r", "g"], "default": "r"}),
        (Point, Point(1), {**POINT, "default": {"x": 1, "y": 0}}),
        (Any, SENTINEL, {}),
        (float, float("inf"), {"type": "number"}),
    ],
)
def test_a_default_is_told_where_json_can_say_it_and_passed_as_it_is(annotation, default, schema):
    derived = derive(function_of(annotation, default))
    assert derived.schema["properties"] == {"value": schema}
    assert "required" not in derived.schema
    assert derived.validate({})["value"] is default


def test_no_parameters():
    def tool():
        """Do."""

    derived = derive(tool)
    assert derived.schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert derived.validate({}) == {}


def test_descriptions_come_from_annotated_then_field_then_docstring():
    def tool(
        a: Annotated[int, "annotated a"],
        b: Annotated[int, Field(description="field b")],
        c: int,
        d: Tree,
    ) -> Unknown:
        """Do it.

        And more.

        Args:
            a: documented a
            b: documented b
            c: documented
                c
            d: documented d

        Returns:
            Nothing.

        """

    derived = derive(tool)
    assert derived.description == "Do it.\n\nAnd more."
    described = {name: one["description"] for name, one in derived.schema["properties"].items()}
    assert described == {"a": "annotated a", "b": "field b", "c": "documented c", "d": "documented d"}


def test_a_parameter_is_skipped_with_whatever_it_is_annotated():
    def tool(context: Unknown, query: str, *rest: int): ...

    assert list(derive(tool, skip={"context", "rest"}).schema["properties"]) == ["query"]
    check_signature(tool, skip={"context", "rest"})


class Service:
    def find(self, query: str): ...


def wrapped(query: str): ...


@functools.wraps(wrapped)
def wrapper(*args, **kwargs): ...


@table("function", [Service().find, wrapper, functools.partial(wrapped)])
def test_methods_and_wrappers_are_functions_too(function):
    assert list(derive(function).schema["properties"]) == ["query"]


def _variable(*values: int): ...


def _keywords(**values: int): ...


def _positional(values: int, /): ...


def _bare(values): ...


def _field(values: int = Field(ge=1)): ...


@table(
    ("function", "message"),
    [
        (_variable, "_variable(values): takes any number of positional arguments; take a list instead"),
        (_keywords, "_keywords(values): takes any keyword; name each parameter, or take a dict instead"),
        (_positional, "_positional(values): is positional-only; models name their arguments: remove the `/`"),
        (_bare, "_bare(values): has no annotation; say what it is: `values: str`"),
        (
            _field,
            "_field(values): has a pydantic Field as its default; write `values: Annotated[..., Field(...)]`, and a plain default if there is one",
        ),
    ],
)
def test_signatures_that_no_model_can_call_are_refused_at_once(function, message):
    with pytest.raises(ToolDefinitionError) as caught:
        check_signature(function)
    assert str(caught.value) == message


class Plain:
    pass


@table(
    ("annotation", "words"),
    [
        ("Unknown", "tool(value): the annotation 'Unknown' cannot be resolved: name 'Unknown' is not defined"),
        ("list[Unknown]", "cannot be resolved"),
        ("list[", "cannot be resolved"),
        (Plain, "tool(value): Unable to generate pydantic-core schema"),
        (Callable[[int], int], "tool(value): Cannot generate a JsonSchema"),
    ],
)
def test_annotations_that_json_cannot_say_are_refused(annotation, words):
    with pytest.raises(ToolDefinitionError) as caught:
        derive(function_of(annotation))
    assert words in str(caught.value)
    assert caught.value.path == "tool(value)"
    assert caught.value.hint


@table(
    ("annotation", "given", "message"),
    [
        (str, 1, "Input should be a valid string"),
        (int, "5 ", "Input should be a valid integer"),
        (int, "05", "Input should be a valid integer"),
        (int, True, "Input should be a valid integer"),
        (int, 5.5, "Input should be a valid integer"),
        (bool, 1, "Input should be a valid boolean"),
        (bool, "yes", "Input should be a valid boolean"),
        (float, "NaN", "Input should be a valid number"),
        (int | None, "x", "Input should be a valid integer"),
        (int | bool, "x", "Input should be a valid integer or a valid boolean"),
        (Color, "b", "Input should be 'r' or 'g'"),
        (Literal[1, "a"], 2, "Input should be 1 or 'a'"),
        (Literal[1, "a"], True, "Input should be 1 or 'a'"),
        (Literal[True], 1, "Input should be true"),
        (Level, True, "Input should be 1 or 2"),
        (list[int], {}, "Input should be a valid array"),
        (Point, 5, "Input should be an object"),
        (dt.date, "soon", "Input should be a valid date in the format YYYY-MM-DD, input is too short"),
    ],
)
def test_a_wrong_value_is_told_in_one_line(annotation, given, message):
    with pytest.raises(ArgumentsInvalid) as caught:
        derive(function_of(annotation)).validate({"value": given})
    assert str(caught.value) == f"ArgValidationError: value\n  {message}"


def test_what_only_pydantic_knows_is_told_beside_what_the_schema_knows():
    def tool(even: Even, day: dt.date, count: int, point: Point): ...

    with pytest.raises(ArgumentsInvalid) as caught:
        derive(tool).validate({"even": {"number": 3}, "day": "x", "count": "x", "point": {"x": 1, "z": 2}, "cuont": 1})
    assert str(caught.value) == (
        "ArgValidationError: even.number\n  Value error, odd\n"
        "day\n  Input should be a valid date in the format YYYY-MM-DD, input is too short\n"
        "count\n  Input should be a valid integer\n"
        "point.z\n  Extra inputs are not permitted\n"
        "cuont\n  Extra inputs are not permitted; did you mean 'count'?"
    )


def test_values_are_the_tools_own():
    def tool(items: list[int]): ...

    arguments = {"items": [1]}
    derive(tool).validate(arguments)["items"].append(2)
    assert arguments == {"items": [1]}


class Corner(enum.Enum):
    ORIGIN = (0, 0)


@table(
    ("annotation", "message"),
    [
        (Iterable[int], r"is an iterable, which is not validated before the call; write `value: list\[...\]`"),
        (dict[str, Iterator[int]], "is an iterable"),
        (list[Generator[int, None, None]] | None, "is an iterable"),
        (Corner, r"has the choice \(0, 0\), which no JSON value is equal to; use strings or numbers"),
        (list[Annotated[Corner, "where"]], "has the choice"),
    ],
)
def test_what_would_be_validated_too_late_or_never_is_refused(annotation, message):
    def function(value):
        return value

    function.__annotations__["value"] = annotation
    with pytest.raises(ToolDefinitionError, match=message):
        derive(function)


CLOSED = {"additionalProperties": False}


@table(
    ("schema", "small"),
    [
        (
            {"title": "T", "properties": {"title": {"title": "Title", "type": "string"}}, "type": "object"},
            {"type": "object", "properties": {"title": {"type": "string"}}, **CLOSED},
        ),
        (
            {
                "properties": {"a": {"$ref": "#/$defs/A", "description": "mine"}},
                "$defs": {"A": {"title": "A", "description": "its", "enum": [1]}, "Unused": {}},
            },
            {"properties": {"a": {"description": "mine", "enum": [1]}}, **CLOSED},
        ),
        (
            {
                "properties": {"a": {"$ref": "#/$defs/A"}},
                "$defs": {
                    "A": {"properties": {"b": {"$ref": "#/$defs/B"}}},
                    "B": {"properties": {"a": {"$ref": "#/$defs/A"}}},
                },
            },
            {
                "properties": {"a": {"$ref": "#/$defs/A"}},
                **CLOSED,
                "$defs": {"A": {"properties": {"b": {"properties": {"a": {"$ref": "#/$defs/A"}}, **CLOSED}}, **CLOSED}},
            },
        ),
        (
            {"properties": {"a": {"properties": {}, "additionalProperties": True}, "b": {"properties": {}}}},
            {"properties": {"a": {"properties": {}, "additionalProperties": True}, "b": {"properties": {}}}},
        ),
        (
            {"properties": {"a": {"default": {"title": "data"}, "oneOf": [], "discriminator": {"propertyName": "k"}}}},
            {"properties": {"a": {"default": {"title": "data"}, "oneOf": []}}, **CLOSED},
        ),
    ],
)
def test_what_is_left(schema, small):
    assert simplify(schema) == small


def only_int(value: Any) -> Any:
    return value if isinstance(value, int) else -1


class Sized(BaseModel):
    count: int

    def __init__(self, count: Any) -> None:
        super().__init__(count=only_int(count))


@dataclasses.dataclass
class Counted:
    size: int
    built = 0

    def __post_init__(self) -> None:
        Counted.built += 1


def test_code_of_the_user_gets_coerced_values():
    def f(count: Annotated[int, BeforeValidator(only_int)]) -> None: ...
    def g(metadata: Annotated[int, BeforeValidator(only_int)]) -> None: ...
    def h(sized: Sized) -> None: ...

    assert derive(f).validate({"count": "5"}) == {"count": 5}
    assert derive(g).validate({"metadata": "5"}) == {"metadata": 5}
    assert derive(h).validate({"sized": {"count": "5"}}) == {"sized": Sized(5)}


def test_code_of_the_user_runs_once():
    def f(counted: Counted, count: int) -> None: ...

    derive(f).validate({"counted": {"size": 1}, "count": "5"})
    assert Counted.built == 1


def test_a_null_that_the_schema_does_not_allow_counts_as_absent():
    def f(size: int | SkipJsonSchema[None] = 7) -> None: ...

    assert derive(f).validate({"size": None}) == {"size": 7}


class Narrow(BaseModel):
    size: int = 7


class Wide(BaseModel):
    model_config = ConfigDict(extra="allow")

    label: str


def test_a_null_counts_as_absent_although_another_choice_accepts_any_member():
    def f(shape: Narrow | Wide) -> None: ...

    assert derive(f).validate({"shape": {"label": "a", "size": None}}) == {"shape": Wide(label="a")}


def test_what_is_valid_and_what_has_to_be_coerced_give_the_same_values():
    def f(point: Point, tags: dict[str, int] | None = None) -> None: ...

    validate = derive(f).validate
    expected = {"point": Point(1, 2), "tags": {"a": 1}}
    assert validate({"point": {"x": 1, "y": 2}, "tags": {"a": 1}}) == expected
    assert validate({"point": '{"x": 1.0, "y": "2"}', "tags": {"a": "1"}}) == expected
