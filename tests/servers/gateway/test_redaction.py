"""Secrets of the settings: no error, header or log line repeats them."""

from __future__ import annotations

import base64
import json
import logging
import socket
from urllib.parse import quote

import pytest
from tests.servers.gateway.fronts import FRONTS, request
from tests.tables import table

from callboard.core import ReplyFailed, TextPiece
from callboard.servers.gateway import BackendSettings
from callboard.servers.gateway.auth import digest
from callboard.servers.gateway.redaction import Redactor
from callboard.testing import FakeBackend, Raw, StatusReply

KEY = 'sk-UPSTREAM/SECRET+0123"456789'


def basic(user, password):
    return base64.b64encode(f"{user}:{password}".encode()).decode()


SPELLINGS = {
    "plain": KEY,
    "JSON": json.dumps(KEY)[1:-1],
    "JSON twice": json.dumps(json.dumps(KEY)[1:-1])[1:-1],
    "JSON with escapes": "".join(f"\\u{ord(each):04x}" for each in KEY),
    "JSON of PHP": KEY.replace('"', '\\"').replace("/", "\\/"),
    "a URL": quote(KEY, safe=""),
    "a URL in lower case": "".join(f"%{ord(each):02x}" for each in KEY),
}


def leaks(text, secret=KEY):
    """Whether eight characters of the secret stand in the text one after the other."""
    return [secret[at : at + 8] for at in range(len(secret) - 7) if secret[at : at + 8] in text]


@table("spelling", SPELLINGS)
def test_a_secret_is_found_however_it_is_spelled(spelling):
    written = SPELLINGS[spelling]
    told = Redactor([KEY]).text(f"Bearer {written} was refused")
    assert "***" in told
    assert told.startswith("Bearer ")
    assert told.endswith(" was refused")
    assert len(told) < 50


@table("length", range(4, len(KEY)))
def test_the_beginning_of_a_secret_where_a_text_was_cut_is_masked(length):
    assert Redactor([KEY]).text(f"refused: {KEY[:length]}") == "refused: ***"


@table("secret", ["", "abc", "EMPTY", "ollama", "sk-no-key-required"])
def test_words_that_are_no_secrets_are_told(secret):
    assert Redactor([secret]).text(f"ollama: {secret} abc EMPTY") == f"ollama: {secret} abc EMPTY"


# Through the gateway.


def refusals(secret):
    """Answers of a backend that repeats what it was asked with."""
    body = {"error": {"message": f"Incorrect API key provided: {secret}", "code": f"bad {secret}", "type": secret}}
    return {
        "an error": StatusReply(401, body),
        "an error of the server": StatusReply(500, body),
        "with no message": StatusReply(400, {"error": {"message": {"headers": {"authorization": secret}}}}),
        "escaped": StatusReply(
            400, json.dumps(body).replace(secret, "".join(f"\\u{ord(each):04X}" for each in secret)).encode()
        ),
        "cut": StatusReply(400, {"error": {"message": "x" * 480 + secret}}),
        "plain": StatusReply(403, f"no such key: {secret}"),
        "no JSON": StatusReply(200, f"no such key: {secret}"),
        "a header": StatusReply(
            429, body, {"x-request-id": f"req-{secret}", "request-id": secret, "Retry-After": secret}
        ),
        "in a stream": Raw([{"choices": [{"index": 0, "delta": {"content": "Hel"}}]}, body]),
    }


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("place", ["key", "header", "password"])
async def test_no_error_header_or_log_line_holds_the_backends_key(serving, behind, caplog, front, place):
    secret = "sk-UPSTREAM-SECRET-0123456789"  # as it can stand in a header's value
    caplog.set_level(logging.DEBUG, logger="callboard")

    answers = []
    for stream in (False, True):
        replies = [*refusals(secret).values()]
        if place == "password":
            replies += refusals(basic("operator", secret)).values()
        async with FakeBackend(replies) as backend:
            url = backend.url
            settings = {
                "key": {"key": secret},
                "header": {"headers": {"x-team-auth": f"Token {secret}", "x-title": "Hel"}},
                "password": {"url": url.replace("://", f"://operator:{secret}@")},
            }[place]
            async with serving(behind(backend, **{"url": url, **settings}), failure_threshold=1000) as served:
                answers += [await served.post(front, request(front, stream=stream)) for _ in replies]
                answers += [await served.get(path) for path in ("/health", "/metrics", "/v1/models")]
    outcome = answers
    for answer in outcome:
        text = answer.text
        assert not leaks(text, secret), text
        assert not leaks(str(dict(answer.headers)), secret)
        assert not leaks(text, base64.b64encode(secret.encode()).decode()[:-4])
    assert not leaks(caplog.text, secret)
    assert "Incorrect API key provided: ***" in caplog.text or place == "password"


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_clients_do_not_learn_the_addresses_of_backends(serving, behind, caplog, front, stream):
    """Neither by an error, nor by a redirect, nor by /health without a key; the log says it."""
    key = "key-of-ann-12345678"
    silent = socket.socket()  # bound while the test runs, so that no other server gets its port; it does not listen
    silent.bind(("127.0.0.1", 0))
    nowhere = f"127.0.0.1:{silent.getsockname()[1]}"

    with silent:
        redirect = StatusReply(307, "", {"Location": "http://internal.example:8443/login"})
        told = StatusReply(404, {"error": {"message": "no route for http://{}/v1/chat at {}"}})
        async with FakeBackend(lambda _: redirect) as first, FakeBackend(lambda _: told) as third:
            settings = [
                behind(first, models=("a",)),
                BackendSettings(url=f"http://operator:s3cret-word@{nowhere}/v1", models=("b",)),
                behind(third, models=("c",), name="lab"),
            ]
            address = third.url.removeprefix("http://").removesuffix("/v1")
            told.body["error"]["message"] = told.body["error"]["message"].format(address, address)
            async with serving(*settings, keys={"ann": digest(key)}) as served:
                ask = request(front, stream=stream)
                headers = {"authorization": f"Bearer {key}"}
                answers = [await served.post(front, {**ask, "model": name}, headers) for name in "abc"]
                health = [await served.get("/health"), await served.get("/health", **headers)]
            (open_health, health), addresses = health, [first.url, address]
    for answer in [*answers, open_health]:
        assert answer.status >= 200
        for place in ("internal.example", nowhere, "127.0.0.1", "s3cret", *addresses):
            assert place not in answer.text, answer.text
    assert "redirects are not followed" in answers[0].text
    assert "the backend: cannot connect" in answers[1].text
    assert "no route for the backend at the backend" in answers[2].text
    assert [each["name"] for each in open_health.body["backends"]] == ["backend-1", "backend-2", "backend-3"]
    assert [each["name"] for each in health.body["backends"]][1:] == [nowhere, "lab"]
    assert "internal.example" in caplog.text
    assert nowhere in caplog.text
    assert "s3cret" not in caplog.text


async def test_a_clients_own_key_is_in_no_log_line(serving, caplog):
    key = "sk-of-a-client-0123456789"
    caplog.set_level(logging.DEBUG, logger="callboard")
    replies = [StatusReply(code, {"error": {"message": f"refused: Bearer {key}"}}) for code in (401, 500, 503)]
    async with FakeBackend(replies) as backend, serving(backend) as served:
        for _ in replies:
            await served.post("chat", request("chat"), {"authorization": f"Bearer {key}"})
    assert "failed: 'refused: Bearer ***'" in caplog.text
    assert key not in caplog.text


async def test_a_traceback_in_the_log_has_no_secret(serving, behind, caplog):
    async with FakeBackend([]) as backend, serving(behind(backend, key=KEY)):
        try:
            int(KEY)
        except ValueError:
            logging.getLogger("callboard.gateway").exception("it failed with %s", KEY)
    assert "it failed with ***" in caplog.text
    assert "ValueError: invalid literal" in caplog.text
    assert not leaks(caplog.text)


@table(
    ("said", "told"),
    [
        ("http://10.0.0.5:8080/v1/chat: no", "the backend: no"),
        ("http://u:p@10.0.0.5:8080: no", "the backend: no"),
        ("see http://10.0.0.5:8080/v1?key=1.", "see the backend."),
        ("no route (10.0.0.5:8080).", "no route (the backend)."),
        ("https://api.example:443/v1", "the backend"),
        ("https://API.example/ and api.example", "the backend and the backend"),
        ("https://docs.example/keys", "https://docs.example/keys"),
        (
            "api.example.org, 110.0.0.5:8080, my-api.example, api.example-two",
            "api.example.org, 110.0.0.5:8080, my-api.example, api.example-two",
        ),
    ],
)
def test_an_error_calls_each_address_the_backend(said, told):
    assert Redactor([], ["10.0.0.5:8080", "api.example"]).error(said) == told


def test_what_a_model_says_is_passed_on_as_it_is():
    said = [TextPiece(f"My key is {KEY}.")]
    assert Redactor([KEY]).events(said) == said


def test_a_failure_says_what_it_said_before_without_secrets():
    failed = ReplyFailed("provider", "timeout", "nothing came for 5 s", "<html>")
    assert Redactor([KEY], ["127.0.0.1:8080"]).events([failed]) == [failed]
