"""Telemetry that is asked for and cannot be had: by variables, which may be there for other programs, or by settings."""

import sys

import pytest

from callboard.cli.settings import start_telemetry
from callboard.errors import CallerError
from callboard.telemetry import TelemetrySettings, switch

ENDPOINT = "http://127.0.0.1:9"


@pytest.fixture(params=["the extra is missing", "another protocol"])
def cannot_be_had(request, monkeypatch):
    if request.param == "another protocol":
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        return "no protocol 'grpc'"
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    return "pip install 'callboard[otel]'"


def test_where_variables_alone_ask_for_it_the_command_says_so_and_goes_on(cannot_be_had, monkeypatch, capsys):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", ENDPOINT)
    start_telemetry(TelemetrySettings())
    said = capsys.readouterr().err
    assert said.startswith("callboard: warning: no telemetry is sent: ")
    assert cannot_be_had in said
    assert switch.recorder is None


def test_where_the_settings_ask_for_it_the_command_is_refused(cannot_be_had):
    with pytest.raises(CallerError) as refused:
        start_telemetry(TelemetrySettings(endpoint=ENDPOINT))
    assert cannot_be_had in str(refused.value)
