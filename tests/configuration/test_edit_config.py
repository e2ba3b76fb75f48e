from __future__ import annotations

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.configuration.edit_config import merged, replaced, with_json, with_toml
from callboard.errors import CallerError

OURS = {
    "model": "mine",
    "web_search": "disabled",
    "providers": {"callboard": {"name": "Callboard", "url": "http://127.0.0.1"}},
    "features": {"plugins": False},
}
PROVIDER = '[providers.callboard]\nname = "Callboard"\nurl = "http://127.0.0.1"\n'
TOP = 'model = "mine"\nweb_search = "disabled"\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"{TOP}\n{PROVIDER}\n[features]\nplugins = false\n"),
        (
            '# mine\nmodel = "theirs"\n\n[features]\nshell = true # so\n',
            f"# mine\n{TOP}\n[features]\nplugins = false\nshell = true # so\n\n{PROVIDER}",
        ),
        ("[other]\na = 1\n", f"{TOP}[other]\na = 1\n\n{PROVIDER}\n[features]\nplugins = false\n"),
        (
            "features.plugins = true\n[other]\na = 1\n",
            f"{TOP}features.plugins = false\n[other]\na = 1\n\n{PROVIDER}",
        ),
        (
            "list = [\n 1,\n]\n[features]\nplugins = false\n",
            f'web_search = "disabled"\nmodel = "mine"\nlist = [\n 1,\n]\n[features]\nplugins = false\n\n{PROVIDER}',
        ),
        (
            '[other]\ntext = """\n[features]\nmodel = 1\n"""\n',
            f'{TOP}[other]\ntext = """\n[features]\nmodel = 1\n"""\n\n{PROVIDER}\n[features]\nplugins = false\n',
        ),
    ],
)
def test_toml(before, after):
    assert with_toml(before, OURS) == after
    assert with_toml(after, OURS) == after


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("features = {plugins = true}\n", "spelled in a way"),
        ("[[features]]\nplugins = true\n", "spelled in a way"),
        ("model = [\n 1,\n]\n", "spelled in a way"),
        ("model = \n", "not TOML"),
    ],
)
def test_toml_that_cannot_be_changed(before, said):
    with pytest.raises(CallerError, match=said):
        with_toml(before, OURS)


values = st.one_of(st.booleans(), st.integers(-9, 9), st.text("a\"\\'#=[]\né\t", max_size=5))
keys = st.text("abc", min_size=1, max_size=2)
settings = st.dictionaries(keys, st.one_of(values, st.dictionaries(keys, values, min_size=1, max_size=3)), max_size=4)


@given(settings, settings)
def test_what_was_there_stays(there, ours):
    """Or the text is refused."""
    text = with_toml("", there)
    assert tomllib.loads(text) == there
    try:
        after = with_toml(text, ours)
    except CallerError:
        return
    assert tomllib.loads(after) == merged(tomllib.loads(text), ours)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", {"env": {"A": "1"}}),
        ('{"env": {"B": "2", "A": "0"}, "é": [1]}', {"env": {"B": "2", "A": "1"}, "é": [1]}),
        ('{"env": "none"}', {"env": {"A": "1"}}),
    ],
)
def test_json(before, after):
    text = with_json(before, {"env": {"A": "1"}})
    assert json.loads(text) == after
    assert with_json(text, {"env": {"A": "1"}}) == text


@pytest.mark.parametrize("before", ['{"a": 1, // so\n}', "[]", "{", "[" * 100_000])
def test_json_that_cannot_be_changed(before):
    with pytest.raises(CallerError, match="not"):
        with_json(before, {})


def test_what_would_be_lost():
    there = {"env": {"A": "0", "B": "1"}, "model": "x"}
    assert replaced(there, {"env": {"A": "1", "B": "1", "C": "2"}, "model": "x"}) == [("env.A", "0", "1")]
