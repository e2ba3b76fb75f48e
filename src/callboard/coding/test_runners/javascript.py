"""npm test, with what it runs: node --test, jest, vitest, mocha."""

from __future__ import annotations

from typing import Final

from callboard.coding.test_runners.javascript_output import read_jest, read_mocha, read_node, read_vitest
from callboard.coding.test_runners.report import Tally
from callboard.coding.test_runners.runner import ProjectFolder, Runner, Selection

_READERS: Final = {"jest": read_jest, "vitest": read_vitest, "mocha": read_mocha, "node": read_node}
# How each is told which tests to run; node takes no option after its files.
_PATTERNS: Final = {"jest": "-t", "vitest": "-t", "mocha": "-g"}
_UNSET: Final = "no test specified"
_SUFFIXES: Final = tuple([f".{word}.{end}" for word in ("test", "spec") for end in ("js", "mjs", "cjs", "ts")])


def _matches(folder: ProjectFolder) -> bool:
    return "package.json" in folder.names or any(name.endswith(_SUFFIXES) for name in folder.names)


def _get_script(folder: ProjectFolder, name: str) -> str:
    scripts = folder.json("package.json").get("scripts")
    script = scripts.get(name) if isinstance(scripts, dict) else None
    return script if isinstance(script, str) and _UNSET not in script else ""


def _find_framework(script: str) -> str:
    """The framework that a script runs, "" if it is unknown."""
    words = script.replace("/", " ").split()
    if "node" in words and "--test" in words:
        return "node"
    return next((name for name in _PATTERNS if name in words), "")


def _make_command(selection: Selection, folder: ProjectFolder) -> list[str]:
    name = selection.script or "test"
    script = _get_script(folder, name)
    if not script and not selection.script:
        return _command_without_script(selection, folder)
    framework = _find_framework(script)
    further = []
    if selection.run and framework in _PATTERNS:
        further += [_PATTERNS[framework], selection.run]
    elif selection.run and framework == "node":
        further += [f"--test-name-pattern={selection.run}"]
    if selection.verbose and framework == "jest":
        further.append("--verbose")
    further += [selection.module] if selection.module else []
    workspace = [f"--workspace={selection.package}"] if selection.package else []
    command = ["npm", "test"] if name == "test" else ["npm", "run", name]
    return [*command, *workspace, *(["--", *further] if further else [])]


def _command_without_script(selection: Selection, folder: ProjectFolder) -> list[str]:
    """The command where package.json has no test script: the framework that it depends on, else node's own runner."""
    manifest = folder.json("package.json")
    dependencies = {name for key in ("devDependencies", "dependencies") for name in _names(manifest.get(key))}
    framework = next((name for name in _PATTERNS if name in dependencies), "node")
    pattern = selection.run
    paths = [selection.module] if selection.module else [selection.package] if selection.package else []
    if framework == "node":
        return ["node", "--test", *([f"--test-name-pattern={pattern}"] if pattern else []), *paths]
    once = ["run"] if framework == "vitest" else []
    chosen = [_PATTERNS[framework], pattern] if pattern else []
    return [f"node_modules/.bin/{framework}", *once, *chosen, *paths]


def _names(value: object) -> list[str]:
    return [str(name) for name in value] if isinstance(value, dict) else []


def read_npm(output: str, _code: int | None, folder: ProjectFolder) -> Tally:
    """Read the output of the framework that the script names, else of the one whose summary is there."""
    framework = _find_framework(_get_script(folder, "test"))
    if framework and (tally := _READERS[framework](output, folder.root)).complete:
        return tally
    tallies = [reader(output, folder.root) for reader in _READERS.values()]
    return next((each for each in tallies if each.complete), max(tallies, key=lambda each: len(each.failures)))


NPM: Final = Runner(
    name="npm test",
    kind="npm",
    matches=_matches,
    command=_make_command,
    parse=read_npm,
    options=frozenset({"package", "run", "script", "module", "count", "verbose"}),
    manifests=("package.json",),
    environment={
        "CI": "1",
        "NO_COLOR": "1",
        "npm_config_update_notifier": "false",
        "npm_config_fund": "false",
        "npm_config_audit": "false",
    },
)
