"""Prometheus metrics that several processes share, and a page for them on loopback. This needs `prometheus_client`.

Law: no model, client or job chooses a label. Labels are names of existing tools, kinds, states and categories.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable
from functools import cache
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest, multiprocess

from callboard.errors import CallerError
from callboard.telemetry.counts import Outcome, listen_to_tool_calls

_SECONDS: Final = (0.005, 0.02, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_ADDRESS: Final = "127.0.0.1"
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


class ToolMetrics:
    """The calls of tools in this process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        options: dict[str, Any] = {"registry": self.registry}
        self._calls = Counter(
            "callboard_tool_calls",
            'Calls of tools by the category of their failure, "" for none',
            ["tool", "failure"],
            **options,
        )
        self._seconds = Histogram(
            "callboard_tool_seconds", "Seconds of a tool's call", ["tool"], buckets=_SECONDS, **options
        )
        listen_to_tool_calls(self.add_call)

    def add_call(self, tool: str, seconds: float, failure: Outcome) -> None:
        self._calls.labels(tool, failure).inc()
        self._seconds.labels(tool).observe(seconds)


@cache
def tool_metrics() -> ToolMetrics:
    """Return the metrics of this process, which count from the first call on."""
    return ToolMetrics()


def render_metrics(registries: Iterable[CollectorRegistry]) -> bytes:
    """Return the metrics in the exposition format. PROMETHEUS_MULTIPROC_DIR adds the metrics of all processes."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return b"".join([generate_latest(each) for each in registries])
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)


class MetricsPage:
    """`/metrics` on a port of this machine's loopback, served by a thread while it is open.

    Args:
        port: The port. With 0, a free port is used; `port` has its number.
        render: Returns the page.

    Raises:
        CallerError: The port is taken.
    """

    def __init__(self, port: int, render: Callable[[], bytes]) -> None:
        self._render = render
        try:
            self._server = make_server(_ADDRESS, port, self._answer, _Server, _Handler)
        except OSError as error:
            raise CallerError(
                error.strerror or str(error), path=f"--metrics {port}", hint="take another port"
            ) from None
        self.port: int = self._server.server_port
        threading.Thread(target=self._server.serve_forever, name="callboard-metrics", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: dict[str, Any], start: Callable[..., object]) -> list[bytes]:
        # Refuse web pages whose host name resolves to this machine.
        if request.get("HTTP_HOST", "").rpartition(":")[0] not in _HOSTS:
            start("421 Misdirected Request", [("Content-Type", "text/plain")])
            return [b"ask for 127.0.0.1\n"]
        if request["PATH_INFO"] != "/metrics" or request["REQUEST_METHOD"] != "GET":
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"there is only GET /metrics\n"]
        start("200 OK", [("Content-Type", CONTENT_TYPE)])
        return [self._render()]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 16

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        connection.settimeout(10)  # close silent connections
        return connection, address


class _Handler(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        pass
