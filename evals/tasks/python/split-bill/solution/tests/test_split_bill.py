import pytest

from dinner.bill import split_bill


def test_even():
    assert split_bill(900, 3) == [300, 300, 300]


def test_odd():
    assert split_bill(1000, 3) == [334, 333, 333]
    assert sum(split_bill(1001, 7)) == 1001


def test_tip():
    assert split_bill(1000, 2, tip=10) == [550, 550]


@pytest.mark.parametrize(("cents", "guests"), [(1000, 0), (1000, -1), (-1, 2)])
def test_refused(cents, guests):
    with pytest.raises(ValueError):
        split_bill(cents, guests)
