"""The gateway's process: uvicorn and its workers.

Law: without a key the gateway listens on loopback only.
"""

from __future__ import annotations

import asyncio
import gc
import logging
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

from callboard.errors import CallboardError, CallerError, ProviderError
from callboard.extras import require_extra
from callboard.profiles.prices import load_list
from callboard.servers.gateway.app import Extend, application
from callboard.servers.gateway.auth import LOOPBACK
from callboard.servers.gateway.gateway import open_store
from callboard.servers.gateway.settings import GatewaySettings
from callboard.servers.hosts import is_loopback
from callboard.servers.joined_writes import JoinedProtocol
from callboard.servers.listening import BACKLOG, OrderlyServer, listen, report_failure
from callboard.telemetry import TelemetrySettings, enable, wants_telemetry
from callboard.telemetry.logs import configure_logs

if TYPE_CHECKING:
    from callboard.servers.gateway.response_store import ResponseStore


log = logging.getLogger("callboard.gateway")

_MAX_HEAD_BYTES = 64 * 1024
"""Maximum bytes of a request's head that h11 reads."""
_HTTP = f"{JoinedProtocol.__module__}:{JoinedProtocol.__name__}"
_FILES = 256
"""Open files of a gateway besides its connections."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """The address to listen on. `port` 0 chooses a free one; `certificate` and `private_key` are PEM files for TLS."""

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
    """Serve until SIGTERM or SIGINT. Open replies then have `settings.shutdown_timeout` seconds.

    If the gateway cannot start, the process logs one line with the reason and exits with 3.

    Args:
        settings: The settings of the gateway.
        address: The address to listen on, and the number of workers.
        ready: Called with the URL once the gateway listens.
        log_level: The level of `callboard`'s own loggers.
        extend: Makes more routes. Each worker calls it, so it must be a function of a module, or a partial of one.
        telemetry: The destination of spans and metrics.

    Raises:
        CallerError: The address is not available or needs a key, or a setting cannot be enforced.
    """
    telemetry = telemetry or TelemetrySettings()
    if wants_telemetry(telemetry, os.environ):
        require_extra("otel")  # fail here, not in each worker
    local = is_loopback(address.host)
    if not local and not settings.keys:
        hint = "set --key, or stay on 127.0.0.1"
        raise CallerError("without a key anybody could use the gateway", path=f"--host {address.host}", hint=hint)
    if local and not settings.keys and not settings.hosts:
        # Refuse DNS rebinding: a web page must not use the gateway through a name that resolves to this machine.
        settings = replace(settings, hosts=(*LOOPBACK, address.host))
    if settings.has_budgets and address.workers > 1 and not settings.store:
        hint = "set --store, where they share their sums"
        raise CallerError("workers do not see each other's spending", path="--workers", hint=hint)
    settings = settings_per_worker(settings, address.workers)
    _check_certificate(address)
    check_store(settings)
    listening = listen(address.host, address.port, hint="is another gateway running? --port 0 chooses a free port")
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
        # httptools is faster, but accepts a request head of any size. On loopback only local users can send one.
        **({} if local else {"http": "h11"}),
        backlog=BACKLOG,
        workers=address.workers,
        ssl_certfile=address.certificate or None,
        ssl_keyfile=address.private_key or None,
    )
    with listening:
        if address.workers > 1:
            with _shared_figures():
                ready(url)
                from uvicorn.supervisors import Multiprocess  # noqa: PLC0415 - 1 MB, and one worker needs no other

                supervisor = Multiprocess(config, sockets=[listening])
                supervisor.run()
                if any(each.exitcode == STARTUP_FAILURE for each in supervisor.processes):
                    sys.exit(STARTUP_FAILURE)
        else:
            OrderlyServer(config, partial(ready, url)).run(sockets=[listening])


def settings_per_worker(settings: GatewaySettings, workers: int) -> GatewaySettings:
    """Return the settings of one of several workers, which do not see each other's counts.

    The requests of a key may arrive at any worker. Together the workers stay within the limits, except that each worker
    always allows one open request, and one request at the start. On PostgreSQL the workers count requests together.
    """
    return replace(
        settings,
        requests_per_minute=settings.requests_per_minute / (1 if settings.shares_limits else workers),
        max_concurrent=-(-settings.max_concurrent // workers),
    )


def uvicorn_config(app: ASGIApp | Callable[[], ASGIApp], settings: GatewaySettings, **options: Any) -> uvicorn.Config:
    """Return uvicorn's configuration for a gateway. `options` override it."""
    return uvicorn.Config(
        app,
        **{
            "http": _HTTP,
            "h11_max_incomplete_event_size": _MAX_HEAD_BYTES,
            "limit_concurrency": settings.limits.connections,
            "timeout_keep_alive": max(1, round(settings.limits.idle_seconds)),
            "ws_max_size": settings.limits.body,
            # A message of 61 KB can be 64 MB of zeros, and each socket keeps its own window.
            "ws_per_message_deflate": False,
            "lifespan": "on",
            "access_log": False,
            "proxy_headers": False,  # the gateway does not use a client's address
            "log_config": None,
            "server_header": False,
            "timeout_worker_healthcheck": 30,  # on a busy machine a new worker answers late, and must not be killed
            "timeout_graceful_shutdown": max(1, round(settings.shutdown_timeout)),
            **options,
        },
    )


def _allow_files(connections: int) -> None:
    """Let the process open two files per connection, the client's and the backend's, as far as the system allows."""
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
    """Create a directory in which the workers share metrics, unless one is set. It is removed afterwards."""
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
    """Return the application of one of several workers. The worker ends with the process that started it."""
    threading.Thread(target=_end_with_supervisor, name="callboard-supervisor", daemon=True).start()
    try:
        return _worker_application(settings, level, extend, telemetry)
    except CallboardError as error:
        log.error("a worker cannot start: %s", error)  # noqa: TRY400  # a user's mistake needs no traceback
    except Exception:
        log.exception("a worker cannot start")
    sys.exit(STARTUP_FAILURE)  # with any other status uvicorn would restart it forever


def _worker_application(
    settings: GatewaySettings, level: int, extend: Extend | None, telemetry: TelemetrySettings
) -> ASGIApp:
    """Return the application of a process that logs to standard error."""
    configure_logs(level, telemetry.log_format(os.environ))
    if wants_telemetry(telemetry, os.environ):
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # it warns about each retry
        enable(telemetry)
    app = report_failure(application(settings, extend))
    if any(each.url.startswith("https://") for each in settings.backends):
        load_list()  # slow: the first reply would otherwise block all others
    # Objects made so far stay. Requests leave no cycles, so full collections of their objects are rare: with a
    # thousand open streams, a collection would stop all of them for a tenth of a second. The objects of new streams are
    # looked at in small parts, because each look also stops all streams.
    gc.collect()
    gc.freeze()
    gc.set_threshold(700, 1, 5000)
    return app


def _end_with_supervisor() -> None:
    """Stop this worker in good order when its supervisor is gone. A killed supervisor does not stop its workers."""
    import multiprocessing  # noqa: PLC0415 - the same

    if (supervisor := multiprocessing.parent_process()) is not None:
        supervisor.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _check_certificate(address: Address) -> None:
    if address.private_key and not address.certificate:
        raise CallerError("a private key needs its certificate", path=address.private_key, hint="set --certificate")
    if not address.certificate:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(address.certificate, address.private_key or None)
    except OSError as error:  # includes SSLError
        path = " ".join(filter(None, (address.certificate, address.private_key)))
        hint = "use PEM files, with the key that belongs to the certificate"
        raise CallerError(error.strerror or str(error), path=path, hint=hint) from None


def check_store(settings: GatewaySettings) -> None:
    """Create missing tables of the store. A fault is reported once, in one line, before any process starts."""

    async def start_and_close(store: ResponseStore) -> None:
        try:
            await store.start()
        finally:
            await store.aclose()

    if (store := open_store(settings)) is not None:
        asyncio.run(start_and_close(store))


@asynccontextmanager
async def serve_on_loopback(settings: GatewaySettings) -> AsyncGenerator[str]:
    """Yield the base URL of a gateway with these settings, such as `http://127.0.0.1:40123/v1`.

    The gateway listens on a free port of the loopback interface during the `async with`. Signals stay with the caller,
    so Ctrl-C cancels the caller's command, and the gateway ends with it.
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
