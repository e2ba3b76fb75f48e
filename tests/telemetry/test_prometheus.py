"""Figures for Prometheus: each that the dashboard names is there, and the page is for this machine alone."""

import json
import re
import socket
import urllib.error
import urllib.request
from contextlib import closing
from importlib.resources import files

import pytest

from callboard.core import Usage
from callboard.errors import CallerError
from callboard.jobs.metrics import WorkerMetrics
from callboard.servers.gateway.metrics import Metrics
from callboard.telemetry.counts import count_tool_call
from callboard.telemetry.prometheus import MetricsPage

DASHBOARD = json.loads((files("callboard.telemetry") / "grafana.json").read_text("utf-8"))


def figures():
    """The pages of a gateway and of a worker, by the names of their figures."""
    gateway = Metrics()
    gateway.begin_request()
    gateway.end_request("chat", "b", "stop", 1.0, Usage(1, 1), cost=0.1)
    gateway.set_breaker("b", is_open=False)
    gateway.add_quotations("b", 1)
    worker = WorkerMetrics(lambda: {"pending": 1})
    count_tool_call("divide", 0.1, "execution")
    page = (gateway.render() + worker.render()).decode()
    return {line.split("{")[0].split(" ")[0] for line in page.splitlines() if line and not line.startswith("#")} | {
        line.split(" ")[2] for line in page.splitlines() if line.startswith("# TYPE")
    }


def expressions():
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]


def test_every_figure_of_the_dashboard_is_there():
    named = {name for each in expressions() for name in re.findall(r"callboard_\w+", each)}
    there = figures()
    stems = {name.removesuffix("_bucket") for name in named}
    assert stems - there == set()
    shown = {re.sub(r"_(total|bucket|count|sum|created)$", "", name) for name in named}
    assert {re.sub(r"_(total|bucket|count|sum|created)$", "", name) for name in there} == shown


def test_the_dashboard_is_one_that_grafana_takes():
    panels = DASHBOARD["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in panels]
    assert len(set(places)) == len(places)
    assert all(each["gridPos"]["x"] + each["gridPos"]["w"] <= 24 for each in panels)
    assert all(each.count("(") == each.count(")") for each in expressions())


def get(url, **headers):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
        return answer.read().decode()


def test_the_page_is_for_this_machine():
    with closing(MetricsPage(0, lambda: b"figure 1\n")) as page:
        url = f"http://127.0.0.1:{page.port}"
        assert get(f"{url}/metrics") == "figure 1\n"
        for path, host, status in (("/metrics", "evil.example:80", 421), ("/", "127.0.0.1:1", 404)):
            with pytest.raises(urllib.error.HTTPError) as refusal:
                get(url + path, Host=host)
            refusal.value.close()
            assert refusal.value.code == status


def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(CallerError, match="--metrics"):
        MetricsPage(taken.getsockname()[1], bytes)
