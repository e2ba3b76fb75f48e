# ruff: noqa: INP001, T201  # a script: no package, and it prints
"""Writes what the code knows into the pages, between their markers: into cli_*.md the `--help` of every command, into
cli.md their index, into dialects.md the catalogue, into dialect_rules.md the table of quotations, into coding_phases.md
the phases of the agents, into configuration_keys.md the keys of the settings.

`python docs/regenerate.py` writes; with `--check` it only says what is not current, and exits with 1.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

HERE = Path(__file__).parent
COMMANDS = re.compile(r"(<!-- commands -->\n).*?(<!-- end -->)", re.DOTALL)
BLOCK = re.compile(r"(<!-- help: (?P<command>[a-z]+(?:[ -][a-z]+)*) -->\n).*?(<!-- end -->)", re.DOTALL)
CATALOGUE = re.compile(r"(<!-- dialects -->\n).*?(<!-- end -->)", re.DOTALL)
QUOTATIONS = re.compile(r"(<!-- quotations -->\n).*?(<!-- end -->)", re.DOTALL)
VECTORS = HERE.parent / "tests/vectors/dialects"
PHASES = re.compile(r"(<!-- phases: (?P<form>\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
GROUPS = re.compile(r"(<!-- groups -->\n).*?(<!-- end -->)", re.DOTALL)
KEYS = re.compile(r"(<!-- keys: (?P<table>\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
SUMMARY = re.compile(r"(?P<call>.*?)(?: \((?P<whose>[^()]*)\))?")


@cache
def help_texts() -> dict[str, str]:
    """The help of each command by its name, such as `callboard tools list`."""
    from typer.main import get_command  # noqa: PLC0415
    from typer.testing import CliRunner  # noqa: PLC0415

    from callboard.cli import app  # noqa: PLC0415

    runner = CliRunner()
    texts: dict[str, str] = {}
    for name, _ in commands(get_command(app), "callboard"):
        _, *words = name.split()
        shown = runner.invoke(app, [*words, "--help"], prog_name="callboard").output
        texts[name] = "\n".join(line.rstrip() for line in shown.splitlines()).strip("\n")
    return texts


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """A command and those below it, each with its whole name."""
    command = command.load() if hasattr(command, "load") else command
    yield name, command
    for word, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{name} {word}")


def with_help(page: str) -> str:
    """The page with every block as it is now."""
    texts = help_texts()
    return BLOCK.sub(lambda found: f"{found[1]}```text\n{texts[found['command']]}\n```\n{found[3]}", page)


def with_commands(page: str) -> str:
    """The index with a row for each command. Raises ValueError if a command has no block in a page, or several."""
    from typer.main import get_command  # noqa: PLC0415

    from callboard.cli import app  # noqa: PLC0415

    blocks = [
        (found["command"], path.name) for path in COMMAND_PAGES for found in BLOCK.finditer(path.read_text("utf-8"))
    ]
    if sorted(name for name, _ in blocks) != sorted(help_texts().keys() - {"callboard"}):
        raise ValueError(f"the pages have blocks for {sorted(blocks)}, the commands are {sorted(help_texts())}")
    pages = dict(blocks)
    root: Any = get_command(app)
    groups: dict[str, list[str]] = {}
    for name, command in root.commands.items():
        row = f"| [`callboard {name}`]({pages[f'callboard {name}']}) | {command.help} |"
        groups.setdefault(command.rich_help_panel, []).append(row)
    tables = [
        f"### {group}\n\n| command | result |\n| --- | --- |\n" + "\n".join(rows) for group, rows in groups.items()
    ]
    return COMMANDS.sub(lambda found: "\n".join([f"{found[1]}", "\n\n".join(tables), "", found[2]]), page)


def with_catalogue(page: str) -> str:
    """The page with a row for each dialect."""
    from callboard.dialects import AUTO, DIALECTS  # noqa: PLC0415  # not before the environment is set

    found_by_auto = {dialect.name for dialect in AUTO.alternatives}
    lines = ["| dialect | a call is | whose | `auto` |", "| --- | --- | --- | --- |"]
    for dialect in DIALECTS.values():
        summary = SUMMARY.fullmatch(dialect.summary)
        cells = [
            f"`{dialect.name}`",
            summary["call"] if summary else dialect.summary,
            (summary and summary["whose"]) or "",
            "yes" if dialect.name in found_by_auto else "",
        ]
        lines.append(f"| {' | '.join([cell.replace('|', chr(92) + '|') for cell in cells])} |")
    return CATALOGUE.sub(lambda found: "\n".join([f"{found[1]}{lines[0]}", *lines[1:], found[2]]), page)


def with_quotations(page: str) -> str:
    """The page with what becomes of each kind of text that quotes a call, and of the calls of the vectors."""
    lines = [
        "| kind of text | texts | calls, with `auto` | calls, with the model's own dialects |",
        "| --- | --- | --- | --- |",
    ]
    rows = quotations()
    for part in ("kind", "split"):
        for name in dict.fromkeys([case[part] for case, _, _ in rows]):
            shown = name if part == "kind" else f"**{name}**"
            lines += [quotation_row(shown, [row for row in rows if row[0][part] == name])]
    lines.append(quotation_row("**all**", rows))
    lines.append(quotation_row("*real calls, for comparison*", real_calls()))
    return QUOTATIONS.sub(lambda found: "\n".join([f"{found[1]}{lines[0]}", *lines[1:], found[2]]), page)


def quotations() -> list[tuple[dict[str, Any], bool, bool]]:
    """The vectors that quote calls; of each whether it became one with `auto`, and with its model's own dialects."""
    from callboard.core import InvocationStarted, ToolDeclaration  # noqa: PLC0415
    from callboard.dialects import parse  # noqa: PLC0415
    from callboard.modes import make_plan  # noqa: PLC0415
    from callboard.profiles import resolve  # noqa: PLC0415

    def calls(case: dict[str, Any], dialect: Any) -> bool:
        tools = [ToolDeclaration(each["name"], "", each["parameters"]) for each in case["tools"]]
        events = parse(case["text"], tools, dialect) if dialect else []
        return any(isinstance(event, InvocationStarted) for event in events)

    lines = (VECTORS / "quotations.jsonl").read_text("utf-8").splitlines()
    cases = [json.loads(line) for line in lines]
    return [(case, calls(case, "auto"), calls(case, make_plan(resolve(case["model"])).watched)) for case in cases]


def real_calls() -> list[tuple[dict[str, Any], bool, bool]]:
    """The vectors that hold calls; of each whether all of them are found with `auto`, and in its own dialect."""
    from callboard.core import InvocationEnded, ToolDeclaration  # noqa: PLC0415
    from callboard.dialects import parse  # noqa: PLC0415

    def finds(case: dict[str, Any], dialect: str, wanted: list[str]) -> bool:
        names = case.get("tools", [{"name": "get_weather"}, {"name": "get_time"}])
        tools = names and [ToolDeclaration(each["name"], "", each.get("parameters", {})) for each in names]
        thinking = case.get("start_in_reasoning", False)
        events = parse(case["text"], tools, dialect, why=case.get("stop", "stop"), start_in_reasoning=thinking)
        return [event.name for event in events if isinstance(event, InvocationEnded)] == wanted

    files = [VECTORS / f"{name}.jsonl" for name in ("cases", "catalogue", "objects")]
    cases = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    called = [(case, [call["name"] for call in case.get("expected_calls", case.get("calls", []))]) for case in cases]
    return [
        (case, finds(case, "auto", wanted), finds(case, case["dialect"], wanted)) for case, wanted in called if wanted
    ]


def quotation_row(name: str, rows: list[tuple[dict[str, Any], bool, bool]]) -> str:
    return f"| {name} | {len(rows)} | {sum(auto for _, auto, _ in rows)} | {sum(own for _, _, own in rows)} |"


def with_phases(page: str) -> str:
    """The page with a row for each phase of each agent, and one for each group of tools."""
    from callboard.coding.agents.phases import _table  # noqa: PLC0415  # not before the environment is set

    forms = {"phased": _table().phased, "short": _table().short}

    def rows(form: str) -> Iterator[str]:
        for kind, phases in forms[form].items():
            for phase in phases:
                tools = "none: it writes code blocks" if phase.code_blocks else _listed(phase.tools)
                cells = [kind, phase.name, phase.rounds, tools, _listed(phase.prompt_context), _listed(phase.evidence)]
                cells[:2] = [f"`{cell}`" for cell in cells[:2]]
                yield f"| {' | '.join(map(str, cells))} |\n".replace("|  |", "| |")

    heads = ("| agent | phase | replies | tools | in the prompt | evidence |\n", f"|{' --- |' * 6}\n")
    page = PHASES.sub(lambda found: "".join([found[1], *heads, *rows(found["form"]), found[3]]), page)
    heads = ("| group | actions |\n", f"|{' --- |' * 2}\n")
    groups = [f"| `{name}` | {_listed(names)} |\n" for name, names in _table().groups.items()]
    return GROUPS.sub(lambda found: "".join([found[1], *heads, *groups, found[2]]), page)


def _listed(names: Iterable[str]) -> str:
    return ", ".join([f"`{name}`" for name in names])


def with_keys(page: str) -> str:
    """The page with a row for each key of the settings."""
    from callboard.configuration.coding import CodingSettings  # noqa: PLC0415  # not before the environment is set
    from callboard.configuration.jobs import JobSettings  # noqa: PLC0415
    from callboard.configuration.settings import KEYS as SETTINGS  # noqa: PLC0415
    from callboard.configuration.settings import Permissions  # noqa: PLC0415
    from callboard.mcp.settings import ServerSettings  # noqa: PLC0415
    from callboard.profiles import Prices, Profile  # noqa: PLC0415
    from callboard.servers.gateway.settings import GatewaySettings  # noqa: PLC0415
    from callboard.telemetry.turn_on import TelemetrySettings  # noqa: PLC0415
    from callboard.tools import descriptors  # noqa: PLC0415

    kinds = {
        "permissions": Permissions,
        "prices": Prices,
        "mcp": ServerSettings,
        "coding": CodingSettings,
        "jobs": JobSettings,
        "telemetry": TelemetrySettings,
        "profiles": Profile,
        "gateway": GatewaySettings,
    }
    rows = {name: list(key_rows(kind)) for name, kind in kinds.items()}
    del rows["mcp"][0]  # its name is the table's
    rows["gateway"] = [row for row in rows["gateway"] if not row.startswith("| `prices.")]  # as in callboard.toml
    rows["top"] = [_key_row(key.name, key.kind, key.default) for key in SETTINGS if key.name not in kinds]
    tables = {
        "[ensemble]": descriptors.ENSEMBLE_KEYS,
        "[defaults]": descriptors.Defaults.__struct_fields__,
        "[[invokers]]": (*descriptors.INVOKER_KEYS, "source"),
    }
    ensembles = [f"| `{table}` | {_listed(keys)} |\n" for table, keys in tables.items()]

    def fill(found: re.Match[str]) -> str:
        if found["table"] == "ensembles":
            return "".join([found[1], "| table | keys |\n| --- | --- |\n", *ensembles, found[3]])
        return "".join([found[1], "| key | type | default |\n| --- | --- | --- |\n", *rows[found["table"]], found[3]])

    return KEYS.sub(fill, page)


def key_rows(kind: Any, begin: str = "") -> Iterator[str]:
    """A row for each field of a struct, and of the structs in it."""
    for field in msgspec.structs.fields(kind):
        name, info = f"{begin}{field.name}", inspect.type_info(field.type)
        within = {"value_type": ".NAME.", "item_type": "[].", "cls": "."}
        for part, mark in within.items():
            inner = getattr(info, part, None)
            struct = inner if part == "cls" else getattr(inner, "cls", None)
            if hasattr(struct, "__struct_fields__"):
                yield from key_rows(struct, f"{name}{mark}")
                break
        else:
            default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
            yield _key_row(name, field.type, default)


def _key_row(name: str, kind: Any, default: Any) -> str:
    if default is msgspec.NODEFAULT:
        shown = "required"
    else:
        shown = "none" if default is None else f"`{json.dumps(default, default=str)}`"
    return f"| `{name}` | {_type_name(inspect.type_info(kind))} | {shown} |\n"


def _type_name(info: Any) -> str:
    """How a page calls a type of msgspec."""
    match info:
        case inspect.UnionType(types=types):
            return " or ".join([_type_name(each) for each in types if not isinstance(each, inspect.NoneType)])
        case inspect.LiteralType(values=values):
            return ", ".join([f"`{json.dumps(value)}`" for value in values])
        case inspect.IntType() | inspect.FloatType():
            bounds = (("at least", info.ge), ("above", info.gt), ("at most", info.le))
            return ", ".join(["number", *[f"{word} {bound:,.10g}" for word, bound in bounds if bound is not None]])
        case inspect.StrType():
            return "text"
        case inspect.BoolType():
            return "`true`, `false`"
        case inspect.VarTupleType() | inspect.ListType():
            return "list"
        case inspect.DateType():
            return "date"
        case inspect.AnyType():
            return "any"
    return "table"


COMMAND_PAGES = sorted(HERE.glob("cli_*.md"))
PAGES = {
    **{path.name: with_help for path in COMMAND_PAGES},
    "cli.md": with_commands,
    "dialects.md": with_catalogue,
    "dialect_rules.md": with_quotations,
    "coding_phases.md": with_phases,
    "configuration_keys.md": with_keys,
}


def main() -> None:
    for name, renewed in PAGES.items():
        path = HERE / name
        page = path.read_text("utf-8")
        current = renewed(page)
        if "--check" not in sys.argv[1:]:
            path.write_text(current, "utf-8")
        elif current != page:
            print(f"docs/{name} is not current: run `python docs/regenerate.py`")
            sys.exit(1)


if __name__ == "__main__":
    main()
