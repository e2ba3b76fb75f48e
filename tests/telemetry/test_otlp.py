"""What a collector gets: OTLP of two processes that an MCP call joins, decoded by the protocol's own messages."""

import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from callboard.errors import CallerError
from callboard.telemetry import TelemetrySettings, enable, names, switch, wants_telemetry
from callboard.telemetry.recorder import send_metrics

PROGRAM = Path(__file__).with_name("traced_program.py")
URL = "http://127.0.0.1:4318"
SECRET = "sk-abcdefghijklmnopqrstuvwxyz"
REQUIRED: Mapping[str, set[str]] = {
    "chat": {names.OPERATION, names.PROVIDER, names.REQUEST_MODEL, names.SERVER_ADDRESS, names.SERVER_PORT},
    "invoke_agent": {names.OPERATION, names.PROVIDER, names.REQUEST_MODEL},
    "execute_tool": {names.OPERATION, names.TOOL_NAME, names.TOOL_CALL_ID},
    "tools/call": {names.MCP_METHOD, names.OPERATION, names.TOOL_NAME},
}
"""Of the conventions: what a span of an operation has, as far as it is there to be known."""


class Receiver:
    """A collector on loopback: `spans` by service, those that are `ours` and not of MCP's SDK, and `metrics`."""

    def __init__(self):
        self.spans = []
        self.ours = []
        self.metrics = []
        self.bodies = []

    def take(self, path, body):
        self.bodies.append(body)
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                service = attributes(resource.resource)["service.name"]
                self.spans += [(service, each) for scope in resource.scope_spans for each in scope.spans]
                self.ours += [
                    each for scope in resource.scope_spans if scope.scope.name == names.SCOPE for each in scope.spans
                ]
        else:
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.metrics += [each for scope in resource.scope_metrics for each in scope.metrics]

    def named(self, name):
        (span,) = [(service, each) for service, each in self.spans if each.name == name]
        return span


def attributes(holder):
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in holder.attributes}


@pytest.fixture
def receiver():
    there = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            there.take(self.path, gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    there.url = f"http://127.0.0.1:{server.server_port}"
    yield there
    server.shutdown()
    thread.join()
    server.server_close()


def run(receiver, home):
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_SERVICE_NAME": "agent"}
    command = [sys.executable, str(PROGRAM), receiver.url, str(home)]
    ran = subprocess.run(command, env={**environment, "HOME": str(home)}, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "42\n"), ran.stderr
    return ran


def test_a_collector_gets_one_trace_of_two_processes(receiver, tmp_path):
    run(receiver, tmp_path)
    sender, client = receiver.named("MCP send tools/call multiply")
    answerer, server = receiver.named("tools/call multiply")
    tools = [(service, each) for service, each in receiver.spans if each.name.startswith("execute_tool")]
    ours, theirs = sorted(tools, key=lambda each: each[0])
    assert (sender, answerer, ours[0], theirs[0]) == ("agent", "server", "agent", "server")
    assert {client.trace_id} == {server.trace_id, ours[1].trace_id, theirs[1].trace_id}
    assert client.parent_span_id == ours[1].span_id
    assert server.parent_span_id == client.span_id
    assert theirs[1].parent_span_id == server.span_id
    assert attributes(server)[names.MCP_METHOD] == "tools/call"
    assert attributes(server)[names.OPERATION] == names.EXECUTE_TOOL
    _, agent = receiver.named("invoke_agent")
    assert ours[1].parent_span_id == agent.span_id
    assert SECRET.encode() not in b"".join(receiver.bodies)
    check_failures(receiver)
    check_conventions(receiver)


def check_failures(receiver):
    """Of a request that a server refuses both sides tell a code, and not what the server wrote."""
    for name in ("MCP send prompts/get greeting", "prompts/get"):
        _, span = receiver.named(name)
        assert attributes(span)[names.ERROR_TYPE] == "-32601"
        assert (span.status.code, span.status.message, [*span.events]) == (Status.STATUS_CODE_ERROR, "", [])


def check_conventions(receiver):
    """Spans have what the conventions require, and nothing that is in no table of ours."""
    known = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    for span in receiver.ours:
        assert REQUIRED.get(span.name.split(" ")[0], {names.MCP_METHOD}) <= set(attributes(span)) <= known
    metrics = {each.name: each for each in receiver.metrics}
    assert set(metrics) == {
        "gen_ai.client.operation.duration",
        "gen_ai.client.operation.time_to_first_chunk",
        "gen_ai.client.token.usage",
        "gen_ai.execute_tool.duration",
        "gen_ai.invoke_agent.duration",
        "mcp.client.operation.duration",
        "mcp.server.operation.duration",
    }
    assert metrics["gen_ai.client.operation.duration"].unit == "s"


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL: no protocol 'grpc'"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER: no exporter 'zipkin'"),
    ],
)
def test_what_cannot_be_sent_is_said(variables, words, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CallerError, match=words):
        enable()
    assert switch.recorder is None


def test_a_programs_own_provider_is_used():
    code = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
from callboard.telemetry import disable, enable, open_span
enable()
open_span("mine").end()
disable()
with provider.get_tracer("x").start_as_current_span("after"):
    pass
print([each.name for each in exporter.get_finished_spans()])
"""
    environment = {**os.environ, "OTEL_METRICS_EXPORTER": "none"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "['mine', 'after']\n"


def test_where_it_goes_is_what_turns_it_on():
    here = TelemetrySettings(endpoint=URL)
    assert wants_telemetry(here, {})
    assert not wants_telemetry(here, {"OTEL_SDK_DISABLED": "true"})
    assert not wants_telemetry(TelemetrySettings(), {})
    assert wants_telemetry(TelemetrySettings(), {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": URL})


def test_a_collector_without_metrics_is_named_once_with_what_helps(caplog):
    """Phoenix takes traces only."""

    class Refuse(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_error(405)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refuse) as server:
        threading.Thread(target=server.serve_forever).start()
        provider = send_metrics(f"http://127.0.0.1:{server.server_port}/v1/metrics", 5.0, "callboard")
        counter = provider.get_meter("test").create_counter("calls")
        for _ in range(2):
            counter.add(1)
            provider.force_flush()
        provider.shutdown()
        server.shutdown()
    hint = "the collector takes no metrics (HTTP 405); OTEL_METRICS_EXPORTER=none turns them off"
    assert [each.getMessage() for each in caplog.records if "metrics" in each.getMessage()] == [hint]
