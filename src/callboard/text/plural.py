"""A number with its noun."""


def format_count(number: int, noun: str) -> str:
    """Return the number with its noun, such as `1 call`, `1,200 calls` or `2 entries`."""
    several = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else several}"
