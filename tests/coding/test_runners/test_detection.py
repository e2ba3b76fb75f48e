import asyncio
import json

import pytest
from tests.tables import table

from callboard.coding.test_runners import RUNNERS, ProjectFolder, Selection, detect_runners, read_folder
from callboard.storage.confined_directory import ConfinedDirectory


def look(root, place=""):
    async def looked():
        files = ConfinedDirectory(str(root))
        await files.connect()
        try:
            return read_folder(files, place)
        finally:
            await files.disconnect()

    return asyncio.run(looked())


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["pyproject.toml"], "python"),
        (["test_x.py"], "python"),
        (["x_test.py"], "python"),
        (["tests/test_x.py", "x.py"], "python"),
        (["go.mod", "Makefile"], "go"),
        (["Cargo.toml"], "cargo"),
        (["package.json"], "npm"),
        (["sum.test.js"], "npm"),
        (["pyproject.toml", "package.json"], "python"),
        (["README.md", "x.py"], None),
        ([], None),
    ],
)
def test_what_files_say(tmp_path, names, kind):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = detect_runners(look(tmp_path))
    assert (found[0].kind if found else None) == kind


def test_a_makefile_counts_if_it_tests(tmp_path):
    (tmp_path / "Makefile").write_text("all:\n\tcc x.c\n")
    assert detect_runners(look(tmp_path)) == []
    (tmp_path / "Makefile").write_text("all:\n\tcc x.c\n\ncheck : all\n\t./x\n")
    folder = look(tmp_path)
    (runner,) = detect_runners(folder)
    assert runner.command(Selection(), folder) == ["make", "--no-print-directory", "check"]


def test_what_leads_out_is_not_read(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside").write_text("test:\n\ttrue\n")
    (root / "Makefile").symlink_to("../outside")
    (root / "tests").symlink_to("/etc")
    (root / "package.json").mkdir()
    assert look(root).texts == {}
    assert look(root).tests == frozenset()


def test_broken_manifests(tmp_path):
    for text in ("", "[]", "{", '{"scripts": 1}', '{"scripts": {"test": 5}}', "[" * 100_000, '{"devDependencies": []}'):
        (tmp_path / "package.json").write_text(text)
        folder = look(tmp_path)
        (runner,) = detect_runners(folder)
        assert runner.command(Selection(), folder) == ["node", "--test"]


def of(kind):
    return next(each for each in RUNNERS if each.kind == kind)


def named(name):
    return next(each for each in RUNNERS if each.name == name)


PYTEST = ["python3", "-m", "pytest", "--color=no", "--tb=short", "-rfE"]
CLEAN = ["-p", "no:cacheprovider"]


@table(
    ("runner", "given", "command"),
    [
        (of("python"), {}, [*PYTEST, "--verbosity=0", *CLEAN]),
        (of("python"), {"package": "tests/unit"}, [*PYTEST, "--verbosity=0", *CLEAN, "tests/unit"]),
        (of("python"), {"module": "tests.test_x"}, [*PYTEST, "--verbosity=0", *CLEAN, "tests/test_x.py"]),
        (
            of("python"),
            {"module": "tests/test_x.py::test_y"},
            [*PYTEST, "--verbosity=0", *CLEAN, "tests/test_x.py::test_y"],
        ),
        (of("python"), {"run": "x or y", "verbose": True}, [*PYTEST, "--verbosity=2", *CLEAN, "-k=x or y"]),
        (named("unittest"), {}, ["python3", "-m", "unittest", "discover", "-s", "."]),
        (
            named("unittest"),
            {"package": "unit", "verbose": True},
            ["python3", "-m", "unittest", "discover", "-v", "-s", "unit"],
        ),
        (
            named("unittest"),
            {"module": "tests/test_x.py", "run": "y"},
            ["python3", "-m", "unittest", "-k=y", "tests.test_x"],
        ),
        (of("go"), {}, ["go", "test", "-json", "./..."]),
        (
            of("go"),
            {"package": "./sub", "run": "TestX", "count": 3},
            ["go", "test", "-json", "-count=3", "-run=TestX", "./sub"],
        ),
        (named("tox"), {}, ["tox", "run", "--skip-missing-interpreters", "true"]),
        (named("tox"), {"script": "py311"}, ["tox", "run", "--skip-missing-interpreters", "true", "-e", "py311"]),
        (named("nox"), {"script": "unit"}, ["nox", "--no-error-on-missing-interpreters", "-s", "unit"]),
        (of("cargo"), {}, ["cargo", "test", "--color=never", "--no-fail-fast"]),
        (
            of("cargo"),
            {"package": "calc", "module": "outside", "run": "adds"},
            ["cargo", "test", "--color=never", "--no-fail-fast", "--package=calc", "--test=outside", "adds"],
        ),
        (of("make"), {}, ["make", "--no-print-directory", "test"]),
        (of("make"), {"package": "lib", "script": "fast"}, ["make", "--no-print-directory", "-C", "lib", "fast"]),
    ],
)
def test_commands(runner, given, command):
    assert runner.command(Selection(**given), ProjectFolder()) == command
    assert {name for name in given if name != "count"} <= runner.options


@table(
    ("scripts", "needs", "given", "command"),
    [
        ({"test": "jest"}, {}, {}, ["npm", "test"]),
        ({"test": "jest"}, {}, {"run": "adds", "verbose": True}, ["npm", "test", "--", "-t", "adds", "--verbose"]),
        ({"test": "vitest run"}, {}, {"run": "adds"}, ["npm", "test", "--", "-t", "adds"]),
        (
            {"test": "mocha"},
            {},
            {"run": "adds", "module": "test/x.js"},
            ["npm", "test", "--", "-g", "adds", "test/x.js"],
        ),
        ({"test": "node --test"}, {}, {"run": "adds"}, ["npm", "test", "--", "--test-name-pattern=adds"]),
        ({"test": "jest", "unit": "jest unit"}, {}, {"script": "unit"}, ["npm", "run", "unit"]),
        ({"test": "jest"}, {}, {"package": "web"}, ["npm", "test", "--workspace=web"]),
        ({"test": 'echo "Error: no test specified" && exit 1'}, {}, {}, ["node", "--test"]),
        ({}, {"vitest": "4"}, {"run": "adds"}, ["node_modules/.bin/vitest", "run", "-t", "adds"]),
        ({}, {"jest": "30"}, {"module": "x.test.js"}, ["node_modules/.bin/jest", "x.test.js"]),
        ({}, {}, {"run": "adds", "module": "x.js"}, ["node", "--test", "--test-name-pattern=adds", "x.js"]),
    ],
)
def test_commands_of_npm(scripts, needs, given, command):
    manifest = json.dumps({"scripts": scripts, "devDependencies": needs})
    folder = ProjectFolder(names=frozenset({"package.json"}), texts={"package.json": manifest})
    assert of("npm").command(Selection(**given), folder) == command
