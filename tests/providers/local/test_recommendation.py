"""The default model of the coding agents: the best that is installed and fits."""

import pytest
from tests.tables import table

from callboard.configuration.settings import CODING_MODEL, load_coding_settings
from callboard.providers.local.memory import Memory
from callboard.providers.local.model_files import directory
from callboard.providers.local.recommendation import describe_too_small, installed_coding_model

LARGE = Memory(total=64 << 30, free=60 << 30)
SMALL = Memory(total=4 << 30, free=3 << 30)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts files of models where pulled ones are."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    def install(*names):
        directory().mkdir(parents=True, exist_ok=True)
        for name in names:
            (directory() / f"{name}.gguf").touch()

    return install


@table(
    ("names", "memory", "model"),
    [
        ((), LARGE, ""),
        (("qwen2.5-coder-0.5b",), LARGE, ""),
        (("qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"), LARGE, "local:qwen2.5-coder-1.5b"),
        (("qwen2.5-coder-1.5b",), Memory(total=2 << 30, free=1 << 30), ""),
    ],
)
def test_the_best_installed_model_that_fits(install, names, memory, model):
    for file in directory().glob("*.gguf") if directory().exists() else ():
        file.unlink()
    install(*names)
    assert installed_coding_model(memory) == model


def test_without_an_installed_model_the_default_is_one_that_can_do_it(install, tmp_path):
    install()
    assert load_coding_settings({}, tmp_path, {"XDG_CONFIG_HOME": str(tmp_path)}).model == CODING_MODEL


def test_a_model_that_is_too_small_says_what_to_expect_and_what_is_better():
    text = describe_too_small("local:qwen2.5-coder-0.5b", SMALL)
    assert "it fixed none of 10" in text
    assert text.endswith("callboard models pull qwen2.5-coder-1.5b")
    assert describe_too_small("openai:gpt-5", SMALL) == describe_too_small("local:qwen2.5-coder-1.5b", SMALL) == ""
