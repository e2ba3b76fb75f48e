"""Who pays how much of a bill, in cents."""


def with_tip(cents, percent):
    """The tip on a bill, in whole cents, rounded down."""
    return cents * percent // 100


def split_bill(cents, guests, tip=0):
    """What each guest pays, as a list whose sum is the bill and its tip.

    The shares differ by at most one cent; those who pay the cent more come first. `tip` is in percent.
    Raises ValueError without guests or for a bill below zero.
    """
    if guests < 1:
        raise ValueError("somebody has to pay")
    if cents < 0:
        raise ValueError("a bill is not below zero")
    total = cents + with_tip(cents, tip)
    share, rest = divmod(total, guests)
    return [share + 1 if guest < rest else share for guest in range(guests)]
