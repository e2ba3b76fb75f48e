"""Backends that fail: one line says what is wrong, the exit code is 1, and what had come is kept."""

from __future__ import annotations

import socket
import threading

import pytest

from callboard.core import ArgumentsPiece, InvocationStarted, ReplyStarted, TextPiece
from callboard.errors import PAGE
from callboard.testing import Cut, Html, Raw, Silence, StatusReply

HEL = (ReplyStarted(), TextPiece("Hel"))
HALF_A_CALL = (ReplyStarted(), InvocationStarted(0, "call_1", "act", True), ArgumentsPiece(0, '{"number": '))
DOUBLE = "@tool\ndef act(number: int) -> int:\n    return 2 * number\n"
LATER = {"retry-after-ms": "1500"}
KEY = {"error": {"message": "Incorrect API key provided: sk-***.", "type": "invalid_request_error", "code": "x"}}
LONG = b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * 20_000_000 + b'"}}]}\n\n'


@pytest.mark.parametrize(
    ("replies", "tried", "failed"),
    [
        pytest.param([StatusReply(401, KEY)], [], "Incorrect API key provided: sk-***.", id="401"),
        pytest.param([StatusReply(401, b"")], [], "the provider answered 401", id="401 without a word"),
        pytest.param([StatusReply(403, "Forbidden")], [], "Forbidden", id="403"),
        pytest.param([StatusReply(404, b"")], [], "the provider answered 404", id="404"),
        pytest.param(
            [StatusReply(429, headers=LATER)] * 4, [(429, 1.5)] * 3, "the fake backend answers 429", id="429 for ever"
        ),
        pytest.param(
            [StatusReply(429, headers={"Retry-After": "3600"})],
            [],
            "the fake backend answers 429",
            id="429 for an hour",
        ),
        pytest.param(
            [StatusReply(500)] * 4,
            [(500, 0.5), (500, 1.0), (500, 2.0)],
            "the fake backend answers 500",
            id="500 for ever",
        ),
        pytest.param([StatusReply(400, "\x1b[2J\nno\r\n" + "x" * 5000)], [], "[2J no xxx", id="a page of commands"),
        pytest.param([Html()], [], "the answer is no reply but text/html", id="HTML"),
        pytest.param([Html(404)], [], "the provider answered 404", id="HTML of an error"),
        pytest.param(
            [Html(502)] * 4, [(502, 0.5), (502, 1.0), (502, 2.0)], "the provider answered 502", id="HTML of a gateway"
        ),
        pytest.param(
            [StatusReply(307, headers={"Location": "https://example.org/v1?key=secret"})],
            [],
            "the provider answered 307 and points to https://example.org/v1; redirects are not followed",
            id="a redirect",
        ),
        pytest.param([StatusReply(301, b"")], [], "the provider answered 301", id="a redirect to nowhere"),
        pytest.param([StatusReply(200, b"")], [], "the answer is empty", id="an empty answer"),
        pytest.param([Raw([])], [], "the stream ended before the model said anything", id="an empty stream"),
        pytest.param([Raw(["Hello."])], [], "a frame is not of this wire: JSON is malformed", id="no JSON"),
        pytest.param(
            [Raw([bytes(range(256)) * 100])], [], "the stream ended before the model said anything", id="no text"
        ),
        pytest.param([Raw([LONG])], [], "a frame of the stream is larger than 16777216 bytes", id="20 MB in a line"),
        pytest.param(
            [StatusReply(200, b'{"x": "' + b"x" * 70_000_000)],
            [],
            "{url}: the answer has more than 67108864 bytes",
            id="70 MB",
        ),
        pytest.param(
            [Raw(['{"error": {"message": "out of memory"}}'])], [], "out of memory", id="an error in the stream"
        ),
    ],
)
def test_one_line_says_what_is_wrong(ask, naps, replies, tried, failed):
    seen = ask(replies)
    assert (seen.code, seen.out, seen.said) == (1, "", ["Go."])
    *attempts, line, where = seen.lines
    assert attempts == [
        f"attempt {number}: the server answered {status}; trying again in {pause} s"
        for number, (status, pause) in enumerate(tried, 1)
    ]
    assert line.startswith(
        f"callboard: the provider failed: {failed.format(url=f'{seen.backend.url}/chat/completions')}"
    )
    assert where == f"the transcript is in {seen.path}"
    assert naps == [pause for _, pause in tried]
    assert len(line) < 1200
    assert all(each.isprintable() for each in seen.lines)
    assert "secret" not in seen.err
    seen.backend.assert_complete()


def test_a_busy_backend_that_answers_at_last(ask, naps):
    seen = ask([StatusReply(429, headers=LATER), "Hello."])
    assert (seen.code, seen.out, seen.said) == (0, "Hello.\n", ["Go.", "Hello."])
    assert seen.lines == ["attempt 1: the server answered 429; trying again in 1.5 s"]
    assert naps == [1.5]


def test_a_backend_that_is_down(see, naps):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    seen = see("run", "--model", "m", "--base-url", url, "Go.")
    assert (seen.code, seen.out, seen.said) == (1, "", ["Go."])
    assert seen.lines == [
        *[
            f"attempt {number}: cannot connect: Connection refused; trying again in {pause} s"
            for number, pause in ((1, 0.5), (2, 1.0), (3, 2.0))
        ],
        f"callboard: the provider failed: {url}/chat/completions: cannot connect: Connection refused; is the server running?",
        f"the transcript is in {seen.path}",
    ]
    assert naps == [0.5, 1.0, 2.0]


SILENT = pytest.mark.parametrize("idle_timeout", [0.05])


@pytest.mark.usefixtures("naps")
def test_half_a_reply(ask):
    seen = ask([Cut(after=HEL)])
    assert (seen.code, seen.out, seen.said) == (1, "Hel\n", ["Go.", "Hel"])
    url = f"{seen.backend.url}/chat/completions"
    assert seen.lines == [
        f"callboard: the provider failed: {url}: the connection broke in the middle of the answer; see {PAGE}#reply-cut",
        f"the transcript is in {seen.path}",
    ]


@SILENT
@pytest.mark.parametrize("said", [HEL, ()])
@pytest.mark.usefixtures("naps")
def test_a_stream_that_never_ends(ask, said):
    seen = ask([Silence(after=said)])
    assert (seen.code, seen.out, seen.said) == (1, "Hel\n" if said else "", ["Go.", "Hel"] if said else ["Go."])
    url = f"{seen.backend.url}/chat/completions"
    hint = "if the model needs longer, raise idle_timeout"
    assert seen.lines == [
        f"callboard: the provider failed: {url}: nothing came for 0.05 s in the middle of the answer; {hint}",
        f"the transcript is in {seen.path}",
    ]


@pytest.mark.parametrize(("ending", "idle_timeout"), [(Cut, 300.0), (Silence, 0.05)])
@pytest.mark.usefixtures("naps")
def test_half_a_call(ask, ending):
    seen = ask([ending(after=HALF_A_CALL)], tools=DOUBLE)
    assert (seen.code, seen.out, seen.paired) == (1, "", True)
    assert seen.canisters[1].raw == '{"number": '
    assert seen.results == ["Error: the reply failed before the call could run"]
    called, failed, where = seen.lines
    assert called == "-> act (incomplete: cut)"
    assert failed.startswith("callboard: the provider failed: ")
    assert where == f"the transcript is in {seen.path}"


@SILENT
@pytest.mark.parametrize(
    ("closes", "failed"),
    [
        (True, "the connection was closed without an answer; look at the server's log"),
        (False, "no answer within 0.05 s; if the model needs longer, raise idle_timeout"),
    ],
)
def test_a_server_that_takes_a_request_and_does_not_answer(see, naps, closes, failed):
    over = threading.Event()

    def serve(server):
        held = []
        while not over.is_set():
            connection, _ = server.accept()
            connection.recv(65536)
            held.append(connection)
            if closes:
                connection.close()
        for connection in held:
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        seen = see("run", "--model", "m", "--base-url", url, "Go.")
        over.set()
        socket.create_connection(server.getsockname()).close()
        thread.join()
    assert (seen.code, seen.out, seen.said) == (1, "", ["Go."])
    assert seen.lines[-2] == f"callboard: the provider failed: {url}/chat/completions: {failed}"
    assert len(naps) == (3 if closes else 0)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("127.0.0.1:1", "did you mean http://127.0.0.1:1?"),
        ("http://127.0.0.1:99999/v1", "it begins with http:// or https:// and a host"),
    ],
)
def test_a_url_that_is_none(see, given, hint):
    seen = see("run", "--model", "m", "--base-url", given, "Go.")
    assert (seen.code, seen.out) == (2, "")
    assert seen.err == f"callboard: --base-url: {given} is not a URL that a provider can be asked at; {hint}\n"


def test_what_the_terminal_cannot_show_is_no_reason_to_fail(spawn, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    seen = spawn(["na\u00efve"])
    assert (seen.code, seen.out, seen.said) == (0, "na?ve\n", ["Go.", "na\u00efve"])
