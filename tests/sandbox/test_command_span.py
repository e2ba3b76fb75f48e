"""What is told of a command: its program and how it ended; its arguments only where content is asked for."""

import asyncio
import sys

import pytest

from callboard.sandbox import CommandLimits, Confinement
from callboard.sandbox.supervised_run import Unconfined

SECRET = "sk-abcdefghijklmnopqrstuvwxyz"


def run(tmp_path, program, **limits):
    confinement = Confinement(workspace=tmp_path, limits=CommandLimits(**limits))
    return asyncio.run(Unconfined().run([sys.executable, "-c", program], confinement))


@pytest.mark.parametrize("capture", [False, True])
def test_a_command_is_a_span(telemetry, tmp_path, capture):
    told = telemetry(capture_content=capture)
    run(tmp_path, f"print('{SECRET}'); raise SystemExit(3)")
    (span,) = told.spans
    about = dict(span.attributes)
    arguments = about.pop("process.command_args", None)
    assert span.name == f"execute_command {about['process.executable.name']}"
    assert about["process.exit.code"] == 3
    assert about["callboard.sandbox.name"] == "none"
    assert len(about) == 3
    assert (arguments is not None) == capture
    assert SECRET not in span.to_json()


def test_a_command_that_is_ended_failed(telemetry, tmp_path):
    told = telemetry()
    run(tmp_path, "import time; time.sleep(600)", seconds=0.1)
    assert told.spans[0].attributes["error.type"] == "timeout"
    assert told.spans[0].attributes["callboard.command.stop_reason"] == "timeout"
