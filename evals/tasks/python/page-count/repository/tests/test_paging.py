import pytest

from catalogue.paging import links, page, page_count


def test_a_last_page_that_is_not_full():
    assert page_count(21, 10) == 3


def test_a_full_last_page():
    assert page_count(20, 10) == 2
    assert links(20, 10, 2) == (1, None)


def test_nothing():
    assert page_count(0, 10) == 0


def test_a_page():
    assert page(list("abcdefg"), 2, 3) == ["d", "e", "f"]
    assert page(list("abcdefg"), 3, 3) == ["g"]


def test_links():
    assert links(21, 10, 1) == (None, 2)
    assert links(21, 10, 2) == (1, 3)


def test_a_page_of_nothing():
    with pytest.raises(ValueError):
        page_count(5, 0)
