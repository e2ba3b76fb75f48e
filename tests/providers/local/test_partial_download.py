from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from callboard.providers.local.partial_download import Partial


@given(visits=st.lists(st.lists(st.binary())))
def test_any_split_over_any_visits_gives_the_same_file_and_hash(visits, tmp_path_factory):
    path = tmp_path_factory.mktemp("partial") / "a.partial"
    whole = b"".join(block for visit in visits for block in visit)
    for blocks in visits:
        with Partial(path) as partial:
            for block in blocks:
                partial.append(block)
    with Partial(path) as partial:
        assert (partial.size, partial.sha256()) == (len(whole), hashlib.sha256(whole).hexdigest())
    assert path.read_bytes() == whole


def test_begun_again_it_is_empty(tmp_path):
    with Partial(tmp_path / "a.partial") as partial:
        partial.append(b"wrong")
        partial.begin_again()
        partial.append(b"right")
        assert (partial.size, partial.sha256()) == (5, hashlib.sha256(b"right").hexdigest())
    assert (tmp_path / "a.partial").read_bytes() == b"right"
