from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.servers.gateway.circuit_breaker import Breaker, SharedBreaker


def broken(failures=5, pause=30.0, at=100.0, **said):
    breaker = Breaker(failures, pause)
    for _ in range(failures):
        assert breaker.wait(at) == 0
        breaker.failed(at, **said)
    return breaker


def test_it_opens_after_failures_in_a_row():
    breaker = Breaker(5, 30.0)
    for count in range(4):
        breaker.failed(1.0)
        assert (breaker.state(1.0), breaker.wait(1.0), breaker.failures) == ("closed", 0, count + 1)
    breaker.failed(1.0)
    assert (breaker.state(1.0), breaker.wait(1.0), breaker.wait(21.0)) == ("open", 30, 10)


def test_a_success_between_begins_the_count_anew():
    breaker = Breaker(2, 30.0)
    for _ in range(9):
        breaker.failed(1.0)
        breaker.succeeded()
    assert (breaker.state(1.0), breaker.failures) == ("closed", 0)


def test_what_teaches_nothing_is_not_counted():
    breaker = Breaker(2, 30.0)
    for _ in range(9):
        breaker.left()
    assert breaker.state(1.0) == "closed"


def test_one_probe_after_the_pause():
    breaker = broken()
    assert breaker.state(130.0) == "half-open"
    assert breaker.wait(130.0) == 0
    assert breaker.wait(131.0) == 29  # the others wait for it
    breaker.succeeded()
    assert (breaker.state(131.0), breaker.wait(131.0), breaker.wait(131.0)) == ("closed", 0, 0)


def test_a_probe_that_fails_opens_it_again():
    breaker = broken()
    assert breaker.wait(130.0) == 0
    breaker.failed(140.0)
    assert (breaker.state(140.0), breaker.wait(140.0)) == ("open", 30)


def test_a_probe_whose_client_left_is_another_s():
    breaker = broken()
    assert breaker.wait(130.0) == 0
    breaker.left()
    assert breaker.wait(130.5) == 0


def test_a_probe_that_is_never_heard_of_is_forgotten():
    breaker = broken()
    assert breaker.wait(130.0) == 0
    assert breaker.wait(159.5) == 0.5
    assert breaker.wait(160.0) == 0
    assert breaker.wait(160.0) == 30


@pytest.mark.parametrize(("asked", "waits"), [(None, 30), (0.0, 30), (5.0, 30), (90.0, 90)])
def test_a_backend_may_ask_for_a_longer_pause(asked, waits):
    assert broken(retry_after=asked).wait(100.0) == waits


def test_a_backend_cannot_ask_to_be_left_alone_for_ever():
    assert broken(retry_after=1e12).wait(100.0) <= 3600


def test_sums_of_floats_do_not_make_the_pause_longer():
    breaker = Breaker(1, 30.0)
    now = 1.449430295949341 + 26.563821202139806 + 49.08168155458868 + 50.0 + 50.0 + 49.33398702994049
    breaker.failed(now)
    assert breaker.wait(now) == 30.0


@given(st.lists(st.tuples(st.sampled_from(["ask", "succeeded", "failed", "left"]), st.floats(0, 50)), max_size=60))
def test_it_never_waits_for_ever_and_never_stays_open(steps):
    breaker, now, open_probes = Breaker(3, 30.0), 0.0, 0
    for what, passed in steps:
        now += passed
        state = breaker.state(now)
        match what:
            case "ask":
                wait = breaker.wait(now)
                assert 0 <= wait <= 30
                if state == "closed":
                    assert wait == 0
                if state == "open":
                    assert wait > 0
                open_probes += wait == 0 and state == "half-open"
            case "failed":
                breaker.failed(now)
            case _:
                getattr(breaker, what)()
        assert breaker.state(now) == "closed" or breaker.failures >= 3
    assert breaker.wait(now + 61) == 0


def shared(*failed, failures=5, doubtful=False, apart=True):
    breaker = SharedBreaker(failures, 30.0, shared=apart)
    for owner in failed:
        breaker.failed(100.0, owner, doubtful=doubtful)
    return breaker


def open_for(breaker, *owners, now=100.0):
    return [owner for owner in owners if breaker.wait(now, owner)]


@pytest.mark.parametrize("count", [5, 50])
def test_one_client_s_failures_keep_the_backend_from_that_client_alone(count):
    breaker = shared(*["ann"] * count)
    assert open_for(breaker, "ann", "bob", "eve") == ["ann"]
    assert breaker.state(100.0) == "closed"  # for a load balancer
    assert shared(*["ann"] * count, apart=False).state(100.0) == "open"  # where she is all that there is


@pytest.mark.parametrize(
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
@pytest.mark.parametrize("doubtful", [False, True])
def test_failures_that_several_clients_saw_are_the_backend_s(failed, failures, opens, doubtful):
    breaker = shared(*failed, failures=failures, doubtful=doubtful)
    assert (breaker.state(100.0) == "open", bool(breaker.wait(100.0, "new"))) == (opens, opens)
    assert breaker.failures == len(failed)


def test_a_reply_to_anybody_disproves_what_was_counted():
    breaker = shared(*"aaaaabb")
    breaker.succeeded()
    assert (open_for(breaker, "a", "b", "c"), breaker.failures, breaker.state(100.0)) == ([], 0, "closed")


def test_answers_that_a_request_may_have_caused_count_half():
    assert open_for(shared(*"a" * 9, doubtful=True), "a") == []
    assert open_for(shared(*"a" * 10, doubtful=True), "a", "b") == ["a"]


def test_after_the_pause_one_request_of_all_tries():
    breaker = shared(*"aaabb")
    assert breaker.wait(130.0, "c") == 0
    assert open_for(breaker, "a", "b", "c", now=130.0) == ["a", "b", "c"]
    breaker.failed(131.0, "c")
    assert (breaker.state(131.0), breaker.wait(131.0, "d")) == ("open", 30)
    breaker.left("d")
    assert breaker.wait(161.0, "d") == 0
    breaker.succeeded()
    assert open_for(breaker, "a", "b", "c", "d", now=161.0) == []


def test_clients_that_are_made_up_cost_no_lasting_memory():
    breaker = shared(*[f"client-{number}" for number in range(5000)], failures=10**6)
    assert len(breaker._owners) <= 256
