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
