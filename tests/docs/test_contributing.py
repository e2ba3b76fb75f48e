"""Each step of CONTRIBUTING.md is performed in a copy of the source, and each proof run there."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w+) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = [match.groups() for match in BLOCK.finditer(PAGE)]
PROOFS = [body for language, mark, body in BLOCKS if (language, mark) == ("python", "proof")]
PRINTED = [body for language, _, body in BLOCKS if language == "text"]
BORDER = "-- next --"


def apply(diff, root):
    """Puts each part of a change where its lines are once in the file."""
    head, _, *parts = re.split(r"^(?:\+\+\+ .*|@@)\n", diff, flags=re.MULTILINE)
    path = root / head.strip().removeprefix("--- a/")
    for part in parts:
        lines = part.splitlines()
        before = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
        after = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
        text = path.read_text("utf-8")
        assert text.count(before) == 1, f"{path.name}: these lines are there {text.count(before)} times:\n{before}"
        path.write_text(text.replace(before, after), "utf-8")


def install(plugin):
    """Makes a package's entry points known, as pip does."""
    project = tomllib.loads((plugin / "pyproject.toml").read_text("utf-8"))["project"]
    known = plugin / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    known.mkdir()
    (known / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    (known / "entry_points.txt").write_text(
        "".join(f"[{group}]\n{name} = {value}\n" for group, points in groups for name, value in points.items())
    )


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What the proofs print, one after the other, in a source with all the steps."""
    root = tmp_path_factory.mktemp("contribution")
    shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for language, mark, body in BLOCKS:
        if language == "diff":
            apply(body, root)
        elif language in {"python", "toml"} and mark not in {"", "proof"}:
            (root / mark).parent.mkdir(parents=True, exist_ok=True)
            (root / mark).write_text(body, "utf-8")
    install(root / "plugin")
    programs = f"\nprint({BORDER!r})\n".join(PROOFS)
    path = os.pathsep.join([str(root / "src"), str(root / "plugin"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", programs],
        env={**os.environ, "PYTHONPATH": path},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(f"{BORDER}\n")


@pytest.mark.parametrize("number", range(len(PROOFS)))
def test_a_newcomer_s_steps_do_what_they_say(printed, number):
    assert printed[number] == PRINTED[number]


def test_every_section_that_adds_something_proves_it():
    sections = [each for each in PAGE.split("\n## ")[1:] if each.startswith("A ")]
    assert len(sections) == 7
    assert all("```python proof" in each for each in sections)
