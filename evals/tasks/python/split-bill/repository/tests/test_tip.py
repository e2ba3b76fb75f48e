from dinner.bill import with_tip


def test_tip():
    assert with_tip(1000, 10) == 100
    assert with_tip(999, 10) == 99
