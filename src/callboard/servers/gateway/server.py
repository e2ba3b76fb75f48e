"""The gateway's process: uvicorn and its workers.

Law: no wider than loopback without a key.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import os
import signal
import ssl
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn
from msgspec.structs import replace
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from callboard.errors import CallboardError, CallerError, ProviderError
from callboard.extras import require_extra
from callboard.profiles.prices import load_list
from callboard.servers.gateway.app import Extend, application
from callboard.servers.gateway.auth import LOOPBACK
from callboard.servers.gateway.gateway import open_store
from callboard.servers.gateway.settings import GatewaySettings
from callboard.servers.hosts import is_loopback
from callboard.servers.listening import BACKLOG, OrderlyServer, listen, report_failure
from callboard.telemetry import TelemetrySettings, enable, wants_telemetry
from callboard.telemetry.logs import configure_logs

if TYPE_CHECKING:
    from callboard.servers.gateway.response_store import ResponseStore


log = logging.getLogger("callboard.gateway")

_MAX_HEAD_BYTES = 64 * 1024
"""Maximum bytes of a request's head that h11 reads."""
_FILES = 256
"""Open files of a gateway that are no connections."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where to listen. `port` 0 takes a free one; `certificate` and `private_key` are files of PEM, for TLS."""

    host: str = "127.0.0.1"
    port: int = 8282
    certificate: str = ""
    private_key: str = ""
    workers: int = 1


def serve(
    settings: GatewaySettings,
    address: Address,
    ready: Callable[[str], None] = lambda url: None,
    *,
    log_level: int = logging.WARNING,
    extend: Extend | None = None,
    telemetry: TelemetrySettings | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; open replies have `settings.shutdown_timeout` seconds.

    Where it cannot start, the process exits with 3 after a line of the log that says why.

    Args:
        settings: The gateway's.
        address: Where to listen, and with how many workers.
        ready: Called with the URL once the gateway listens.
        log_level: That of `callboard`'s own loggers.
        extend: Makes more routes. Each worker calls it, so it has to be a function of a module, or a partial of one.
        telemetry: Where spans and metrics go.

    Raises:
        CallerError: The address cannot be had, or not without a key; a setting cannot be held.
    """
    telemetry = telemetry or TelemetrySettings()
    if wants_telemetry(telemetry, os.environ):
        require_extra("otel")  # here, and not in each worker
    local = is_loopback(address.host)
    if not local and not settings.keys:
        hint = "give --key, or stay on 127.0.0.1"
        raise CallerError("beyond this machine everybody could ask", path=f"--host {address.host}", hint=hint)
    if local and not settings.keys and not settings.hosts:
        # A web page whose name was made to lead here is not to use the gateway.
        settings = replace(settings, hosts=(*LOOPBACK, address.host))
    if settings.has_budgets and address.workers > 1 and not settings.store:
        hint = "give --store, where they count together"
        raise CallerError("several workers see no budget of each other", path="--workers", hint=hint)
    settings = settings_per_worker(settings, address.workers)
    _check_certificate(address)
    _check_store(settings)
    listening = listen(address.host, address.port, hint="is another gateway running? --port 0 takes a free one")
    listening.set_inheritable(True)
    scheme = "https" if address.certificate else "http"
    host = f"[{address.host}]" if ":" in address.host else address.host
    url = f"{scheme}://{host}:{listening.getsockname()[1]}"
    _allow_files(settings.limits.connections)
    config = uvicorn_config(
        partial(
            _supervised_application if address.workers > 1 else _worker_application,
            settings,
            log_level,
            extend,
            telemetry,
        ),
        settings,
        factory=True,
        # httptools is faster, but reads a head of any size: on loopback only this machine's users could send one.
        http="auto" if local else "h11",
        backlog=BACKLOG,
        workers=address.workers,
        ssl_certfile=address.certificate or None,
        ssl_keyfile=address.private_key or None,
    )
    with listening:
        if address.workers > 1:
            with _shared_figures():
                ready(url)
                supervisor = Multiprocess(config, sockets=[listening])
                supervisor.run()
                if any(each.exitcode == STARTUP_FAILURE for each in supervisor.processes):
                    sys.exit(STARTUP_FAILURE)
        else:
            OrderlyServer(config, partial(ready, url)).run(sockets=[listening])


def settings_per_worker(settings: GatewaySettings, workers: int) -> GatewaySettings:
    """The settings of one of so many workers, which do not see what the others count.

    A key's requests lie with whichever worker takes its connection. Together the workers let no more pass than was
    set, but for what cannot be divided: each of them lets one request at once pass, and one to begin with.
    """
    return replace(
        settings,
        requests_per_minute=settings.requests_per_minute / workers,
        max_concurrent=-(-settings.max_concurrent // workers),
    )


def uvicorn_config(app: ASGIApp | Callable[[], ASGIApp], settings: GatewaySettings, **options: Any) -> uvicorn.Config:
    """Make uvicorn's configuration of a gateway; `options` are its own and go above."""
    return uvicorn.Config(
        app,
        **{
            "h11_max_incomplete_event_size": _MAX_HEAD_BYTES,
            "limit_concurrency": settings.limits.connections,
            "timeout_keep_alive": max(1, round(settings.limits.idle_seconds)),
            "ws_max_size": settings.limits.body,
            # A message of 61 KB can be 64 MB of zeros, and each socket keeps a window of its own.
            "ws_per_message_deflate": False,
            "lifespan": "on",
            "access_log": False,
            "proxy_headers": False,  # nothing here asks for a client's address
            "log_config": None,
            "server_header": False,
            "timeout_worker_healthcheck": 30,  # a worker that starts on a busy machine answers late, and would be killed
            "timeout_graceful_shutdown": max(1, round(settings.shutdown_timeout)),
            **options,
        },
    )


def _allow_files(connections: int) -> None:
    """Let the process open two files for each connection, the client's and the backend's, as far as the system does."""
    try:
        import resource  # noqa: PLC0415 - not on Windows, which has no such limit
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * connections + _FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@contextmanager
def _shared_figures() -> Generator[None]:
    """A directory where workers put their figures together, unless there is one already; gone when they are."""
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="callboard-metrics-", ignore_cleanup_errors=True) as directory:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = directory
        try:
            yield
        finally:
            del os.environ["PROMETHEUS_MULTIPROC_DIR"]


def _supervised_application(
    settings: GatewaySettings, level: int, extend: Extend | None, telemetry: TelemetrySettings
) -> ASGIApp:
    """The application of one of several workers, which ends with the process that started it."""
    threading.Thread(target=_end_with_supervisor, name="callboard-supervisor", daemon=True).start()
    try:
        return _worker_application(settings, level, extend, telemetry)
    except CallboardError as error:
        log.error("a worker cannot start: %s", error)  # noqa: TRY400  # its user is to blame, and needs no traceback
    except Exception:
        log.exception("a worker cannot start")
    sys.exit(STARTUP_FAILURE)  # any other status makes uvicorn start it again, and again


def _worker_application(
    settings: GatewaySettings, level: int, extend: Extend | None, telemetry: TelemetrySettings
) -> ASGIApp:
    """The application of a process that logs to standard error."""
    configure_logs(level, telemetry.log_format(os.environ))
    if wants_telemetry(telemetry, os.environ):
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # each try is one of its warnings
        enable(telemetry)
    app = report_failure(application(settings, extend))
    if any(each.url.startswith("https://") for each in settings.backends):
        load_list()  # the price of the first reply would stop all others for the time that this takes
    # What is here now stays. Requests leave no cycles, so what they made is seldom looked through for some: with a
    # thousand open streams that would stop them all for a tenth of a second.
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 10, 1000)
    return app


def _end_with_supervisor() -> None:
    """Stop this worker in good order when the process that started it is gone; killed, it tells its workers nothing."""
    if (supervisor := multiprocessing.parent_process()) is not None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _check_certificate(address: Address) -> None:
    if address.private_key and not address.certificate:
        raise CallerError("a key without its certificate", path=address.private_key, hint="give --certificate")
    if not address.certificate:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(address.certificate, address.private_key or None)
    except OSError as error:  # SSLError is one
        path = " ".join(filter(None, (address.certificate, address.private_key)))
        hint = "files of PEM, with the key that belongs to the certificate"
        raise CallerError(error.strerror or str(error), path=path, hint=hint) from None


def _check_store(settings: GatewaySettings) -> None:
    """Report what is wrong with the store before the gateway can be asked, in one line, and in one process."""

    async def start_and_close(store: ResponseStore) -> None:
        try:
            await store.start()
        finally:
            await store.aclose()

    if (store := open_store(settings)) is not None:
        asyncio.run(start_and_close(store))


@asynccontextmanager
async def serve_on_loopback(settings: GatewaySettings) -> AsyncGenerator[str]:
    """The base URL of a gateway with these settings, such as `http://127.0.0.1:40123/v1`.

    It listens on a free port of the loopback interface while the `async with` lasts. Signals stay the caller's, so
    Ctrl-C cancels the caller's command, and the gateway ends with it.
    """
    ready = asyncio.Event()
    with listen("127.0.0.1", 0, hint="") as listening:
        server = _ServerWithoutSignals(uvicorn_config(application(settings), settings), ready.set)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        starting = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
            if not ready.is_set():
                raise ProviderError("the gateway did not start", path="gateway")
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        finally:
            starting.cancel()
            server.should_exit = True
            await serving


class _ServerWithoutSignals(OrderlyServer):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield
