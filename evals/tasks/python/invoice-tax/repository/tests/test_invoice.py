from decimal import Decimal

from billing.invoice import Line, gross, net, tax

RATE = Decimal("0.19")


def test_net():
    lines = [Line("paper", Decimal("4.20"), 3), Line("ink", Decimal("12.00"))]
    assert net(lines) == Decimal("24.60")


def test_tax():
    assert tax(Decimal("10.00"), RATE) == Decimal("1.90")


def test_half_a_cent_is_rounded_up():
    assert tax(Decimal("0.50"), Decimal("0.05")) == Decimal("0.03")
    assert tax(Decimal("1.50"), Decimal("0.07")) == Decimal("0.11")


def test_gross():
    assert gross([Line("ink", Decimal("12.00"))], RATE) == Decimal("14.28")
