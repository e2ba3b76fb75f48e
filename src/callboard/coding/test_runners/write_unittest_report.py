"""Run `python -m unittest` and write JUnit XML to the path in the first argument.

The project's own interpreter runs this file, so it imports the standard library only. It works on Python 3.8.
"""

from __future__ import annotations

import re
import sys
import unittest
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class RecordedResult(unittest.TextTestResult):
    """The usual result, which also remembers which tests ran."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.names: list[str] = []

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802  # unittest's name
        super().startTest(test)
        self.names.append(test.id())


def format_report(result: RecordedResult) -> str:
    """Return the result as JUnit XML. A failed subtest is a problem of its test."""
    rows: dict[str, list[str]] = {name: [] for name in result.names}
    problems: list[tuple[str, Any, str]] = [
        *(("failure", test, text) for test, text in result.failures),
        *(("error", test, text) for test, text in result.errors),
        *(("skipped", test, reason) for test, reason in result.skipped),
        *(("skipped", test, "expected failure") for test, _ in result.expectedFailures),
        *(("failure", test, "Unexpected success") for test in result.unexpectedSuccesses),
    ]
    for tag, test, text in problems:
        attribute, body = quoteattr(_ILLEGAL.sub("?", str(test))), escape(_ILLEGAL.sub("?", text))
        whole = getattr(test, "test_case", test)
        rows.setdefault(whole.id(), []).append(f"<{tag} message={attribute}>{body}</{tag}>")
    cases = [
        f"<testcase name={quoteattr(_ILLEGAL.sub('?', name))}>{''.join(row)}</testcase>" for name, row in rows.items()
    ]
    return "\n".join(["<testsuite name='unittest'>", *cases, "</testsuite>\n"])


def main() -> int:
    """Return the exit code: 1 if a test failed, 5 if there are none."""
    sys.path[0] = str(Path.cwd())
    runner: Any = unittest.TextTestRunner
    runner.resultclass = RecordedResult
    result: Any = unittest.main(module=None, argv=["python -m unittest", *sys.argv[2:]], exit=False).result
    Path(sys.argv[1]).write_text(format_report(result), "utf-8")
    return 1 if not result.wasSuccessful() else 0 if result.testsRun else 5


if __name__ == "__main__":
    sys.exit(main())
