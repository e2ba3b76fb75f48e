from __future__ import annotations

import pytest

from callboard.schema import ArgumentsInvalid, Mistake, compile_schema, derive
from callboard.schema.errors import SHOWN, unexpected_member


def search(query: str, limit: int = 10, path: str = "."): ...


OWN = derive(search)
FOREIGN = compile_schema(OWN.schema)
BOTH = pytest.mark.parametrize("validator", [OWN, FOREIGN], ids=["own", "foreign"])


@BOTH
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"query": 123}, "ArgValidationError: query\n  Input should be a valid string"),  # seed 001
        ({}, "ArgValidationError: query\n  Field required"),  # seed 001
        ({"limit": "x"}, "ArgValidationError: query\n  Field required\nlimit\n  Input should be a valid integer"),
        (
            {"query": "q", "paht": "x"},
            "ArgValidationError: paht\n  Extra inputs are not permitted; did you mean 'path'?",
        ),
        ({"query": "q", "zzz": "x"}, "ArgValidationError: zzz\n  Extra inputs are not permitted"),
        ([], "ArgValidationError: arguments\n  Input should be a JSON object"),
        ('{"query": "q"}', "ArgValidationError: arguments\n  Input should be a JSON object"),
        (None, "ArgValidationError: arguments\n  Input should be a JSON object"),
        ({"query": object()}, "ArgValidationError: arguments\n  Input should be JSON"),
        ({"query": "\ud800"}, "ArgValidationError: arguments\n  Input should be JSON"),
    ],
)
def test_the_text(validator, arguments, text):
    with pytest.raises(ArgumentsInvalid) as caught:
        validator.validate(arguments)
    assert str(caught.value) == text
    assert str(caught.value.args[0]) == text


@BOTH
def test_twenty_are_listed(validator):
    with pytest.raises(ArgumentsInvalid) as caught:
        validator.validate({"query": "q", **{f"z{i}": i for i in range(25)}})
    assert len(caught.value.mistakes) == 20
    assert caught.value.mistakes[0] == Mistake("z0", "Extra inputs are not permitted")
    assert str(caught.value).endswith("\n... and 5 more")


@BOTH
@pytest.mark.parametrize("name", ["x" * 5000, "a\nArgValidationError: b", "\x1b[31m", "\u202e"])
def test_a_hostile_name_is_short_and_on_one_line(validator, name):
    with pytest.raises(ArgumentsInvalid) as caught:
        validator.validate({"query": "q", name: 1})
    told = str(caught.value)
    assert len(told) < SHOWN + 100
    assert told.count("\n") == 1
    assert told.replace("\n", "").isprintable()


@BOTH
def test_too_deep_is_a_mistake_and_no_crash(validator):
    deep: dict[str, object] = {}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(ArgumentsInvalid) as caught:
        validator.validate({"query": deep})
    # How deep JSON may be is the interpreter's; where it is deep enough, the mistake is the type.
    assert str(caught.value) in {
        "ArgValidationError: arguments\n  Input is nested too deeply",
        "ArgValidationError: query\n  Input should be a valid string",
    }


def test_the_nearest_name():
    assert unexpected_member("file_path", ["path", "filepath"]).endswith("; did you mean 'filepath'?")
    assert unexpected_member("q", []) == "Extra inputs are not permitted"
