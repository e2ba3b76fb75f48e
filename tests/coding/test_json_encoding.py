import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from callboard.coding.job import PromptSent
from callboard.text.surrogates import encode_json, escape_surrogates

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(st.characters(exclude_categories=[])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=[])), inner),
)


def test_what_json_carries_is_as_it_was():
    given = {"text": "é \x1b \U0001f600", "of": [1, None, True]}
    assert json.loads(encode_json(given)) == given
    assert b"\n" not in encode_json({"text": "two\nlines"})


def test_names_that_are_not_utf_8():
    assert escape_surrogates("lat\udce9in") == "lat\\udce9in"
    assert json.loads(encode_json({"\udcff": ["a", "\ud800"]})) == {"\\udcff": ["a", "\\ud800"]}
    assert json.loads(encode_json(PromptSent("\udcff"))) == {"type": "prompt_sent", "text": "\\udcff"}


@given(anything)
def test_everything_can_be_written_down(value):
    msgspec.json.decode(encode_json(value))
