from __future__ import annotations

from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers
from tests.tables import table

from callboard.servers.gateway import BackendSettings, GatewaySettings
from callboard.servers.gateway.auth import Authenticator, TokenBucket, digest, mask_key, read_token, short_owner
from callboard.servers.gateway.http_errors import HttpError
from callboard.testing import FakeBackend

ASK = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def callers(clock=lambda: 0.0, **settings):
    return Authenticator(GatewaySettings(backends=(BackendSettings(url="http://x"),), **settings), clock)


def refused(there, headers=None, token=""):
    with pytest.raises(HttpError) as caught:
        there.authenticate(Headers(headers or {}), token)
    return caught.value


def test_without_keys_everybody_may_ask():
    there = callers()
    assert there.authenticate(Headers({}), "") is there.authenticate(Headers({}), "anything")


def test_a_key_is_known_by_its_digest():
    there = callers(keys={"ann": digest("sk-ann-123"), "bob": digest("sk-bob-123")})
    assert there.authenticate(Headers({}), "sk-ann-123").name == "ann"
    assert there.authenticate(Headers({}), "sk-bob-123").name == "bob"
    assert "sk-ann" not in repr(vars(there))


@table(
    ("token", "status", "code"),
    [
        ("", 401, "missing_api_key"),
        ("sk-eve-123", 401, "invalid_api_key"),
        (digest("sk-ann-123"), 401, "invalid_api_key"),
        ("é\udcff", 401, "invalid_api_key"),
    ],
)
def test_a_key_that_is_not_known(token, status, code):
    refusal = refused(callers(keys={"ann": digest("sk-ann-123")}), token=token)
    assert (refusal.status, refusal.failure.code) == (status, code)
    assert not token or token not in refusal.failure.message


@table(
    ("headers", "token"),
    [
        ({"authorization": "Bearer sk-1"}, "sk-1"),
        ({"authorization": "bearer  sk-1 "}, "sk-1"),
        ({"authorization": "sk-1"}, "sk-1"),
        ({"x-api-key": " sk-2 "}, "sk-2"),
        ({"authorization": "Bearer sk-1", "x-api-key": "sk-2"}, "sk-1"),
        ({"authorization": "", "x-api-key": "sk-2"}, "sk-2"),
        ({"authorization": "Bearer"}, ""),
        ({}, ""),
    ],
)
def test_where_a_key_stands(headers, token):
    assert read_token(Headers(headers)) == token


@given(st.text())
def test_a_masked_key_keeps_its_secret(key):
    shown = mask_key(key)
    assert shown == ("none" if not key else "***" if len(key) < 24 else f"{key[:6]}...{key[-4:]}")
    assert len(shown) <= 13


def test_nothing_is_shown_of_a_short_key():
    assert [mask_key("s" * length) for length in (1, 13, 23)] == ["***"] * 3
    assert mask_key("abcdef" + "-" * 14 + "wxyz") == "abcdef...wxyz"


@given(st.text(min_size=1))
def test_an_owner_without_a_name_is_the_beginning_of_a_digest(key):
    assert short_owner(f"client-{digest(key)}") == f"client-{digest(key)[:8]}"
    assert short_owner(f"key-{digest(key)}") == f"key-{digest(key)[:8]}"


async def test_the_log_has_the_name_of_a_key_and_never_the_key(serving, caplog):
    key = "sk-alice-0123456789-abcdef-wxyz"

    with caplog.at_level("INFO", "callboard.gateway"):
        async with FakeBackend(["Hello"]) as backend, serving(backend, keys={"alice": digest(key)}) as served:
            for token in (key, "sk-of-a-stranger-0123456789"):
                await served.post("chat", ASK, {"authorization": f"Bearer {token}"})
            await served.post("chat", ASK)
    lines = [each.getMessage() for each in caplog.records if ", key " in each.getMessage()]
    assert [line.rpartition(", ")[2] for line in lines] == ["key alice", "key unknown", "key none"]
    assert not any("sk-" in line or "wxyz" in line for line in lines)


def test_a_name_is_shown_whole():
    assert [short_owner(name) for name in ("alice", "client-alice", "key-0123456789abcdef", "")] == [
        "alice",
        "client-alice",
        "key-0123456789abcdef",
        "",
    ]


def test_owners_are_told_apart_by_name_or_by_their_own_key():
    keyed = callers(keys={"ann": digest("sk-ann-123"), "bob": digest("sk-bob-123")})
    assert keyed.owner(keyed.authenticate(Headers({}), "sk-ann-123"), "sk-ann-123") == "ann"
    open_to_all = callers()
    anyone = open_to_all.authenticate(Headers({}), "sk-1")
    owners = {open_to_all.owner(anyone, token) for token in ("", "sk-1", "sk-2", "client-", digest("sk-1"))}
    assert len(owners) == 5
    assert open_to_all.owner(anyone, "sk-1") == open_to_all.owner(anyone, "sk-1")
    assert "sk-1" not in str(owners)


def test_a_bucket_holds_a_minute_and_fills_again():
    now = [0.0]
    bucket = TokenBucket(30, lambda: now[0])
    assert [bucket.take() for _ in range(30)] == [0.0] * 30
    assert bucket.take() == 2.0
    now[0] = 1.5
    assert bucket.take() == 0.5
    now[0] = 2.0
    assert (bucket.take(), bucket.take()) == (0.0, 2.0)
    now[0] = 1e6
    assert [bucket.take() for _ in range(31)] == [0.0] * 30 + [2.0]


@table("rate", [0.01, 0.5])
def test_a_bucket_of_less_than_one_a_minute(rate):
    now = [0.0]
    bucket = TokenBucket(rate, lambda: now[0])
    assert bucket.take() == 0
    now[0] += bucket.take()
    assert bucket.take() == pytest.approx(0, abs=1e-6)


async def test_rates_and_places_are_one_key_s_own():
    there = callers(
        keys={"ann": digest("sk-ann-123"), "bob": digest("sk-bob-123")}, requests_per_minute=2, max_concurrent=1
    )
    ann, bob = (there.authenticate(Headers({}), f"sk-{name}-123") for name in ("ann", "bob"))
    with ann:
        await ann.count()
        with pytest.raises(HttpError) as caught, ann:
            pass
        assert (caught.value.status, caught.value.headers) == (429, {"link": ANY, "retry-after": "1"})
        with bob:
            await bob.count()
            assert (ann.open, bob.open) == (1, 1)
    await ann.count()
    with pytest.raises(HttpError) as caught, ann:
        await ann.count()
    assert (caught.value.failure.code, caught.value.headers) == (
        "rate_limit_exceeded",
        {"link": ANY, "retry-after": "30"},
    )
    assert "try again in 30.0s" in caught.value.failure.message  # Codex reads the seconds out of it
    assert (ann.open, bob.open) == (0, 0)


def test_what_fails_inside_gives_its_place_back():
    there = callers(max_concurrent=1).authenticate(Headers({}), "")
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), there:
            1 / 0  # noqa: B018
    assert there.open == 0


@table("allowed", [False, True])
def test_web_pages_may_not_ask_unless_they_are_named(allowed):
    there = callers(origins=("https://app.example",) if allowed else ())
    headers = {"origin": "https://app.example"}
    if allowed:
        assert there.authenticate(Headers(headers), "")
    else:
        assert refused(there, headers).failure.code == "origin_not_allowed"
    assert refused(there, {"origin": "null"}).status == 403
    assert refused(there, {"origin": ""}).status == 403


@table(
    ("host", "known"),
    [
        ("localhost:8282", True),
        ("LOCALHOST", True),
        ("127.0.0.1", True),
        ("[::1]:8282", True),
        ("Gateway.Example:443", True),
        ("evil.example", False),
        ("127.0.0.1:1@evil", False),
        ("127.0.0.1:8282@evil.example:80", False),
        ("localhost:80:80", False),
        ("[::1]evil.example", False),
        ("localhost/evil.example", False),
        ("localhost.evil.example", False),
        ("[::2]:8282", False),
        ("", False),
    ],
)
def test_a_name_that_is_not_the_gateway_s(host, known):
    there = callers(hosts=("localhost", "127.0.0.1", "[::1]", "Gateway.Example"))
    if known:
        assert there.authenticate(Headers({"host": host}), "")
    else:
        assert refused(there, {"host": host}).failure.code == "host_not_allowed"
