"""Every bench can be started; `make bench` and its relatives show that each measures."""

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BENCHES = sorted(path.stem for path in (ROOT / "bench").glob("*.py"))
PARTS = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for path in (ROOT / "bench").glob("*/**/*.py")
)


@pytest.mark.parametrize("name", BENCHES)
def test_a_bench_is_a_module_that_can_be_started(name, monkeypatch):
    """As a script it would put its folder before the peers' packages, and `agents.py` is the name of one."""
    monkeypatch.syspath_prepend(ROOT)
    import_module(f"bench.{name}")
    commands = (ROOT / "Makefile").read_text("utf-8").splitlines()
    assert any(line.removesuffix(" $(OPTIONS)").endswith(f"python -m bench.{name}") for line in commands)


@pytest.mark.parametrize("name", PARTS)
def test_what_a_part_of_a_bench_imports_exists(name, monkeypatch):
    """The imports of this repository are checked also if the packages of a contender are not installed."""
    monkeypatch.syspath_prepend(ROOT)
    tree = ast.parse((ROOT / f"{name.replace('.', '/')}.py").read_text("utf-8"))
    for node in ast.walk(tree):
        names = [node.module] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for module in names:
            if module.partition(".")[0] not in ("bench", "callboard"):
                continue
            assert find_spec(module), f"{name}: there is no module {module}"
            if isinstance(node, ast.ImportFrom):
                found = import_module(module)
                missing = [
                    alias.name
                    for alias in node.names
                    if not hasattr(found, alias.name)
                    and not (hasattr(found, "__path__") and find_spec(f"{module}.{alias.name}"))
                ]
                assert not missing, f"{name}: {module} has no {missing}"
