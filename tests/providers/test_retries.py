from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.providers.retries import backoff, read_retry_after

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@table(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": " 0.25 "}, 0.25),
        ({"Retry-After": "Thu, 01 Jan 2026 00:00:09 GMT"}, 9.0),
        ({"Retry-After": "Thu, 01 Jan 2026 00:00:09 -0000"}, 9.0),
        ({"Retry-After": "Wed, 31 Dec 2025 00:00:00 GMT"}, 0.0),
        ({"retry-after-ms": "1500", "Retry-After": "2"}, 1.5),
        ({"retry-after-ms": "soon", "Retry-After": "2"}, 2.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "\N{ARABIC-INDIC DIGIT ONE}"}, None),
        ({"Retry-After": "."}, None),
    ],
)
def test_what_an_answer_asks_for(headers, seconds):
    assert read_retry_after(headers, NOW) == seconds


@given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} \d+ \d+:\d+:\d+ ([+-]\d+|GMT)", fullmatch=True))
def test_nothing_that_a_server_asks_for_is_an_exception(text):
    assert (read_retry_after({"Retry-After": text, "retry-after-ms": text}, NOW) or 0.0) >= 0.0


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_the_pauses_are_bounded(attempt, jitter):
    assert 0.25 <= backoff(attempt, jitter) <= 8.0
