import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from callboard.coding.jobs.json_encoding import carried, encoded
from callboard.coding.jobs.log import Prompted, replayed

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(st.characters(exclude_categories=[])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=[])), inner),
)


def test_what_json_carries_is_as_it_was():
    given = {"text": "é \x1b \U0001f600", "of": [1, None, True]}
    assert json.loads(encoded(given)) == given
    assert b"\n" not in encoded({"text": "two\nlines"})


def test_names_that_are_not_utf_8():
    assert carried("lat\udce9in") == "lat\\udce9in"
    assert json.loads(encoded({"\udcff": ["a", "\ud800"]})) == {"\\udcff": ["a", "\\ud800"]}
    assert json.loads(encoded(Prompted("\udcff"))) == {"type": "prompted", "text": "\\udcff"}


@given(anything)
def test_everything_can_be_written_down(value):
    msgspec.json.decode(encoded(value))


def test_such_a_step_replays(tmp_path):
    (tmp_path / "events.jsonl").write_bytes(encoded(Prompted("\udcff")) + b"\n")
    assert [*replayed(tmp_path)] == [Prompted("\\udcff")]
