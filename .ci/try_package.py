# ruff: noqa: INP001, S603, T201  # a script: no package; it starts programs and prints
"""Build the sdist and the wheel, and try the wheel in clean environments.

`make package` runs this script with the Python of the development environment. For each interpreter from 3.11 to 3.14 on
the search path it installs the wheel alone and asks a scripted model for a call; on the interpreter that runs the script
it also installs each extra alone, all extras together, and the lowest versions that `pyproject.toml` allows.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ["3.11", "3.12", "3.13", "3.14"]
FIRST_CALL = """
from callboard import Agent, tool
from callboard.testing import Call, ScriptedModel

@tool
def double(number: int) -> int:
    "Double a number."
    return 2 * number

result = Agent(ScriptedModel([Call("double", {"number": "21"}), "It is 42."]), [double]).run_sync("Twice 21?")
assert result.output == "It is 42.", result
"""


def main() -> int:
    """Build, try, and return the number of failures."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    subprocess.run([sys.executable, "-m", "hatchling", "build"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    wheel = next((ROOT / "dist").glob("*.whl"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = sorted(set(project["optional-dependencies"]) - {"dev"})
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    failures = 0
    for version in VERSIONS:
        python = sys.executable if version == here else shutil.which(f"python{version}")
        if not python or subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode:
            print(f"python {version}: not on this machine")
            continue
        failures += try_wheel(f"python {version}, no extra", python, [str(wheel)])
    for extra in [*extras, ",".join(extras)]:
        failures += try_wheel(f"python {here}, [{extra}]", sys.executable, [f"{wheel}[{extra}]"])
    lowest = [re.sub(r">=([\d.]+).*", r"==\1", need) for need in project["dependencies"]]
    failures += try_wheel(f"python {here}, lowest versions", sys.executable, [str(wheel), *lowest])
    return failures


def try_wheel(title: str, python: str, requirements: list[str]) -> bool:
    """Install `requirements` in a new environment, run the first call there, print one line, and return True if it failed."""
    with tempfile.TemporaryDirectory() as folder:
        inside = str(Path(folder) / "bin" / "python")
        pip = [inside, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--only-binary", ":all:"]
        steps = [
            [python, "-m", "venv", folder],
            [*pip, *requirements],
            [inside, "-m", "callboard", "--version"],
            [inside, "-W", "error", "-c", FIRST_CALL],
        ]
        for step in steps:
            ran = subprocess.run(
                step, check=False, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            if ran.returncode:
                print(f"{title}: failed\n{ran.stdout}", flush=True)
                return True
    print(f"{title}: works", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())
