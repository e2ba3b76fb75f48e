"""A package that adds a profile, a dialect and a provider: installed as pip leaves it, seen by a new process."""

import subprocess
import sys

ADDED = """
from callboard.dialects import JSON
from callboard.testing import ScriptedModel
from callboard.wires import WIRES
from msgspec.structs import replace

PROFILES = {
    "families": [{"name": "acme", "patterns": ["acme"], "uses_tools": True, "dialect": "acme_json"}],
    "endpoints": {"acme": {"wire": "acme_wire"}},
}
DIALECT = replace(JSON, name="acme_json")
WIRE = replace(WIRES["chat"], name="acme_wire")


class PROVIDER:
    name = "acme"

    @staticmethod
    def access(resolution, plan, *, base_url, api_key):
        return ScriptedModel([f"This is {resolution.model} over {resolution.profile.wire}."])
"""
POINTS = """
[callboard.profiles]
acme = acme_plugin:PROFILES
[callboard.dialects]
acme = acme_plugin:DIALECT
[callboard.wires]
acme = acme_plugin:WIRE
[callboard.providers]
acme = acme_plugin:PROVIDER
"""
ASK = """
from callboard import Agent, access_model
from callboard.modes import make_plan
from callboard.profiles import resolve
from callboard.wires import get_wire
decided = make_plan(resolve("acme-9b"))
print(decided.mode.name, decided.dialect.name, get_wire("acme_wire").path(None))
print(Agent(access_model("acme:zork")).run_sync("Who?").output)
"""


def install(folder, points):
    (folder / "acme_plugin.py").write_text(ADDED)
    about = folder / "acme_plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-plugin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(points)


def ask(folder):
    return subprocess.run(
        [sys.executable, "-c", ASK], env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False
    )


def test_what_a_package_adds_is_used(tmp_path):
    install(tmp_path, POINTS)
    asked = ask(tmp_path)
    assert (asked.stdout, asked.stderr) == (
        "native acme_json /chat/completions\nThis is zork over acme_wire.\n",
        "",
    )


def test_a_package_that_cannot_be_loaded_is_named(tmp_path):
    install(tmp_path, "[callboard.profiles]\nacme = acme_plugin:MISSING\n")
    assert "callboard.profiles: the plug-in 'acme' of acme-plugin cannot be loaded" in ask(tmp_path).stderr
