"""What the tests of dialects share: the checks of the fuzzer."""

import importlib.util
import sys
from pathlib import Path

import pytest

FUZZER = Path(__file__).parents[2] / "fuzz/dialects.py"


@pytest.fixture(scope="session")
def fuzzer():
    spec = importlib.util.spec_from_file_location("fuzz_dialects", FUZZER)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where annotations are looked up
    spec.loader.exec_module(module)
    return module
