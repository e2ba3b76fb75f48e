"""The way out, for those that are on the list."""

import asyncio
import http.server
import os
import socket
import sys
import threading
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.errors import CallerError
from callboard.sandbox import Confinement
from callboard.sandbox.proxy import MAX_CONNECTIONS, MAX_HEAD, ProxyError, open_proxy, parse_request


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    def do_GET(self):
        body = f"{self.requestline}\n{self.headers}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def serving():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def ask(hosts, *requests):
    """What comes back on one connection."""

    async def exchange():
        async with open_proxy(hosts) as place:
            reader, writer = await asyncio.open_unix_connection(place)
            for request in requests:
                writer.write(request)
            writer.write_eof()
            answer = await reader.read()
            writer.close()
            return answer

    return asyncio.run(exchange())


def test_plain():
    with serving() as port:
        answer = ask(
            [f"127.0.0.1:{port}"],
            f"GET http://127.0.0.1:{port}/a?b HTTP/1.1\r\nHost: other.example\r\nProxy-Connection: keep-alive\r\n"
            "Proxy-Authorization: secret\r\nAccept: x\r\n\r\n".encode(),
        )
        assert answer.startswith(b"HTTP/1.0 200")
        body = answer.partition(b"\r\n\r\n")[2]
        assert body == f"GET /a?b HTTP/1.1\nHost: 127.0.0.1:{port}\nAccept: x\nConnection: close\n\n".encode()


def test_connect():
    with serving() as port:
        answer = ask(
            [f"127.0.0.1:{port}"], f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode(), b"GET /in HTTP/1.0\r\n\r\n"
        )
        assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.0 200")
        assert b"GET /in HTTP/1.0" in answer


@table(
    ("hosts", "request_line", "status", "text"),
    [
        (["example.org"], "CONNECT evil.example:443", b"403", b'add "evil.example" to the list `hosts`'),
        (["example.org"], "CONNECT example.org:22", b"403", b'add "example.org:22" to the list'),
        (["example.org"], "GET http://evil.example/", b"403", b"not among the hosts"),
        (["localhost"], "GET http://localhost/", b"403", b"has an address that is not public"),
        (["127.0.0.2:1"], "CONNECT 127.0.0.2:1", b"502", b"does not answer"),
        (["nothing.invalid"], "CONNECT nothing.invalid:443", b"502", b"is not known"),
        (["example.org"], "CONNECT 2130706433:443", b"400", b"no name of a host"),
        (["example.org"], "GET /path", b"400", b"no request to a proxy"),
        (["example.org"], "GET https://example.org/", b"400", b"no request to a proxy"),
        (["example.org"], "nonsense", b"400", b"no request to a proxy"),
    ],
)
def test_refused(hosts, request_line, status, text):
    answer = ask(hosts, f"{request_line} HTTP/1.1\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert text in answer.partition(b"\r\n\r\n")[2]


def test_a_name_and_its_address():
    with serving() as port:
        request = f"GET http://localhost:{port}/ HTTP/1.1\r\n\r\n".encode()
        assert ask([f"localhost:{port}", f"127.0.0.1:{port}"], request).startswith(b"HTTP/1.0 200")


def test_head_without_end():
    assert ask(["example.org"], b"GET http://example.org/ HTTP/1.1\r\nX: " + bytes(2 * MAX_HEAD)) == b""


async def test_too_many_connections():
    async with open_proxy(["example.org"]) as place:
        held = [await asyncio.open_unix_connection(place) for _ in range(MAX_CONNECTIONS)]
        reader, writer = await asyncio.open_unix_connection(place)
        answer = await reader.read()
        for each in (writer, *(writer for _, writer in held)):
            each.close()
        outcome = answer
    assert outcome.startswith(b"HTTP/1.1 503")


async def test_nothing_is_left():
    async with open_proxy(["example.org"]) as place:
        reader, writer = await asyncio.open_unix_connection(place)
        # The first has come in when the second is answered.
        answers, other = await asyncio.open_unix_connection(place)
        other.write(b"nonsense\r\n\r\n")
        assert (await answers.read()).startswith(b"HTTP/1.1 400")
    assert await reader.read() == b""
    writer.close()
    other.close()
    assert not place.parent.exists()


def test_a_list_that_is_none(bubblewrap, workspace):
    with pytest.raises(CallerError, match="is no host"):
        asyncio.run(bubblewrap.run(["true"], Confinement(workspace=workspace, hosts=("http://example.org",))))


@given(
    st.binary(max_size=200)
    | st.builds(b"%s http://%s HTTP/1.1\r\n%s\r\n\r\n".__mod__, st.tuples(*[st.binary(max_size=30)] * 3))
)
def test_any_head(head):
    """It asks for something, or is refused; what it becomes is one line and headers."""
    try:
        wanted = parse_request(head)
    except ProxyError:
        return
    assert wanted.head == b"" or wanted.head.endswith(b"Connection: close\r\n\r\n")


CLIENT = """
import http.client, os, sys, urllib.parse
assert {os.environ[name] for name in ("HTTP_PROXY", "https_proxy", "ALL_PROXY")} == {os.environ["http_proxy"]}
proxy = urllib.parse.urlsplit(os.environ["HTTP_PROXY"])
for url in sys.argv[1:]:
    connection = http.client.HTTPConnection(proxy.hostname, proxy.port, timeout=10)
    connection.request("GET", url)
    print(connection.getresponse().status)
connection = http.client.HTTPConnection(proxy.hostname, proxy.port, timeout=10)
connection.set_tunnel(urllib.parse.urlsplit(sys.argv[1]).netloc)
connection.request("GET", "/")
print(connection.getresponse().status)
"""


def test_in_a_sandbox(bubblewrap, workspace):
    with serving() as port, serving() as other:
        command = [
            os.path.realpath(sys.executable), "-c", CLIENT, f"http://127.0.0.1:{port}/", f"http://127.0.0.1:{other}/",
        ]  # fmt: skip
        confinement = Confinement(workspace=workspace, hosts=(f"127.0.0.1:{port}",))
        outcome = asyncio.run(bubblewrap.run(command, confinement))
    assert (outcome.output, outcome.code) == (b"200\n403\n200\n", 0)


def test_a_command_has_no_child_that_it_did_not_start(bubblewrap, workspace):
    program = "import os\ntry: os.wait()\nexcept ChildProcessError: print('none')"
    confinement = Confinement(workspace=workspace, hosts=("example.org",))
    command = [os.path.realpath(sys.executable), "-c", program]
    assert asyncio.run(bubblewrap.run(command, confinement)).output == b"none\n"


def test_without_hosts_there_is_no_network(confining, workspace):
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = f"import socket\nsocket.create_connection({server.getsockname()!r})"
        command = [os.path.realpath(sys.executable), "-c", program]
        assert asyncio.run(confining.run(command, Confinement(workspace=workspace))).code == 1
