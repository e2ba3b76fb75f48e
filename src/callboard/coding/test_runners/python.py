"""pytest, tox, nox and unittest.

pytest writes JUnit XML. Variables ask for it, so pytest also writes it if tox, nox or make starts pytest. unittest has no
report of its own; `write_unittest_report.py` runs it and writes one. If the commands of tox and nox write no report, their
exit code decides.

Law: the run leaves no files of pytest and unittest in the folder, and tests the folder, not an installed copy of it.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec.structs import replace

from callboard.coding.test_runners.junit import JunitCase, tally_cases
from callboard.coding.test_runners.report import (
    Failure,
    Kind,
    ProjectFolder,
    Runner,
    Selection,
    Tally,
    TestOutput,
    find_locations,
    join_message,
    tally_exit_code,
)

# Lines with E or > are messages and code; after a place stands the function or the exception.
_AT = re.compile(r"(?![E>]\s)(\S[^\n]*?\.[A-Za-z]\w*):(\d+): ?(?:in .*|[\w.]*)")
_TEST = re.compile(r"test_.*\.py", re.DOTALL)
_FRAME = re.compile(r'\s*File "([^"\n]+)", line (\d+).*')
_IMPORT = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
_WORD = re.compile(r"[A-Za-z0-9][\w.-]*")

PYTHON_MANIFESTS: Final = ("pyproject.toml", "setup.py", "setup.cfg", "pytest.ini", "tox.ini", "requirements.txt")


def is_python(folder: ProjectFolder) -> bool:
    """Return whether a folder has a Python project, or test files."""
    if any(name in folder.names for name in (*PYTHON_MANIFESTS, "conftest.py", "noxfile.py")):
        return True
    return has_python_tests(folder)


def has_python_tests(folder: ProjectFolder) -> bool:
    """Return whether a folder has test files, or settings of a runner."""
    names = folder.names | folder.tests
    settings = "[tool.pytest" in folder.texts.get("pyproject.toml", "") or {"pytest.ini", "conftest.py"} & folder.names
    return bool(settings) or any(name.endswith("_test.py") or _TEST.fullmatch(name) for name in names)


def _pytest_command(selection: Selection, folder: ProjectFolder) -> list[str]:
    level = 2 if selection.verbose else 0
    command = [folder.python, "-m", "pytest", "--color=no", "--tb=short", "-rfE", f"--verbosity={level}"]
    command += ["-p", "no:cacheprovider"]
    if selection.run:
        command.append(f"-k={selection.run}")
    path = module = selection.module
    if module and not ("/" in module or "::" in module or module.endswith(".py")):
        path = module.replace(".", "/") + ".py"
    return command + [each for each in (path or selection.package,) if each]


def _unittest_command(selection: Selection, folder: ProjectFolder) -> list[str]:
    command = [folder.python, "-m", "unittest"]
    options = [*(["-v"] if selection.verbose else []), *([f"-k={selection.run}"] if selection.run else [])]
    if selection.module:
        return [*command, *options, selection.module.removesuffix(".py").replace("/", ".")]
    start = selection.package or ("tests" if "tests/" in folder.names else ".")
    top = ["-t", "."] if start == "tests" and "__init__.py" in folder.tests else []
    return [*command, "discover", *options, "-s", start, *top]


def _environment_command(*command: str) -> Callable[[Selection, ProjectFolder], list[str]]:
    """Return how to start tox or nox; the last word is the option that chooses an environment."""
    return lambda selection, _: [*command[:-1], *([command[-1], selection.script] if selection.script else [])]


def record_pytest(command: Sequence[str], reports: str, _folder: ProjectFolder) -> tuple[list[str], dict[str, str]]:
    """Return the variables with which each pytest writes its report, one file for each environment of tox."""
    # pytest fills in the name of the environment.
    path = shlex.quote(f"{reports}/pytest-$TOX_ENV_NAME.xml")
    return [*command], {
        "PYTEST_ADDOPTS": f"--junitxml={path} -o junit_family=xunit1 -o junit_logging=no",
        "TOX_OVERRIDE": "testenv.pass_env+=PYTEST_ADDOPTS",
    }


def _record_unittest(command: Sequence[str], reports: str, folder: ProjectFolder) -> tuple[list[str], dict[str, str]]:
    script = f"{reports}/{UNITTEST_SCRIPT}"
    return [folder.python, script, f"{reports}/unittest.xml", *command[3:]], {}


UNITTEST_SCRIPT: Final = "write_unittest_report.py"


def read_pytest(output: TestOutput, folder: ProjectFolder) -> Tally:
    """Read pytest's report files."""
    return tally_cases(output.reports.values(), lambda case: _pytest_failures(case, folder))


def read_nested(output: TestOutput, folder: ProjectFolder) -> Tally:
    """Read the report files of what the command started, else its exit code."""
    tally = read_pytest(output, folder)
    return tally if tally.complete and (tally.total or tally.skipped) else tally_exit_code(output)


def _pytest_failures(case: JunitCase, folder: ProjectFolder) -> list[Failure]:
    module = case.file.removesuffix(".py").replace("/", ".")
    inner = case.class_name.removeprefix(module).strip(".").replace(".", "::")
    name = "::".join(filter(None, (case.file, inner, case.name))) if case.class_name else case.file or case.name
    return [
        _pytest_failure(name, each.text.splitlines() or each.message.splitlines(), folder.root)
        for each in case.problems
        if each.state in ("failed", "error")
    ]


def _pytest_failure(name: str, body: list[str], root: str) -> Failure:
    message = [line[1:].removeprefix("   ") for line in body if line.startswith(("E ", "E\t")) or line == "E"]
    # Frames in a message are lines of a file that is not Python.
    places = find_locations(_AT, body, root) + find_locations(_FRAME, message, root)
    if not message:
        message = [line for line in body if not line.startswith("---")]
    return Failure(name, places[-1] if places else "", join_message(message))


def read_unittest(output: TestOutput, folder: ProjectFolder) -> Tally:
    """Read the report of `write_unittest_report.py`."""
    return tally_cases(output.reports.values(), lambda case: _unittest_failures(case, folder.root))


def _unittest_failures(case: JunitCase, root: str) -> list[Failure]:
    failures = []
    for problem in case.problems:
        body = problem.text.splitlines()
        places = find_locations(_FRAME, body, root)
        frames = [index for index, line in enumerate(body) if _FRAME.match(line)]
        # The message follows the last frame and its line of code.
        message = body[frames[-1] + 1 :] if frames else body
        while message and message[0].startswith("    "):
            message = message[1:]
        if problem.state != "skipped":
            name = problem.message.partition(" ")[0] or case.name
            failures.append(Failure(name, places[-1] if places else "", join_message(message)))
    return failures


class _Project(msgspec.Struct):
    dependencies: list[str] = []
    optional: dict[str, list[str]] = msgspec.field(default_factory=dict, name="optional-dependencies")


class _Manifest(msgspec.Struct):
    project: _Project = msgspec.field(default_factory=_Project)
    groups: dict[str, list[object]] = msgspec.field(default_factory=dict, name="dependency-groups")


def _find_requirements(folder: ProjectFolder) -> frozenset[str]:
    """Return the names of the packages that the manifests require, in the spelling of modules."""
    specifiers = folder.texts.get("requirements.txt", "").splitlines()
    with suppress(tomllib.TOMLDecodeError, RecursionError, msgspec.ValidationError):
        manifest = msgspec.convert(tomllib.loads(folder.texts.get("pyproject.toml", "")), _Manifest)
        groups: list[Sequence[object]] = [manifest.project.dependencies]
        groups += [*manifest.project.optional.values(), *manifest.groups.values()]
        specifiers += [each for group in groups for each in group if isinstance(each, str)]
    names = [match[0] for each in specifiers if (match := _WORD.match(each.strip()))]
    return frozenset(re.sub(r"[-.]+", "_", name).lower() for name in names)


def _describe_missing(name: str, folder: ProjectFolder) -> str:
    python = shutil.which(folder.python, path=folder.search_path or None) or folder.python
    return f"{name} is not installed in {python}; {python} -m pip install {name} installs it"


def _find_missing_dependency(tally: Tally, folder: ProjectFolder) -> str:
    """Return a sentence if no test ran because a package is missing that the manifests require."""
    if tally.passed or tally.failed:
        return ""
    requirements = _find_requirements(folder)
    for failure in tally.failures:
        match = _IMPORT.search(failure.message)
        if match and match[1].lower() in requirements:
            return _describe_missing(match[1], folder)
    return ""


def _find_missing_pytest(output: TestOutput, tally: Tally, folder: ProjectFolder) -> str:
    if output.code == 1 and not output.reports and output.text.rstrip().endswith("No module named pytest"):
        return _describe_missing("pytest", folder)
    return _find_missing_dependency(tally, folder)


def _find_missing_in_unittest(_output: TestOutput, tally: Tally, folder: ProjectFolder) -> str:
    if any("No module named 'pytest'" in failure.message for failure in tally.failures):
        return _describe_missing("pytest", folder)
    return _find_missing_dependency(tally, folder)


def _find_missing_program(name: str) -> Callable[[TestOutput, Tally, ProjectFolder], str]:
    def find_missing(output: TestOutput, tally: Tally, folder: ProjectFolder) -> str:
        if output.code == 127:
            return f"{name} is not installed; python -m pip install {name} installs it"
        if not output.reports and output.code and "could not install" in output.text:
            return (
                f"{name} cannot install the project's packages in the sandbox; {name} run outside of it installs them"
            )
        return _find_missing_dependency(tally, folder)

    return find_missing


def has_tox(folder: ProjectFolder) -> bool:
    """Return whether a folder has settings of tox."""
    texts = folder.texts
    tables = (("pyproject.toml", "[tool.tox"), ("setup.cfg", "[tox:tox]"))
    return "tox.ini" in folder.names or any(table in texts.get(name, "") for name, table in tables)


def _covers(folder: ProjectFolder) -> frozenset[Kind]:
    """A run covers the folders below unless the settings name the folders of tests."""
    return frozenset(() if any("testpaths" in text for text in folder.texts.values()) else {"python"})


PYTEST: Final = Runner(
    name="pytest",
    kind="python",
    matches=is_python,
    command=_pytest_command,
    record=record_pytest,
    parse=read_pytest,
    find_missing=_find_missing_pytest,
    options=frozenset({"package", "run", "module", "count", "verbose"}),
    manifests=PYTHON_MANIFESTS,
    environment={"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", "PY_COLORS": "0", "NO_COLOR": "1"},
    covers=_covers,
)
TOX: Final = replace(
    PYTEST,
    name="tox",
    matches=has_tox,
    command=_environment_command("tox", "run", "--skip-missing-interpreters", "true", "-e"),
    parse=read_nested,
    find_missing=_find_missing_program("tox"),
    options=frozenset({"script", "count"}),
)
NOX: Final = replace(
    TOX,
    name="nox",
    matches=lambda folder: "noxfile.py" in folder.names,
    command=_environment_command("nox", "--no-error-on-missing-interpreters", "-s"),
    find_missing=_find_missing_program("nox"),
)
UNITTEST: Final = replace(
    PYTEST,
    name="unittest",
    command=_unittest_command,
    record=_record_unittest,
    parse=read_unittest,
    find_missing=_find_missing_in_unittest,
)
