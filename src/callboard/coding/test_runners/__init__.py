"""Run the tests of a project: detect its runner, start it, read its report."""

from callboard.coding.test_runners.projects import RUNNERS, detect_runners, read_folder
from callboard.coding.test_runners.report import Failure, Kind, ProjectFolder, Runner, Selection, Tally, TestReport
from callboard.coding.test_runners.run_tests import run_tests

__all__ = [
    "RUNNERS",
    "Failure",
    "Kind",
    "ProjectFolder",
    "Runner",
    "Selection",
    "Tally",
    "TestReport",
    "detect_runners",
    "read_folder",
    "run_tests",
]
