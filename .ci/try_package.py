# ruff: noqa: INP001, S603, T201  # a script: no package; it starts programs and prints
"""Build the sdist and the wheel, try the wheel in clean environments, and write an SBOM.

`make package` runs this script with the Python of the development environment. For each interpreter from 3.11 to 3.14 on
the search path it installs the wheel alone and asks a scripted model for a call; on the interpreter that runs the script
it also installs each extra alone, all extras together, and the lowest versions that `pyproject.toml` allows. The SBOM
lists what is installed with all extras. The first argument is a Python that has cyclonedx-bom.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from licenses import is_allowed, read_licenses

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

INSTALLED_FILES = """
import importlib.metadata

names = [str(file) for file in importlib.metadata.files("callboard")]
assert "callboard/py.typed" in names and any(name.endswith("licenses/LICENSE") for name in names), names
assert {name.partition("/")[0].partition("-")[0] for name in names} <= {"..", "callboard"}, names
"""


def main() -> int:
    """Build, try, and return the number of failures."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    subprocess.run([sys.executable, "-m", "hatchling", "build"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    wheel, sdist = (next((ROOT / "dist").glob(pattern)) for pattern in ("*.whl", "*.tar.gz"))
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
    failures += try_wheel(f"python {here}, from the sdist", sys.executable, [str(sdist)])
    for extra in extras:
        failures += try_wheel(f"python {here}, [{extra}]", sys.executable, [f"{wheel}[{extra}]"])
    name = f"callboard-{wheel.name.split('-')[1]}"
    sbom, listed = (ROOT / "dist" / f"{name}.{suffix}" for suffix in ("cdx.json", "licenses.txt"))
    failures += try_wheel(f"python {here}, all extras", sys.executable, [f"{wheel}[{','.join(extras)}]"], sbom)
    failures += list_licenses(sbom, listed)
    lowest = [re.sub(r">=([\d.]+).*", r"==\1", need) for need in project["dependencies"]]
    failures += try_wheel(f"python {here}, lowest versions", sys.executable, [str(wheel), *lowest])
    return failures


def list_licenses(sbom: Path, listed: Path) -> int:
    """Write the license of each component of the SBOM to `listed`, and return the number that are not known or allowed."""
    rows = sorted(read_licenses(sbom)) if sbom.exists() else []
    listed.write_text("".join([f"{name} {version}: {license_ or 'unknown'}\n" for name, version, license_ in rows]))
    refused = [row for row in rows if not is_allowed(row[2])]
    for name, version, license_ in refused:
        print(f"{name} {version}: the license {license_ or '(unknown)'} is not in the list of .ci/licenses.py")
    print(f"{sbom.relative_to(ROOT)}, {listed.relative_to(ROOT)}: {len(rows)} packages")
    return len(refused) or not rows


def try_wheel(title: str, python: str, requirements: list[str], sbom: Path | None = None) -> bool:
    """Install `requirements` in a new environment, run the first call there, print one line, and return True if it failed.

    If `sbom` is given, the installed packages are written there as a CycloneDX document.
    """
    with tempfile.TemporaryDirectory() as folder:
        inside = str(Path(folder) / "bin" / "python")
        pip = [inside, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--only-binary", ":all:"]
        steps = [
            [python, "-m", "venv", folder],
            [*pip, *requirements],
            [inside, "-m", "callboard", "--version"],
            [inside, "-c", INSTALLED_FILES],
            [inside, "-W", "error", "-c", FIRST_CALL],
        ]
        if sbom is not None:
            tool = [str(Path(sys.argv[1]).absolute()), "-m", "cyclonedx_py", "environment", "--output-reproducible"]
            options = ["--mc-type", "library", "--pyproject", str(ROOT / "pyproject.toml"), "--output-file", str(sbom)]
            steps += [[inside, "-m", "pip", "uninstall", "--quiet", "--yes", "setuptools", "pip"]]
            steps += [[*tool, *options, inside]]
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
