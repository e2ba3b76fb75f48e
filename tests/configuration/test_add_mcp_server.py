"""What was found out of a model, written into a file of settings."""

from __future__ import annotations

import pytest

from callboard.configuration import load_settings
from callboard.configuration.add_mcp_server import write_profile
from callboard.errors import CallerError

REMARK = "found out by callboard doctor,\n2026-11-22"


def facts_of(path, model):
    return load_settings({}, path.parent, {"XDG_CONFIG_HOME": str(path.parent.parent)}).profile(model)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "callboard" / "callboard.toml"


def test_facts_are_added_to_what_is_there(path):
    path.parent.mkdir()
    path.write_text("# mine\nmodel = 'x'  # this one")
    write_profile(path, "Qwen/Qwen3.6-27B-Q4_K_M", {"merge_system_messages": True, "efforts": ["low"]}, REMARK)
    text = path.read_text()
    assert text.startswith(
        "# mine\nmodel = 'x'  # this one\n\n[profiles.\"qwen3.6-27b\"]\n# found out by callboard doctor, 2026"
    )
    assert path.stat().st_mode & 0o777 == 0o600
    assert facts_of(path, "qwen3.6-27b") == {"merge_system_messages": True, "efforts": ["low"]}


def test_facts_that_were_found_out_before_are_replaced_and_the_persons_own_stay(path):
    write_profile(path, "m", {"merge_system_messages": True, "context_tokens": 4096}, REMARK)
    path.write_text(path.read_text() + "temperature = 0.5\n\n[profiles.other]\ncontext_tokens = 1\n")
    write_profile(path, "m", {"context_tokens": 8192}, REMARK)
    assert facts_of(path, "m") == {"merge_system_messages": True, "context_tokens": 8192, "temperature": 0.5}
    assert facts_of(path, "other") == {"context_tokens": 1}
    assert path.read_text().count("# found out") == 1


@pytest.mark.parametrize("text", ["profiles = { m = { context_tokens = 1 } }\n", "[profiles]\nm.context_tokens = 1\n"])
def test_a_table_that_is_written_otherwise_is_left_as_it_is(path, text):
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(
        CallerError, match=r"the facts cannot be added; write yourself:\n\[profiles.\"m\"\]\n"
    ) as caught:
        write_profile(path, "m", {"supports_streaming": False}, REMARK)
    assert "context_tokens = 1\nsupports_streaming = false" in str(caught.value)
    assert path.read_text() == text
