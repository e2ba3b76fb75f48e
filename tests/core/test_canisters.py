import copy
import json
import pickle
from datetime import UTC, datetime

import msgspec
import pytest
from tests.tables import table

from callboard import core
from callboard.core import contents, decode_canister, encode_line, error_result
from callboard.errors import CallerError

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@table(
    ("given", "made"),
    [
        ("hi", (core.TextualContent("hi"),)),
        (core.TextualContent("hi"), (core.TextualContent("hi"),)),
        ([core.TextualContent("a"), core.PictureContent(b"b")], (core.TextualContent("a"), core.PictureContent(b"b"))),
        (None, ()),
        ("", ()),
    ],
)
def test_content_is_given_as_people_write_it(given, made):
    assert core.UserCanister(given).content == made
    assert contents(given) == made


def test_the_timestamp_is_not_compared_and_everything_else_is():
    assert core.UserCanister("a", timestamp=NOW) == core.UserCanister("a")
    assert core.UserCanister("a") != core.UserCanister("b")
    assert core.UserCanister("a") != core.AssistantCanister("a")
    assert core.UserCanister("a", extra={"x": 1}) != core.UserCanister("a")


def test_a_canister_cannot_be_changed():
    with pytest.raises(AttributeError):
        core.InvocationCanister("1", "f", {}).name = "g"


@table(
    ("kind", "text"),
    [
        (core.UserCanister, "a\nb"),
        (core.SupervisorCanister, "a\nb"),
        (core.DocumentCanister, "a\nb"),
        (core.AssistantCanister, "ab"),
    ],
)
def test_texts_stand_apart_but_for_a_model_s_own(kind, text):
    assert kind([core.TextualContent("a"), core.PictureContent(b"x"), core.TextualContent("b")]).text == text


def test_an_error_result_tells_the_model_what_went_wrong():
    result = error_result("1", "timeout", "too slow")
    assert result == core.ResultCanister(invocation_id="1", content="Error: too slow", error=result.error)
    assert (result.error.category, result.error.message) == ("timeout", "too slow")


@table(
    ("given", "content"),
    [
        (("a",), (core.TextualContent("a"),)),
        (("a", core.PictureContent(b"x")), (core.TextualContent("a"), core.PictureContent(b"x"))),
        (["a", "b"], (core.TextualContent("a"), core.TextualContent("b"))),
    ],
)
def test_texts_in_a_series_are_contents(given, content):
    assert core.UserCanister(given).content == content
    assert decode_canister(encode_line(core.UserCanister(given))).content == content


@table("given", [(5,), ("a", None), (b"x",), [b"x"], ({"type": "text", "text": "a"},), b"x", {"a": 1}, 5])
def test_what_is_no_content_is_refused(given):
    with pytest.raises(CallerError, match="is not a content; give a text"):
        core.UserCanister(given)


@table(
    ("arguments", "raw", "text"),
    [
        ({"a": 1}, '{"a":  1}', 'add {"a":  1}'),
        ({"a": 1}, "", 'add {"a":1}'),
        (None, '{"a": ', 'add {"a": '),
        (None, "", "add {}"),
    ],
)
def test_every_canister_has_a_text_a_call_in_a_line(arguments, raw, text):
    assert core.InvocationCanister("call_1", "add", arguments, raw).text == text


def test_the_arguments_of_an_invocation_cannot_be_changed():
    given = {"a": {"b": 1}}
    call = core.InvocationCanister("1", "f", given)
    given["a"] = 2
    assert call.arguments == {"a": {"b": 1}}
    for change in (
        lambda: call.arguments.__setitem__("a", 2),
        lambda: call.arguments.update(a=2),
        lambda: call.arguments.pop("a"),
        call.arguments.clear,
        lambda: call.arguments.setdefault("z", 1),
    ):
        with pytest.raises(TypeError, match="cannot be changed"):
            change()
    assert msgspec.json.encode(call.arguments) == b'{"a":{"b":1}}'
    assert json.dumps(call.arguments) == '{"a": {"b": 1}}'
    for copied in (copy.deepcopy(call), pickle.loads(pickle.dumps(call)), msgspec.structs.replace(call, name="g")):
        assert copied.arguments == call.arguments
        assert type(copied.arguments) is type(call.arguments)
