"""Durations as people write them: 90s, 1h30m, 2d."""

import re

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
PART = re.compile(r"(\d+)([smhd])")


def parse_duration(text):
    """Seconds of a duration such as "1h30m". Raises ValueError for anything else."""
    text = text.strip()
    found = PART.findall(text)
    if not found or PART.sub("", text):
        raise ValueError(f"not a duration: {text!r}")
    seconds = 0
    for number, unit in found:
        seconds += int(number) * UNITS[unit]
    return seconds


def format_duration(seconds):
    """A duration in as few parts as possible: 5400 is "1h30m"."""
    parts = []
    for unit, size in sorted(UNITS.items(), key=lambda item: -item[1]):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
