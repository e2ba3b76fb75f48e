"""An agent is found again by another process, whatever this one calls it."""

import sys

import pytest

from callboard import Agent
from callboard.errors import CallerError
from callboard.jobs.agent_kind import load_agent
from callboard.jobs.job import normalize_reference

CREW = """
from callboard import Agent
from callboard.testing import ScriptedModel

clerk = Agent(ScriptedModel([]))
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with modules that can be imported, which are forgotten again."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "crew_of_test.py").write_text(CREW, "utf-8")
    yield tmp_path
    for name in set(sys.modules) - known:
        if "_of_test" in name:
            del sys.modules[name]


def test_a_path_is_the_same_from_everywhere(place, monkeypatch):
    monkeypatch.chdir(place)
    assert normalize_reference("crew_of_test.py:clerk") == f"{place}/crew_of_test.py:clerk"
    assert normalize_reference("crew_of_test:clerk") == "crew_of_test:clerk"


def test_an_agent_is_found_by_the_name_or_the_path_of_its_module(place):
    by_path = load_agent(f"{place}/crew_of_test.py:clerk")
    assert {type(each) for each in (by_path, load_agent("crew_of_test:clerk"))} == {Agent}


@pytest.mark.parametrize("reference", ["crew_of_test", "crew_of_test:nobody", "nothing_of_test:clerk", ":clerk"])
@pytest.mark.usefixtures("place")
def test_what_is_no_reference_is_told(reference):
    with pytest.raises(CallerError):
        load_agent(reference)
