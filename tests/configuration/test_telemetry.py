"""`[telemetry]`: in the user's own file alone, and checked when it is read."""

import pytest

from callboard.errors import CallerError
from callboard.telemetry import TelemetrySettings

WHOLE = """
[telemetry]
endpoint = "http://127.0.0.1:4318"
service_name = "mine"
capture_content = true
max_content = 100
logs = "json"
"""


@pytest.fixture
def load(load_files):
    return lambda text, projects="": load_files(text, projects).telemetry


def test_all_keys(load):
    settings = load(WHOLE)
    assert settings == TelemetrySettings(
        endpoint="http://127.0.0.1:4318", service_name="mine", capture_content=True, max_content=100, logs="json"
    )
    assert load("") == TelemetrySettings()
    assert settings.captures({})
    assert not load("").captures({})
    assert settings.log_format({"CALLBOARD_LOGS": "text"}) == "text"
    assert load("").log_format({"CALLBOARD_LOGS": "json"}) == "json"


def test_no_project_says_where_what_you_do_is_told(load):
    with pytest.raises(CallerError, match="a project cannot configure your telemetry"):
        load("", WHOLE)


@pytest.mark.parametrize("line", ['endpoint = "ftp://x"', 'logs = "xml"', "max_content = -1", 'else = "x"'])
def test_a_wrong_value_is_refused(load, line):
    with pytest.raises(CallerError):
        load(f"[telemetry]\n{line}\n")
