from callboard.mcp.connection_state import RETRY_SECONDS, Backoff


def test_each_failure_in_a_row_waits_longer():
    backoff = Backoff()
    waits = []
    for _ in range(9):
        backoff.fail(100.0)
        waits.append(backoff.seconds_until_retry(100.0))
    assert waits == [0, 1, 2, 4, 8, 16, 30, 30, 30]
    assert waits[: len(RETRY_SECONDS)] == list(RETRY_SECONDS)
    assert backoff.seconds_until_retry(110.0) == 20
    assert backoff.seconds_until_retry(200.0) == 0


def test_a_connection_is_a_success_when_it_answered():
    backoff = Backoff()
    for _ in range(3):
        backoff.fail(100.0)
    assert backoff.seconds_until_retry(100.0) == 2
    backoff.reset()
    backoff.fail(100.0)
    assert backoff.seconds_until_retry(100.0) == 0


def test_who_starts_it_need_not_wait():
    backoff = Backoff()
    backoff.fail(100.0)
    backoff.fail(100.0)
    backoff.skip(100.0)
    assert backoff.seconds_until_retry(100.0) == 0
