"""The files of deploy, the image and compose.yaml name only options, variables and files that there are."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml

from callboard.servers.gateway.configuration import load_gateway_settings

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy/helm/callboard"
UNITS = sorted((ROOT / "deploy/systemd").glob("*.service"))
FILES = [ROOT / "Dockerfile", ROOT / "compose.yaml", *UNITS, *sorted((ROOT / "deploy").rglob("*.*"))]
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))


def chart_commands():
    """The mode that each template starts, and its flags; what stands in braces is Helm's."""
    for path in CHART.glob("templates/*.yaml"):
        text = re.sub(r"#.*", "", path.read_text("utf-8"))
        if mode := re.search(r"args:\s*(?:\[|- )(\w+)", text):
            yield path.name, [mode[1], *re.findall(r"--[a-z][a-z-]+", text)]


COMMANDS = [
    *[(f"compose.yaml {name}", each["command"]) for name, each in COMPOSE["services"].items() if "command" in each],
    *[(path.name, shlex.split(re.search("ExecStart=.*", path.read_text("utf-8"))[0])[1:]) for path in UNITS],
    *chart_commands(),
]


@pytest.mark.parametrize("mode", ["serve", "worker", "board", "migrate"])
def test_each_flag_is_one_of_its_command(mode):
    commands = {name: args for name, args in COMMANDS if args[0] == mode}
    assert len(commands) >= 2
    known = set(
        re.findall(
            r"--[a-z][a-z-]+", subprocess.check_output([sys.executable, "-m", "callboard", mode, "--help"], text=True)
        )
    )
    flags = {name: {each for each in args if each.startswith("--")} for name, args in commands.items()}
    assert {name: each - known for name, each in flags.items() if each - known} == {}


def test_no_other_command_is_started():
    assert {args[0] for _, args in COMMANDS} == {"serve", "worker", "board", "migrate"}


def test_each_variable_is_read_by_the_code():
    code = "".join([path.read_text("utf-8") for path in (ROOT / "src").rglob("*.*") if path.suffix in {".py", ".toml"}])
    named = {
        name for path in FILES for name in re.findall(r"\b(?:CALLBOARD_|OPENAI_)[A-Z_]+\b", path.read_text("utf-8"))
    }
    assert {"CALLBOARD_DATABASE_URL", "CALLBOARD_STORE_URL", "CALLBOARD_GATEWAY_KEYS"} <= named
    assert {name for name in named if f'"{name}"' not in code} == set()


def test_the_example_settings_of_a_gateway_are_valid(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    chart = tmp_path / "gateway.toml"
    chart.write_text(yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))["gateway"]["config"], "utf-8")
    ours, charts = (load_gateway_settings(str(path), {}, None) for path in (ROOT / "deploy/gateway.toml", chart))
    assert ours == charts
    assert ours.backends[0].key == "sk-1"


def test_the_image_copies_files_that_reach_its_build():
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line.startswith("!")]
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    for path in " ".join(copied).split():
        assert (ROOT / path).exists(), path
        assert any(fnmatch(path, each) for each in allowed), path


def test_a_port_of_compose_is_open_on_this_machine_only():
    ports = [port for each in COMPOSE["services"].values() for port in each.get("ports", ())]
    assert len(ports) == 2
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_pages_quote_the_units_as_they_are():
    quoted = {
        block
        for page in (ROOT / "docs").glob("*.md")
        for block in re.findall(r"```ini\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    }
    assert quoted
    assert quoted <= {path.read_text("utf-8") for path in UNITS}
