"""Every bench can be started; `make bench` and its relatives show that each measures."""

from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BENCHES = sorted(path.stem for path in (ROOT / "bench").glob("*.py"))


@pytest.mark.parametrize("name", BENCHES)
def test_a_bench_is_a_module_that_can_be_started(name, monkeypatch):
    """As a script it would put its folder before the peers' packages, and `agents.py` is the name of one."""
    monkeypatch.syspath_prepend(ROOT)
    import_module(f"bench.{name}")
    commands = (ROOT / "Makefile").read_text("utf-8").splitlines()
    assert any(line.removesuffix(" $(OPTIONS)").endswith(f"python -m bench.{name}") for line in commands)
