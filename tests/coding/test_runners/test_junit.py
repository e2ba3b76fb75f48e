"""Report files are hostile input: XML that attacks its reader, and folders that lead elsewhere."""

import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.coding.test_runners import junit
from callboard.coding.test_runners.junit import NotReport, parse_junit
from callboard.coding.test_runners.run_tests import MAX_REPORT, read_report_files

LAUGHS = "".join([f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10)])
CASE = '<testcase name="a"/>'


@table(
    "text",
    [
        "",
        "no XML",
        "<html></html>",
        "<testsuite>",
        f"<testsuite>{CASE}",
        f'<!DOCTYPE t [<!ENTITY a0 "ha">{LAUGHS}]><testsuite>&a9;</testsuite>',
        '<!DOCTYPE t [<!ENTITY x SYSTEM "file:///etc/passwd">]><testsuite><testcase name="&x;"/></testsuite>',
        '<!DOCTYPE t SYSTEM "http://127.0.0.1:9/x.dtd"><testsuite/>',
        "<testsuite>" * 200 + "</testsuite>" * 200,
        '<?xml version="1.0" encoding="nothing"?><testsuite/>',
        f"<testsuite>{CASE}&undeclared;</testsuite>",
    ],
)
def test_what_is_no_report(text):
    for encoding in ("utf-8", "utf-16"):
        with pytest.raises(NotReport):
            parse_junit(text.encode(encoding))


def test_limits(monkeypatch):
    long = "x" * (junit.MAX_TEXT * 2)
    (case,) = parse_junit(
        f"<testsuite><testcase name='{long}'><failure>{long}</failure></testcase></testsuite>".encode()
    )
    assert (len(case.name), len(case.problems[0].text)) == (junit.MAX_TEXT, junit.MAX_TEXT)
    monkeypatch.setattr(junit, "MAX_CASES", 2)
    with pytest.raises(NotReport, match="too many"):
        parse_junit(f"<testsuite>{CASE * 3}</testsuite>".encode())


@given(st.lists(st.tuples(st.sampled_from(["", "failure", "error", "skipped"]), st.integers(0, 3))))
def test_each_case_has_the_state_of_its_worst_problem(rows):
    states = {"": "passed", "failure": "failed", "error": "error", "skipped": "skipped"}
    cases = "".join([f"<testcase name='{n}'>{f'<{tag}/>' * n if tag else ''}</testcase>" for tag, n in rows])
    found = [each.state for each in parse_junit(f"<testsuites><testsuite>{cases}</testsuite></testsuites>".encode())]
    assert found == [states[tag] if count else "passed" for tag, count in rows]


@given(st.binary())
def test_bytes_are_a_report_or_refused(data):
    with suppress(NotReport):
        assert isinstance(parse_junit(data), list)


def test_only_files_of_the_home_are_read(tmp_path):
    outside, home = tmp_path / "outside", tmp_path / "home"
    outside.mkdir()
    (outside / "out.xml").write_text("<testsuite/>")
    folder = home / "reports"
    (folder / "a.xml").mkdir(parents=True)
    (folder / "link.xml").symlink_to(outside / "out.xml")
    (folder / "script.py").touch()
    (folder / "b.xml").write_text("<testsuite/>")
    os.mkfifo(folder / "pipe.xml")
    with (folder / "long.json").open("wb") as file:
        file.truncate(MAX_REPORT + 1)
    assert read_report_files(home, folder) == {"b.xml": b"<testsuite/>"}
    assert read_report_files(home, home / "nothing") == {}
    (home / "link").symlink_to(outside)
    assert read_report_files(home, home / "link") == {}


def test_all_files_have_one_limit(tmp_path):
    for name in ("a.xml", "b.xml"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(MAX_REPORT // 2 + 1)
    assert [*read_report_files(tmp_path, tmp_path)] == ["a.xml"]


def test_control_characters_in_names():
    (case,) = parse_junit(b"<testsuite><testcase name='a\x00\x1b\tb'/></testsuite>")
    assert case.name == "a?? b"


def test_an_error_counts_even_if_the_test_was_skipped():
    (skipped, marked) = parse_junit(
        b"<testsuite><testcase><skipped/><error/></testcase>"
        b"<testcase><skipped type='todo'/><failure/></testcase></testsuite>"
    )
    assert (skipped.state, marked.state) == ("error", "skipped")
