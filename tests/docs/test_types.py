"""The pages' Python is sound for type checkers, as a user of mypy or pyright would see it.

Each block is a module that imports from those before it what it uses of theirs, and its lines stand where they stand in
the page: `pages/agents/line_0183.py:190` is line 190 of agents.md. Each checker runs once, over all of them.
"""

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from symtable import symtable

import pytest
from mypy import api

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
"""A first page need not say `-> None`."""
FENCE = re.compile(r"^```python[^\n]*\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


def scopes(table):
    yield table
    for child in table.get_children():
        yield from scopes(child)


def names_of(body):
    """The names that a block binds, and those that it uses without binding them."""
    table = symtable(body, "block", "exec")
    bound = {each.get_name() for each in table.get_symbols() if each.is_assigned() or each.is_imported()}
    used = {
        each.get_name()
        for scope in scopes(table)
        for each in scope.get_symbols()
        if each.is_referenced() and (scope is table or each.is_global())
    }
    return bound, used - bound


def imports_of(body):
    """The import of each name that a block imports at its top."""
    for node in ast.parse(body).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                node.names = [alias]
                yield alias.asname or alias.name.partition(".")[0], ast.unparse(node)


def write_modules(place):
    """Every Python block as a module of the package `pages` in PLACE."""
    for page in PAGES:
        package = place / "pages" / page.stem.lower()
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        origins = {}
        text = page.read_text("utf-8")
        for fence in FENCE.finditer(text):
            line = text.count("\n", 0, fence.start("body")) + 1
            module = f"line_{line:04}"
            bound, missing = names_of(fence["body"])
            head = "; ".join(sorted({origins[name] for name in missing if name in origins}))
            (package / f"{module}.py").write_text(head + "\n" * (line - 1) + fence["body"], "utf-8")
            origins |= {name: f"from pages.{package.name}.{module} import {name}" for name in bound}
            origins |= dict(imports_of(fence["body"]))
    (place / "pages" / "__init__.py").touch()
    shutil.copy(Path(__file__).parent / "user_code.py", place / "pages")


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    place = tmp_path_factory.mktemp("blocks")
    write_modules(place)
    return place


def test_the_examples_pass_mypy_strict(modules):
    # With the configuration and the cache of `make check`, which has read callboard before.
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    limit = sys.getrecursionlimit()
    try:
        report, mistakes, _ = api.run([*options, "--no-error-summary", str(modules / "pages")])
    finally:
        sys.setrecursionlimit(limit)  # mypy raises it
    assert not report + mistakes, report.replace(f"{modules}/", "") + mistakes


def test_the_examples_pass_pyright(modules):
    settings = {"extraPaths": [str(ROOT / "src")], "typeCheckingMode": "standard"}
    (modules / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--project", str(modules)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout.replace(f"{modules}/", "") + done.stderr
