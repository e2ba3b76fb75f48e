"""How the process of a server ends."""

import asyncio
import signal
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.applications import Starlette
from tests.tables import table

from callboard.errors import CallerError
from callboard.servers.listening import OrderlyServer, listen, report_failure


def serve(lifespan, ready):
    """Serve until a signal comes."""
    app = report_failure(Starlette(lifespan=lifespan))
    config = uvicorn.Config(app, lifespan="on", log_config=None)
    with listen("127.0.0.1", 0, hint="") as listening:
        asyncio.run(OrderlyServer(config, ready).serve(sockets=[listening]))


@table("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_an_orderly_end(number):
    moments = []

    @asynccontextmanager
    async def lifespan(_):
        moments.append("begins")
        yield
        moments.append("ends")

    def ready():
        moments.append("ready")
        signal.raise_signal(number)

    serve(lifespan, ready)
    assert moments == ["begins", "ready", "ends"]


def test_an_application_that_cannot_start_is_no_success(caplog):
    @asynccontextmanager
    async def lifespan(_):
        raise CallerError("no key")
        yield

    moments = []
    with pytest.raises(SystemExit) as end:
        serve(lifespan, lambda: moments.append("ready"))
    assert (end.value.code, moments) == (3, [])
    assert "no key" in caplog.text


def test_a_request_that_outlasts_the_limit_gets_one_line_in_the_log(caplog):
    async def answer(*_):
        signal.raise_signal(signal.SIGTERM)
        await asyncio.Event().wait()

    async def request():
        config = uvicorn.Config(report_failure(answer), lifespan="off", log_config=None, timeout_graceful_shutdown=0)
        with listen("127.0.0.1", 0, hint="") as listening:
            serving = asyncio.create_task(OrderlyServer(config).serve(sockets=[listening]))
            _, writer = await asyncio.open_connection(*listening.getsockname())
            writer.write(b"GET /slow HTTP/1.1\r\nhost: h\r\n\r\n")
            await serving
            writer.close()

    asyncio.run(request())
    assert "a request was cut: /slow" in caplog.text
    assert "Traceback" not in caplog.text
