"""The form of a thought before a call: a line with the tool's name or `none`, and a line with the values.

It is the same in every dialect: what asks for it, what takes it out of a reply and what holds a reply to it agree here.
"""

from __future__ import annotations

from typing import Final

NAMES: Final = "Function:"
VALUES: Final = "Key args:"
NO_FUNCTION: Final = "none"

CHARACTERS_PER_TOKEN: Final = 4
"""How many characters of the values a token is counted for."""


def write_thought_form(tokens: int) -> str:
    """What the model is told of the form.

    Args:
        tokens: How long the thought may be; a word of the values has about two.
    """
    return (
        f'Begin with a line "{NAMES} " and the name of the one tool that does what is asked, or "{NAMES} {NO_FUNCTION}". '
        f'For a tool a second line follows, "{VALUES} " and its values in at most {max(4, tokens // 2)} words. '
        f"Then call the tool; without one, answer in words."
    )
