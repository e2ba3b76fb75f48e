"""Own and foreign validators of one derived schema take and refuse the same, in the same words."""

from __future__ import annotations

import dataclasses
import enum
from typing import Literal

from hypothesis import example, given, settings
from hypothesis import strategies as st

from callboard.schema import ArgumentsInvalid, compile_schema, derive


class Color(enum.Enum):
    RED = "r"
    ONE = 1


@dataclasses.dataclass
class Edit:
    line: int
    text: str | None = None


def tool(  # noqa: PLR0917 - models name them
    s: str,
    i: int,
    f: float,
    b: bool,
    n: int | None,
    u: int | str,
    li: Literal["a", 1],
    c: Color,
    lst: list[int],
    d: dict[str, bool],
    e: list[Edit],
    t: tuple[int, str],
    st: set[int],
): ...


OWN = derive(tool)
FOREIGN = compile_schema(OWN.schema)
FITTING = {"s": "x", "i": 1, "f": 0.5, "b": True, "n": None, "u": 1, "li": "a", "c": "r", "lst": [1], "d": {"k": True},
           "e": [{"line": 1}], "t": [1, "x"], "st": [1, 1]}  # fmt: skip
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(
        ["", "5", "5.0", "5 ", "05", "true", "yes", "null", "a", "r", "1", "[1]", '{"line": "2"}', "NaN", "1e3"]
    )
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["line", "text", "k"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def error_text(validator, arguments):
    try:
        validator.validate(arguments)
    except ArgumentsInvalid as refused:
        return str(refused)
    return "fits"


@settings(max_examples=4 * settings.default.max_examples, deadline=None)
@given(
    st.dictionaries(st.sampled_from([*FITTING, "other"]), VALUES, max_size=4),
    st.sets(st.sampled_from(list(FITTING)), max_size=1),
)
@example({}, set())
def test_both_say_the_same(changed, left_out):
    arguments = {name: value for name, value in {**FITTING, **changed}.items() if name not in left_out}
    assert error_text(OWN, arguments) == error_text(FOREIGN, arguments)
