"""Which call is right, for values and schemas of any kind: what a model writes and what a file of tasks says is hostile."""

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.core import InvocationCanister
from callboard.core.request import ToolDeclaration
from callboard.evaluation import ExpectedCall
from callboard.evaluation.check import match_call

texts = st.sampled_from(["", "a", "A b", '"a"', "a\\nb", "a\nb", "5", "[5]", "true", "{}", "\ud800"]) | st.text(
    max_size=4
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**400), 10**400) | st.integers(-5, 5) | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
types = st.sampled_from(["string", "integer", "number", "boolean", "array", "object", "null", "unheard"])
schemas = st.recursive(
    st.builds(lambda kind: {"type": kind}, types | st.lists(types, max_size=2)) | values,
    lambda inner: st.builds(lambda kind, items: {"type": kind, "items": items}, types, inner),
    max_leaves=3,
)
accepted = st.lists(values, max_size=3).map(tuple)


@given(values, accepted, schemas, st.booleans())
def test_every_value_is_right_or_has_a_label_and_a_reason(value, options, schema, verbatim):
    tool = ToolDeclaration("f", schema={"properties": {"x": schema}})
    expected = ExpectedCall("f", {"x": options}, ("x",) if verbatim else ())
    mismatch = match_call(InvocationCanister("1", "f", {"x": value}), expected, tool)
    assert mismatch is None or (mismatch.label and mismatch.why.isprintable())


@given(values, values)
def test_a_schema_that_is_none_is_no_crash(properties, required):
    tool = ToolDeclaration("f", schema={"properties": properties, "required": required})
    match_call(InvocationCanister("1", "f", {"x": 1}), ExpectedCall("f", {"x": (1,)}), tool)


@table(
    ("schema", "options", "value"),
    [
        ({}, ("five",), "five"),
        ({}, (5,), 5),
        ({"type": ["null", "integer"]}, (5,), 5),
        ({"type": "number"}, (5.0,), 5),
        ({"type": "string"}, (5,), 5),
        ({"type": "string"}, ("April 1, 2024",), "april 1 2024"),
        ({"type": "array", "items": {"type": "string"}}, (["A", "b"],), ["a", "B."]),
        ({"type": "array", "items": {"type": "number"}}, ([1, 2],), [1, 2]),
        ({"type": "array", "items": {"type": "object"}}, ([{"k": ["v", ""]}, {}],), [{}, {}]),
        ({"type": "object"}, ({"k": ["v"], "l": [1, ""]},), {"k": "V"}),
    ],
)
def test_a_value_is_right_as_the_official_checker_sees_it(schema, options, value):
    tool = ToolDeclaration("f", schema={"properties": {"x": schema}})
    assert match_call(InvocationCanister("1", "f", {"x": value}), ExpectedCall("f", {"x": options}), tool) is None
