from __future__ import annotations

import os

import pytest

from callboard import Ensemble, Invoker, execute_invoker
from callboard.core import ResultCanister
from callboard.errors import NoSuchTool
from callboard.execution import result_store
from callboard.execution.result_store import KeptResults
from callboard.tools import InvokerRegistry


def test_a_text_is_read_in_pieces(tmp_path):
    results = KeptResults(tmp_path / "results")
    identifier = results.keep("0123456789" * 3)
    assert results.read(identifier, 8, 4) == "[bytes 8 to 12 of 30]\n8901"
    assert results.read(identifier, 28) == "[bytes 28 to 30 of 30]\n89"
    assert results.read(identifier, 99) == "[bytes 30 to 30 of 30]\n"
    assert results.keep("0123456789" * 3) == identifier


def test_half_characters_at_the_ends_of_a_piece_are_left_out(tmp_path):
    results = KeptResults(tmp_path)
    assert results.read(results.keep("äöü"), 1, 4) == "[bytes 1 to 5 of 6]\nö"


def test_only_its_user_can_read_it(tmp_path):
    results = KeptResults(tmp_path / "results")
    results.keep("secret")
    [file] = results.directory.iterdir()
    assert (file.stat().st_mode & 0o777, results.directory.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("identifier", ["", "0" * 16, "../../etc/passwd", "0" * 15 + "\n", "x" * 16])
def test_what_is_not_kept(tmp_path, identifier):
    (tmp_path / "passwd.txt").write_text("root")
    with pytest.raises(NoSuchTool, match="is kept"):
        KeptResults(tmp_path).read(identifier)


def test_the_oldest_go_first(tmp_path, monkeypatch):
    monkeypatch.setattr(result_store, "MAX_KEPT", 2)
    results = KeptResults(tmp_path)
    names = [results.keep(text) for text in ("first", "second")]
    for at, name in enumerate(names):
        os.utime(tmp_path / f"{name}.txt", (at, at))
    names.append(results.keep("third"))
    assert {path.stem for path in tmp_path.iterdir()} == {*names[1:]}


async def test_a_model_reads_on(tmp_path):
    results = KeptResults(tmp_path)
    [invoker] = results.ensemble().invokers.values()
    identifier = results.keep("0123456789")
    calls = [{"identifier": identifier, "offset": 8}, {"identifier": "none"}, {"identifier": identifier, "limit": 0}]

    read, missing, wrong = [await execute_invoker(invoker, call, on_error="feedback") for call in calls]
    assert read.text == "[bytes 8 to 10 of 10]\n89"
    assert (missing.error.category, wrong.error.category) == ("not_found", "validation")


def test_the_notice_names_the_tool_as_models_call_it(tmp_path):
    results = KeptResults(tmp_path)
    other = Ensemble("other", [Invoker("read_result", lambda context, arguments: "", {"type": "object"})])
    assert "Read on with read_result(" in results.truncate("grep", result_of("x\n" * 99), 50).text
    registry = InvokerRegistry([other, results.ensemble()])
    assert "results__read_result" in registry
    assert "Read on with results__read_result(" in results.truncate("grep", result_of("x\n" * 99), 50).text
    assert "results__read_result with identifier" in results.truncate_middle("x" * 2000, 600)
    assert results.invoker().name == "read_result"


def result_of(text):
    return ResultCanister(invocation_id="1", content=text)
