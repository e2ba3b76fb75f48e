import pytest

from callboard.mcp.connection_state import RETRY_SECONDS, ConnectionState


def fed(*happenings):
    standing = ConnectionState()
    for happening in happenings:
        standing.feed(happening, 100.0)
    return standing


@pytest.mark.parametrize(
    ("happenings", "state"),
    [
        ((), "idle"),
        (("trying",), "connecting"),
        (("trying", "opened"), "ready"),
        (("trying", "opened", "answered"), "ready"),
        (("trying", "opened", "lost"), "backoff"),
        (("trying", "opened", "lost", "trying"), "connecting"),
        (("trying", "refused"), "backoff"),
        (("trying", "failed"), "failed"),
        (("trying", "failed", "started"), "idle"),
        (("trying", "closed"), "idle"),
        (("trying", "opened", "closed"), "idle"),
    ],
)
def test_states(happenings, state):
    assert fed(*happenings).state == state


@pytest.mark.parametrize("happenings", [("opened",), ("trying", "trying"), ("trying", "failed", "trying")])
def test_what_cannot_happen(happenings):
    with pytest.raises(KeyError):
        fed(*happenings)


def test_each_failure_in_a_row_waits_longer():
    standing = fed("trying", "refused")
    waits = [standing.seconds_until_retry(100.0)]
    for _ in range(8):
        standing.feed("trying", 100.0)
        standing.feed("refused", 100.0)
        waits.append(standing.seconds_until_retry(100.0))
    assert waits == [0, 1, 2, 4, 8, 16, 30, 30, 30]
    assert waits[: len(RETRY_SECONDS)] == list(RETRY_SECONDS)
    assert standing.seconds_until_retry(110.0) == 20
    assert standing.seconds_until_retry(200.0) == 0


def test_a_connection_is_a_success_when_it_answered():
    crashing = ("trying", "opened", "lost") * 3
    assert fed(*crashing).seconds_until_retry(100.0) == 2
    assert fed(*crashing, "trying", "opened", "answered", "lost").seconds_until_retry(100.0) == 0


def test_who_starts_it_need_not_wait():
    assert fed("trying", "refused", "trying", "refused", "started").seconds_until_retry(100.0) == 0
