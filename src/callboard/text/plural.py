"""A number with its noun."""


def format_count(number: int, noun: str) -> str:
    """Return the number with its noun, such as `1 call` or `1,200 calls`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
