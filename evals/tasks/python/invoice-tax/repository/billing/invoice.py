"""Sums of invoices, in Decimal."""

from dataclasses import dataclass
from decimal import Decimal

CENT = Decimal("0.01")


@dataclass(frozen=True)
class Line:
    title: str
    price: Decimal
    quantity: int = 1

    @property
    def amount(self):
        return self.price * self.quantity


def net(lines):
    """What the lines cost without tax."""
    return sum((line.amount for line in lines), Decimal(0))


def tax(amount, rate):
    """The tax on an amount, in whole cents."""
    return (amount * rate).quantize(CENT)


def gross(lines, rate):
    """What is to be paid."""
    total = net(lines)
    return total + tax(total, rate)
