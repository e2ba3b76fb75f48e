from pathlib import Path

import pytest

from callboard.storage.directories import data_directory, state_directory


@pytest.mark.parametrize("value", [None, "", "relative"])
def test_without_an_absolute_variable_they_are_in_the_users_home(value, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert data_directory() == Path("/home/ada/.local/share/callboard")
    assert state_directory() == Path("/home/ada/.local/state/callboard")


def test_the_variables_count_each_time(monkeypatch, tmp_path):
    for home in (tmp_path / "a", tmp_path / "b"):
        monkeypatch.setenv("XDG_DATA_HOME", str(home))
        monkeypatch.setenv("XDG_STATE_HOME", str(home))
        assert data_directory() == state_directory() == home / "callboard"
        assert not home.exists()
