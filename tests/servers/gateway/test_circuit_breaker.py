from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.servers.gateway.circuit_breaker import CircuitBreaker, SharedCircuitBreaker


def broken(failures=5, pause=30.0, at=100.0, **said):
    breaker = CircuitBreaker(failures, pause)
    for _ in range(failures):
        assert breaker.seconds_to_wait(at) == 0
        breaker.record_failure(at, **said)
    return breaker


def test_it_opens_after_failures_in_a_row():
    breaker = CircuitBreaker(5, 30.0)
    for count in range(4):
        breaker.record_failure(1.0)
        assert (breaker.state(1.0), breaker.seconds_to_wait(1.0), breaker.failures) == ("closed", 0, count + 1)
    breaker.record_failure(1.0)
    assert (breaker.state(1.0), breaker.seconds_to_wait(1.0), breaker.seconds_to_wait(21.0)) == ("open", 30, 10)


def test_a_success_between_begins_the_count_anew():
    breaker = CircuitBreaker(2, 30.0)
    for _ in range(9):
        breaker.record_failure(1.0)
        breaker.record_success()
    assert (breaker.state(1.0), breaker.failures) == ("closed", 0)


def test_what_teaches_nothing_is_not_counted():
    breaker = CircuitBreaker(2, 30.0)
    for _ in range(9):
        breaker.release()
    assert breaker.state(1.0) == "closed"


def test_one_probe_after_the_pause():
    breaker = broken()
    assert breaker.state(130.0) == "half-open"
    assert breaker.seconds_to_wait(130.0) == 0
    assert breaker.seconds_to_wait(131.0) == 29  # the others wait for it
    breaker.record_success()
    assert (breaker.state(131.0), breaker.seconds_to_wait(131.0), breaker.seconds_to_wait(131.0)) == ("closed", 0, 0)


def test_a_probe_that_fails_opens_it_again():
    breaker = broken()
    assert breaker.seconds_to_wait(130.0) == 0
    breaker.record_failure(140.0)
    assert (breaker.state(140.0), breaker.seconds_to_wait(140.0)) == ("open", 30)


def test_a_probe_whose_client_left_is_another_s():
    breaker = broken()
    assert breaker.seconds_to_wait(130.0) == 0
    breaker.release()
    assert breaker.seconds_to_wait(130.5) == 0


def test_a_probe_that_is_never_heard_of_is_forgotten():
    breaker = broken()
    assert breaker.seconds_to_wait(130.0) == 0
    assert breaker.seconds_to_wait(159.5) == 0.5
    assert breaker.seconds_to_wait(160.0) == 0
    assert breaker.seconds_to_wait(160.0) == 30


@table(("asked", "waits"), [(None, 30), (0.0, 30), (5.0, 30), (90.0, 90)])
def test_a_backend_may_ask_for_a_longer_pause(asked, waits):
    assert broken(retry_after=asked).seconds_to_wait(100.0) == waits


def test_a_backend_cannot_ask_to_be_left_alone_for_ever():
    assert broken(retry_after=1e12).seconds_to_wait(100.0) <= 3600


def test_sums_of_floats_do_not_make_the_pause_longer():
    breaker = CircuitBreaker(1, 30.0)
    now = 1.449430295949341 + 26.563821202139806 + 49.08168155458868 + 50.0 + 50.0 + 49.33398702994049
    breaker.record_failure(now)
    assert breaker.seconds_to_wait(now) == 30.0


@given(
    st.lists(
        st.tuples(st.sampled_from(["ask", "record_success", "record_failure", "release"]), st.floats(0, 50)),
        max_size=60,
    )
)
def test_it_never_waits_for_ever_and_never_stays_open(steps):
    breaker, now, open_probes = CircuitBreaker(3, 30.0), 0.0, 0
    for what, passed in steps:
        now += passed
        state = breaker.state(now)
        match what:
            case "ask":
                wait = breaker.seconds_to_wait(now)
                assert 0 <= wait <= 30
                if state == "closed":
                    assert wait == 0
                if state == "open":
                    assert wait > 0
                open_probes += wait == 0 and state == "half-open"
            case "record_failure":
                breaker.record_failure(now)
            case _:
                getattr(breaker, what)()
        assert breaker.state(now) == "closed" or breaker.failures >= 3
    assert breaker.seconds_to_wait(now + 61) == 0


def shared(*failed, failures=5, doubtful=False, apart=True):
    breaker = SharedCircuitBreaker(failures, 30.0, shared=apart)
    for owner in failed:
        breaker.record_failure(100.0, owner, doubtful=doubtful)
    return breaker


def open_for(breaker, *owners, now=100.0):
    return [owner for owner in owners if breaker.seconds_to_wait(now, owner)]


@table("count", [5, 50])
def test_one_client_s_failures_keep_the_backend_from_that_client_alone(count):
    breaker = shared(*["ann"] * count)
    assert open_for(breaker, "ann", "bob", "eve") == ["ann"]
    assert breaker.state(100.0) == "closed"  # for a load balancer
    assert shared(*["ann"] * count, apart=False).state(100.0) == "open"  # where she is all that there is


@table(
    ("failed", "failures", "opens"),
    [
        ("aaab", 5, False),
        ("aaaaaaaab", 5, False),  # of one client no more than half is counted
        ("aaabb", 5, True),
        ("abcde", 5, True),
        ("ab", 2, True),
        ("aa", 2, False),
        ("ab", 1, True),
        ("aaaaabb", 4, True),
    ],
)
@table("doubtful", [False, True])
def test_failures_that_several_clients_saw_are_the_backend_s(failed, failures, opens, doubtful):
    breaker = shared(*failed, failures=failures, doubtful=doubtful)
    assert (breaker.state(100.0) == "open", bool(breaker.seconds_to_wait(100.0, "new"))) == (opens, opens)
    assert breaker.failures == len(failed)


def test_a_reply_to_anybody_disproves_what_was_counted():
    breaker = shared(*"aaaaabb")
    breaker.record_success()
    assert (open_for(breaker, "a", "b", "c"), breaker.failures, breaker.state(100.0)) == ([], 0, "closed")


def test_answers_that_a_request_may_have_caused_count_half():
    assert open_for(shared(*"a" * 9, doubtful=True), "a") == []
    assert open_for(shared(*"a" * 10, doubtful=True), "a", "b") == ["a"]


def test_after_the_pause_one_request_of_all_tries():
    breaker = shared(*"aaabb")
    assert breaker.seconds_to_wait(130.0, "c") == 0
    assert open_for(breaker, "a", "b", "c", now=130.0) == ["a", "b", "c"]
    breaker.record_failure(131.0, "c")
    assert (breaker.state(131.0), breaker.seconds_to_wait(131.0, "d")) == ("open", 30)
    breaker.release("d")
    assert breaker.seconds_to_wait(161.0, "d") == 0
    breaker.record_success()
    assert open_for(breaker, "a", "b", "c", "d", now=161.0) == []


def test_clients_that_are_made_up_cost_no_lasting_memory():
    breaker = shared(*[f"client-{number}" for number in range(5000)], failures=10**6)
    assert len(breaker._owners) <= 256
