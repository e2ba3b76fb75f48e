import asyncio
import json
import os
import re
import signal
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from callboard.errors import CallerError
from callboard.testing import FakeBackend, StatusReply

LIMIT = 30  # seconds; against a test that hangs, not part of what it asserts
ASK = {"model": "m", "input": "Hi", "stream": True}
CHUNK = 'data: {"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}\n\n'


class Running:
    """A gateway in a process of its own: `url`, and what it `told` so far on standard error."""

    def __init__(self, process):
        self.process = process
        self.told = ""
        self.url = ""

    async def stands(self):
        while not self.url:
            line = (await self.process.stderr.readline()).decode()
            assert line, self.told
            self.told += line
            if found := re.search(r" at (http\S+)/v1 ", line):
                self.url = found[1]

    async def ended(self):
        out, err = await self.process.communicate()
        self.told += err.decode()
        assert out == b""
        return self.process.returncode


@pytest.fixture
def running(callboard):
    @asynccontextmanager
    async def running(*arguments, **environment):
        process = await asyncio.create_subprocess_exec(
            *callboard.command, "serve", "--port", "0", *arguments,
            env={**os.environ, **environment},
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        gateway = Running(process)
        try:
            async with asyncio.timeout(LIMIT):
                await gateway.stands()
                yield gateway
                if process.returncode is None:
                    with suppress(ProcessLookupError):
                        process.terminate()
                    await gateway.ended()
                while group(process.pid):  # noqa: ASYNC110 - multiprocessing's own helper ends a little later
                    await asyncio.sleep(0)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    return running


def group(leader):
    """The processes of a group."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == leader and fields[0] != "Z":
                found.append(int(entry.name))
    return found


class Held:
    """A backend whose streams begin, and end when `gate` is set."""

    def __init__(self):
        self.gate = asyncio.Event()
        self.url = ""

    async def __aenter__(self):
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._reply)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_):
        self.gate.set()
        await self._runner.cleanup()

    async def _reply(self, request):
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write((CHUNK % "Hello").encode())
        await self.gate.wait()
        await answer.write((CHUNK % " you" + "data: [DONE]\n\n").encode())
        return answer


async def refuses(url):
    """Returns when nobody listens there any more."""
    host, port = url.removeprefix("http://").split(":")
    while True:
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except ConnectionError:
            return
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def test_help(invoke):
    shown = invoke("serve", "--help", env={"COLUMNS": "200", "TERM": "dumb"})
    assert shown.exit_code == 0
    for option in (
        "--backend",
        "--backend-wire",
        "--model-map",
        "--key",
        "--workers",
        "--strict",
        "--compat-events",
        "--local",
    ):
        assert option in shown.output


BEHIND = ("--backend", "http://127.0.0.1:9/v1", "--port", "0")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no backend"),
        (["--backend", "nowhere"], "not a URL"),
        ([*BEHIND, "--backend-wire", "smoke"], "no wire 'smoke'"),
        ([*BEHIND, "--mode", "magic"], "no mode 'magic'"),
        ([*BEHIND, "--dialect", "klingon"], "klingon"),
        ([*BEHIND, "--profile", "uses_tools"], "has no ="),
        ([*BEHIND, "--profile", "speed=3"], "no fact 'speed'"),
        ([*BEHIND, "--model-map", "a"], "has no ="),
        ([*BEHIND, "--key", "shorty"], "too short for a key"),
        ([*BEHIND, "--requests-per-minute", "-1"], "requests_per_minute"),
        ([*BEHIND, "--idle-timeout", "0"], "idle_timeout"),
        ([*BEHIND, "--port", "70000"], "--port"),
        ([*BEHIND, "--effort", "much"], "--effort: no effort 'much'"),
        ([*BEHIND, "--workers", "0"], "--workers"),
        ([*BEHIND, "--log-level", "loud"], "--log-level"),
        ([*BEHIND, "--backend-key", "NOT_SET_HERE"], "NOT_SET_HERE"),
        ([*BEHIND, "--host", "0.0.0.0"], "without a key anybody could use the gateway"),
        ([*BEHIND, "--host", "::"], "set --key, or stay on 127.0.0.1"),
        ([*BEHIND, "--host", "203.0.113.7", "--key", "sk-1234567890123"], "203.0.113.7:0"),
        ([*BEHIND, "--host", "no such host"], "no such host"),
        ([*BEHIND, "--config", "nowhere.toml"], "nowhere.toml"),
        ([*BEHIND, "--certificate", "nowhere.pem"], "nowhere.pem"),
        ([*BEHIND, "--private-key", "nowhere.pem"], "--certificate"),
    ],
)  # fmt: skip
def test_what_cannot_be_served(invoke, arguments, said):
    ended = invoke("serve", *arguments, env={"COLUMNS": "200", "TERM": "dumb"})
    assert ended.exit_code != 0
    assert isinstance(ended.exception, (CallerError, SystemExit)), ended.exception
    told = f"{ended.output} {ended.exception}"
    assert said in " ".join(told.replace("│", " ").split())
    assert "sk-1234567890123" not in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model-map", "a=b"], "--model-map: does not say which backend it is for"),
        (["--backend-wire", "messages"], "--backend-wire: does not say which backend it is for"),
        (["--profile", "speed=3"], "no fact 'speed'"),
    ],
)
def test_flags_beside_a_file_are_for_its_backends(invoke, tmp_path, arguments, said):
    path = tmp_path / "gateway.toml"
    path.write_text('[[backends]]\nurl = "http://127.0.0.1:9/v1"\n[[backends]]\nurl = "http://127.0.0.1:8/v1"\n')
    ended = invoke("serve", "--config", str(path), *arguments)
    assert isinstance(ended.exception, CallerError)
    assert said in str(ended.exception)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(
    ("store", "said"),
    [
        ("postgresql://user:pass-word@127.0.0.1:1/none", "refused"),
        ("postgres://user:pass-word@127.0.0.1:port/none", "not a database URL"),
    ],
)
def test_a_store_that_cannot_be_had_is_said_in_one_line(callboard, store, said, workers):
    told = callboard("serve", *BEHIND, "--store", store, "--workers", workers)
    assert told.returncode == 1
    assert said in " ".join(told.stderr.split())
    assert "Traceback" not in told.stderr
    assert "pass-word" not in told.stderr


def test_workers_that_cannot_start_are_not_started_again(callboard, tmp_path):
    (tmp_path / "tools.toml").write_text('mistake = 1\n[ensemble]\nname = "tools"\n')
    told = callboard("serve", *BEHIND, "--ensembles", str(tmp_path), "--workers", "2")
    assert told.returncode == 3
    assert "a worker cannot start: " in told.stderr
    assert "mistake: unknown key" in told.stderr
    assert "Traceback" not in told.stderr


def test_a_port_that_is_taken(callboard):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        told = callboard("serve", "--backend", "http://127.0.0.1:9/v1", "--port", str(taken.getsockname()[1]))
    assert told.returncode == 1
    assert "is another gateway running?" in " ".join(told.stderr.split())


async def test_it_starts_answers_and_ends(running):
    async with FakeBackend(["Hello", "Hello"]) as backend, running("--backend", backend.url) as gateway:
        assert gateway.told == f"callboard serves {backend.url} at {gateway.url}/v1 (Ctrl-C stops it)\n"
        async with aiohttp.ClientSession() as client:
            async with client.get(f"{gateway.url}/health") as answer:
                assert (await answer.json())["status"] == "healthy"
            async with client.post(f"{gateway.url}/v1/responses", json=ASK | {"stream": False}) as answer:
                assert (await answer.json())["output"][0]["content"][0]["text"] == "Hello"
            headers = {"authorization": "Bearer sk-abcdefghijklmnopqrstuvwxyz"}
            async with client.post(f"{gateway.url}/v1/responses", json=ASK, headers=headers) as answer:
                assert (await answer.text()).endswith("data: [DONE]\n\n")
            async with client.get(f"{gateway.url}/health", headers={"host": "evil.example"}) as answer:
                assert answer.status == 403
            async with client.get(f"{gateway.url}/v1/models", headers={"host": "evil.example"}) as answer:
                assert answer.status == 403
        gateway.process.send_signal(signal.SIGINT)
        code = await gateway.ended()
        assert backend.requests[-1].headers["authorization"] == "Bearer sk-abcdefghijklmnopqrstuvwxyz"
    told = gateway.told
    assert code == 0
    assert "sk-abc...wxyz" in told
    assert "defghijkl" not in told
    assert "Traceback" not in told


def test_a_password_in_the_backends_url_is_not_told(running):
    async def scenario():
        async with FakeBackend(["Hello"]) as backend:
            url = backend.url.replace("://", "://operator:s3cret-word@")
            async with running("--backend", url) as gateway, aiohttp.ClientSession() as client:
                assert gateway.told == f"callboard serves {backend.url} at {gateway.url}/v1 (Ctrl-C stops it)\n"
                for path in ("/health", "/metrics", "/v1/models"):
                    async with client.get(gateway.url + path) as answer:
                        assert "s3cret" not in await answer.text()
                async with client.post(f"{gateway.url}/v1/responses", json=ASK) as answer:
                    assert answer.status == 200
            await gateway.ended()
            return gateway.told, [each.headers.get("authorization", "") for each in backend.requests]

    told, sent = asyncio.run(scenario())
    assert "s3cret" not in told
    assert all(each.startswith("Basic ") for each in sent)


@pytest.mark.parametrize(
    ("workers", "sign", "status"),
    [("1", signal.SIGTERM, 0), ("2", signal.SIGTERM, 0), ("2", signal.SIGKILL, -signal.SIGKILL)],
)
async def test_sigterm_and_the_end_of_the_supervisor_let_open_replies_end(running, workers, sign, status):
    async with Held() as backend, running("--backend", backend.url, "--workers", workers) as gateway:
        async with (
            aiohttp.ClientSession() as client,
            client.post(f"{gateway.url}/v1/responses", json=ASK) as answer,
        ):
            begun = await until(answer, b"Hello")
            gateway.process.send_signal(sign)
            if workers == "1":
                await refuses(gateway.url)
            backend.gate.set()
            rest = await answer.content.read()
        code, data = await gateway.ended(), begun + rest
    assert code == status
    kinds = re.findall(rb"event: (\S+)", data)
    assert kinds.count(b"response.completed") == 1
    assert kinds[-1] == b"response.completed"
    assert data.endswith(b"data: [DONE]\n\n")
    assert b'"Hello you"' in data


async def test_sigterm_ends_what_does_not_end_itself(running, tmp_path):
    config = tmp_path / "gateway.toml"
    config.write_text("shutdown_timeout = 1\n")

    async with (
        Held() as backend,
        running("--backend", backend.url, "--config", str(config)) as gateway,
        aiohttp.ClientSession() as client,
    ):
        async with client.post(f"{gateway.url}/v1/responses", json=ASK) as answer:
            begun = await until(answer, b"Hello")
            gateway.process.terminate()
            rest = await answer.content.read()
        code, data = await gateway.ended(), begun + rest
    assert code == 0
    assert re.findall(rb"event: (\S+)", data)[-1] == b"response.failed"
    assert data.endswith(b"data: [DONE]\n\n")


async def test_keys_of_the_gateway_are_not_the_backend_s(running):
    async with (
        FakeBackend(["Hello"]) as backend,
        running("--backend", backend.url, CALLBOARD_GATEWAY_KEYS="ann=sk-ann-1234567890") as gateway,
        aiohttp.ClientSession() as client,
    ):
        statuses = []
        for key in ("", "sk-eve-12345678", "sk-ann-1234567890"):
            headers = {"x-api-key": key} if key else {}
            async with client.post(f"{gateway.url}/v1/responses", json=ASK, headers=headers) as answer:
                await answer.read()
                statuses.append(answer.status)
        (headers,) = [request.headers for request in backend.requests if request.method == "POST"]
    assert statuses == [401, 401, 200]
    assert "sk-ann" not in json.dumps(dict(headers))


SHARED = """
requests_per_minute = 10.0
failure_threshold = 2
[keys]
ann = "sk-ann-1234567890"
bob = "sk-bob-1234567890"
cid = "sk-cid-1234567890"
dan = "sk-dan-1234567890"
[key_budgets]
bob = 1.0
[prices.m]
input = 100000.0
output = 100000.0
"""


async def test_two_gateways_on_one_postgresql_share_rates_budgets_and_breakers(running, empty_postgresql, tmp_path):
    import psycopg

    config = tmp_path / "gateway.toml"
    config.write_text(SHARED, "utf-8")
    async with (
        FakeBackend(lambda body: "Yes." if body["model"] == "m" else StatusReply(503, {})) as backend,
        running(*(options := ("--backend", backend.url, "--config", str(config), "--store", empty_postgresql))) as one,
        running(*options) as two,
        aiohttp.ClientSession() as client,
        await psycopg.AsyncConnection.connect(empty_postgresql, autocommit=True) as connection,
    ):

        async def send(gateway, key, model):
            body = {"model": model, "input": "Hi", "store": False}
            headers = {"x-api-key": f"sk-{key}-1234567890"}
            async with client.post(f"{gateway.url}/v1/responses", json=body, headers=headers) as answer:
                return answer.status, await answer.json()

        async def ask(key, *gateways, model="m"):
            return await asyncio.gather(*[send(each, key, model) for each in gateways])

        async def spent():
            row = await (await connection.execute("SELECT cost FROM callboard_spending WHERE name = 'bob'")).fetchone()
            return row[0] if row else 0.0

        began = time.monotonic()
        statuses = [status for status, _ in await ask("ann", *[one, two] * 10)]
        assert 10 <= statuses.count(200) <= 10 + (time.monotonic() - began) / 6

        cost = before = 0.0
        while 200 in dict(answers := await ask("bob", one, two)):
            tokens = [body["usage"]["total_tokens"] for status, body in answers if status == 200]
            before, cost = cost, cost + sum(tokens) * 0.1
            while await spent() < cost - 1e-6:  # it is written a moment after the reply
                pass
        assert {body["error"]["code"] for _, body in answers} == {"insufficient_quota"}
        assert before < 1.0 <= cost == pytest.approx(await spent())

        for key in ("cid", "dan"):
            assert (await ask(key, one, model="down"))[0][0] == 503
        asked, status = len(backend.requests), 0
        while status != 503:
            async with client.get(f"{two.url}/health") as answer:
                status = answer.status
        ((_, body),) = await ask("cid", two)
        assert body["error"]["code"] == "backend_unavailable_circuit_open"
        assert len(backend.requests) == asked


async def until(answer, mark):
    data = b""
    while mark not in data:
        piece = await answer.content.readany()
        assert piece, data
        data += piece
    return data
