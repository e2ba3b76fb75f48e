"""What the pages say is what the code does.

Python blocks run in order, in one namespace a page; what stands behind a `print` as a comment, or in a `text` block
right after, is what is printed. The `$` lines of console blocks run and print what is shown. Names, fields,
defaults and figures are compared with the code. Blocks marked `no-run` are left alone.
"""

import ast
import configparser
import importlib
import importlib.metadata
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, get_args

import msgspec
import pytest
from tests.tables import table
from typer.main import get_command

import callboard
from callboard import agent, core, errors, testing
from callboard.agent.arguments import RunOptions
from callboard.agent.react import NoAnswer, StepLimitReached
from callboard.cli import app, chat_commands, eval_model, outcome, run
from callboard.coding.agents import mutation_check, phase_runner, phases, prompts
from callboard.coding.git import files, snapshots
from callboard.coding.workspace import repository_instructions
from callboard.configuration import coding
from callboard.core import canisters, events
from callboard.dialects import AUTO, DIALECTS, Dialect, text_buffer
from callboard.dialects.grammars import json_objects, python_literals
from callboard.execution import execute, execute_invoker, parallel, result_content
from callboard.jobs import DatabaseUnavailable, job
from callboard.mcp.errors import ServerTimeout
from callboard.mcp.settings import ServerSettings
from callboard.modes import MODES
from callboard.profiles import Profile, resolve
from callboard.providers import Transport, open_model, retries
from callboard.providers.local.model_files import shipped_catalogue
from callboard.schema import errors as schema_errors
from callboard.schema import json_schema
from callboard.servers import gateway
from callboard.servers.gateway import http_errors
from callboard.text import json_object, marker_pattern
from callboard.tools import Ensemble, Invoker, Tool
from callboard.tools.tool import ToolOptions

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {page.name: page.read_text("utf-8") for page in PAGES}
FENCE = re.compile(r"^```(?P<language>\w+)(?P<mark>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
every_page = pytest.mark.parametrize("name", TEXTS)


class Block(NamedTuple):
    language: str
    runs: bool
    body: str
    line: int
    """The line of its body in the page."""
    follows: bool
    """Whether it stands right behind another block."""


def blocks_of(name):
    text = TEXTS[name]
    found = []
    end = -1
    for fence in FENCE.finditer(text):
        follows = end >= 0 and not text[end : fence.start()].strip()
        line = text.count("\n", 0, fence.start("body")) + 1
        found.append(Block(fence["language"], "no-run" not in fence["mark"], fence["body"], line, follows))
        end = fence.end()
    return found


def rows(name):
    """The rows of a page's tables by their first cell."""
    text = re.sub(r'<a id="[\w-]+"></a>', "", FENCE.sub("", TEXTS[name]))
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in cells}


def plain(text):
    return [line.rstrip() for line in text.strip("\n").splitlines()]


# What runs.


@every_page
def test_python_blocks(name, tmp_path, monkeypatch, capsys):
    module = ModuleType(f"page_{name.partition('.')[0]}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    found = blocks_of(name)
    for place, block in enumerate(found):
        if block.language != "python" or not block.runs:
            continue
        tree = ast.increment_lineno(ast.parse(block.body), block.line - 1)
        exec(compile(tree, name, "exec", dont_inherit=True), module.__dict__)
        printed = plain(capsys.readouterr().out)
        after = found[place + 1] if place + 1 < len(found) else None
        if after is not None and after.follows and after.language == "text":
            assert printed == plain(after.body)
        lines = iter(printed)
        for said in re.findall(r"^ *print\(.*\)  # (.+)$", block.body, re.MULTILINE):
            assert said in lines, f"{said!r} is not printed, or not in this order: {printed}"


@every_page
def test_console_blocks(name, tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    environment = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path),
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONUTF8": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for block in blocks_of(name):
        if block.language != "console" or not block.runs:
            continue
        for command, *shown in [part.splitlines() for part in re.split(r"^\$ ", block.body, flags=re.MULTILINE)[1:]]:
            done = subprocess.run(
                command,
                shell=True,
                check=False,
                cwd=tmp_path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            assert plain(done.stdout.decode()) == plain("\n".join(shown)), command


@table("script", ["regenerate.py", "plots.py"])
def test_what_scripts_write_is_current(script):
    command = [sys.executable, ROOT / "docs" / script, "--check"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# What is linked.


def anchors(page):
    text = FENCE.sub("", page.read_text("utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    written = re.findall(r'<a id="([\w-]+)"></a>', text)
    return {*written, *(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)}


@table("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links(page):
    for link in LINK.finditer(FENCE.sub("", page.read_text("utf-8"))):
        path, anchor = link["path"], link["anchor"]
        if path.startswith(("http://", "https://")):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link[0]
        if anchor:
            assert anchor in anchors(target), link[0]


def test_no_sentence_is_on_two_pages():
    """A rule has one home, and other pages link it. Sentences of a few words, and generated help, do not count."""
    pages = defaultdict(set)
    for name, text in TEXTS.items():
        prose = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", FENCE.sub("\n\n", text))
        for block in re.split(r"\n\s*\n|\n(?=[-|])|\|", prose):
            for sentence in re.split(r"(?<=[.!?]) ", " ".join(block.split())):
                words = sentence.strip(" -*#.").lower()
                if words.count(" ") > 6:
                    pages[words].add(name)
    assert {words: names for words, names in pages.items() if len(names) > 1} == {}


def test_every_page_is_in_the_navigation():
    navigation = re.findall(r"^ +- (\w+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    root_pages = ["changelog.md", "contributing.md", "security_policy.md"]
    assert sorted(navigation) == sorted([*root_pages, *[page.name for page in PAGES[1:]]])


# What is named.


@table("room", [callboard, agent, testing], ids=lambda room: room.__name__)
def test_public_names(room):
    every = "\n".join(TEXTS.values())
    missing = [name for name in room.__all__ if not re.search(rf"\b{name}\b", every)]
    assert missing == []


def shape(structure):
    fields = [name for name in structure.__struct_fields__ if name not in {"timestamp", "extra"}]
    return [f"`{structure.__struct_config__.tag}`", ", ".join(f"`{field}`" for field in fields)]


@table(
    "structure",
    [*get_args(core.Canister), *get_args(core.Content), *get_args(events.ReplyEvent), *get_args(events.RunEvent)],
    ids=lambda structure: structure.__name__,
)
def test_canisters_contents_and_events(structure):
    assert rows("events.md")[f"`{structure.__name__}`"][:2] == shape(structure)


@table(
    ("kinds", "page"),
    [
        (canisters.Category, "tool_calls.md"),
        (core.Ending, "events.md"),
        (core.RunState, "runs.md"),
    ],
)
def test_each_kind_has_a_row(kinds, page):
    assert {f"`{kind}`" for kind in get_args(kinds)} <= rows(page).keys()


@table("kinds", [events.NoteKind, core.Verdict, core.Why])
def test_each_kind_is_named(kinds):
    assert [kind for kind in get_args(kinds) if f"`{kind}`" not in TEXTS["events.md"]] == []


def test_ports():
    ports = {name for name, value in vars(core.ports).items() if value.__class__.__name__ != "function"}
    ports &= set(core.__all__)
    ports -= {"Canister", "Event", "InvocationCanister", "Request", "ToolDeclaration", "Verdict"}
    assert {f"`{port}`" for port in ports} <= rows("events.md").keys()


def test_what_counts_as_a_failure_of_the_network():
    row = rows("tool_calls.md")["`network`"][0]
    ours = [kind for kind, category in execute._CATEGORIES if category == "network"]
    assert [kind.__qualname__ for kind in ours if kind.__qualname__ not in row] == []
    packages = {name.partition(".")[0] for name, category in execute._NAMED.items() if category == "network"}
    assert [package for package in packages if package.rstrip("2") not in row] == []


@table("mode", MODES.values(), ids=lambda mode: mode.name)
def test_modes(mode):
    _, dialect, watched, validated = rows("modes.md")[f"`{mode.name}`"]
    assert validated == ("yes" if mode.validated else "no")
    if mode.dialect:
        assert dialect == watched == f"`{mode.dialect}`"
    else:
        assert ("`dialect`" in dialect) == (mode.declares != "wire")
        assert watched.startswith("the profile's `watch`")


@table("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)
def test_the_catalogue(dialect):
    call, whose, found = rows("dialects.md")[f"`{dialect.name}`"]
    summary = f"{call} ({whose})" if whose else call
    assert summary.replace("\\|", "|") == dialect.summary
    assert found == ("yes" if dialect.name in {each.name for each in AUTO.alternatives} else "")


def grammars():
    frames = [frame for dialect in DIALECTS.values() for _, frame in dialect.all_frames()]
    frames += [fence.frame for dialect in DIALECTS.values() for _, fence in dialect.all_fences()]
    return {type(grammar).__name__ for frame in frames for grammar in frame.grammars}


def test_grammars():
    table = rows("own_dialect.md")
    assert {f"`{grammar}`" for grammar in grammars()} <= table.keys()
    for grammar in grammars():
        for name in re.findall("`([^`]*)`", table[f"`{grammar}`"][1]):
            row = DIALECTS[name]
            frames = [frame for _, frame in row.all_frames()] + [fence.frame for _, fence in row.all_fences()]
            assert grammar in {type(each).__name__ for frame in frames for each in frame.grammars}, name


def test_members_of_a_call_object():
    assert [key for key in json_objects.CALL_KEYS if f"`{key}`" not in TEXTS["own_dialect.md"]] == []


@table("dialect", [dialect for dialect in DIALECTS.values() if dialect.fences])
def test_fences(dialect):
    said = TEXTS["dialect_rules.md"].partition("**Fences.**")[2].partition("\n\n")[0]
    languages = {language for fence in dialect.fences for language in fence.languages if language}
    assert [language for language in languages if f"`{language}`" not in said] == []


@table("field", msgspec.structs.fields(Dialect), ids=lambda field: field.name)
def test_fields_of_a_dialect(field):
    said = rows("own_dialect.md")[f"`{field.name}`"][0]
    if field.required:
        assert said == "required"
    elif field.name == "reasoning":
        assert said == ", ".join([f"`{mark}`" for each in field.default for mark in (each.opens, each.closes)])
    else:
        assert said == f"`{field.default!r}`"


@table("fact", Profile.__struct_fields__)
def test_facts(fact):
    assert rows("profiles.md")[f"`{fact}`"][0] == f"`{getattr(Profile(), fact)!r}`"


def test_layers_of_the_profile():
    table = tomllib.loads((ROOT / "src/callboard/profiles/profiles.toml").read_text("utf-8"))
    names = {
        "family": [row["name"] for row in table["families"]],
        "model": [row["name"] for row in table["models"]],
        "endpoint": list(table["endpoints"]),
    }
    for layer, expected in names.items():
        assert re.findall("`([^`]*)`", rows("profiles.md")[layer][0]) == expected


def test_environment_variables():
    sources = [path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py")]
    read = {name for source in sources for name in re.findall(r'"([A-Z]+_[A-Z_]+)"[^\n]* os\.environ', source)}
    read |= {name for source in sources for name in re.findall(r'environ\b[^\n"]*"([A-Z]+_[A-Z_]+)"', source)}
    table = tomllib.loads((ROOT / "src/callboard/profiles/profiles.toml").read_text("utf-8"))
    for endpoint in table["endpoints"].values():
        read |= {endpoint[key] for key in ("url_variable", "key_variable") if key in endpoint}
    documented = {name for row in rows("environment.md") for name in re.findall("`([A-Z_]+)`", row)}
    assert read
    assert read <= documented


CALLABLES = [
    (Tool, "tools.md"),
    (Invoker, "tools.md"),
    (Ensemble, "tools.md"),
    (execute_invoker, "tool_calls.md"),
    (callboard.Agent, "agents.md"),
    (callboard.Limits, "runs.md"),
    (open_model, "models.md"),
    (Transport, "models.md"),
    (testing.ScriptedModel, "testing.md"),
    (testing.Call, "testing.md"),
    (testing.FakeBackend, "testing.md"),
]


@table(("called", "page"), CALLABLES, ids=lambda each: getattr(each, "__name__", ""))
def test_parameters_and_their_defaults(called, page):
    header, _, table = TEXTS[page].partition(HEADERS.get(called, f"of `{called.__name__}` | default | meaning |\n"))
    assert table, header[-200:]
    lines = table.partition("\n\n")[0].splitlines()[1:]
    said = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    defaults = {name: cells[1] for cells in said for name in re.findall("`([^`]*)`", cells[0])}
    expected = {name: each.default for name, each in inspect.signature(called).parameters.items()}
    expected.pop("function", None)
    if called in (Tool, Invoker):
        del expected["options"]
        options = {name: getattr(called, name) for name in ToolOptions.__annotations__}
        expected |= {name: None if value == {} else value for name, value in options.items()}
    assert sorted(defaults) == sorted(expected)
    for name, default in expected.items():
        if default is inspect.Parameter.empty:
            assert defaults[name] == "required"
        elif not callable(default) and repr(default) != "<factory>":
            assert defaults[name] == f"`{default!r}`"


HEADERS = {
    Tool: "| option | default | meaning |\n",
    execute_invoker: "`ResultCanister`.\n\n| parameter | default | meaning |\n",
    callboard.Agent: "| parameter | default | meaning |\n",
    callboard.Limits: "of `Limits` | default | bounds | `why` |\n",
}


def test_fields_of_a_result():
    table = rows("runs.md")
    assert {f"`{field}`" for field in agent.RunResult.__struct_fields__ if field != "_output"} <= table.keys()


def test_parameters_of_a_run():
    assert {f"`{name}`" for name in ("prompt", *RunOptions.__annotations__)} <= rows("agents.md").keys()


def test_what_a_conversation_does():
    table = TEXTS["conversations.md"].partition("| of `Conversation` |")[2].partition("\n\n")[0]
    methods = {name for name, value in vars(callboard.Conversation).items() if not name.startswith("_") and value}
    assert {name for name in methods if f"`{name}(" not in table and f"`{name}`" not in table} == set()


def test_models_of_the_catalogue():
    for entry in shipped_catalogue().models:
        row = rows("models.md")[f"`{entry.name}`"]
        assert entry.title.endswith(f", {row[1]}")
        assert row[2:5] == [f"{entry.size / 1e6:,.0f} MB", entry.licence, f"{entry.context}"]
        assert ("no place for tools" not in row[5]) == resolve(f"local:{entry.name}").profile.uses_tools


def test_files_of_other_models():
    files = {name: cells for name, cells in rows("models.md").items() if name.endswith(".gguf`") and len(cells) == 2}
    assert files
    for name, cells in files.items():
        resolution = resolve(f"local:{name.strip('`')}")
        assert cells == [f"`{resolution.mode}`", f"`{resolution.profile.dialect}`"]


def test_groups_of_plugins():
    sources = [path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py")]
    groups = {group for source in sources for group in re.findall(r'plugins\("([a-z.]+)"\)', source)}
    assert groups
    assert {f"`{group}`" for group in groups} <= rows("plugins.md").keys()


def test_exit_codes():
    for line in TEXTS["agents.md"].splitlines():
        if found := re.match(r"\| `(\w+)` \|.*\| (\d+) \|$", line):
            assert run.EXIT_CODES[found[1]] == int(found[2])


# The coding agents.


def coding_keys(kind, begin=""):
    """The keys of a table of settings and of those in it, with their defaults; a table by a name is in it as one of KIND."""
    for field in msgspec.structs.fields(kind):
        name = f"{begin}{field.name}"
        if isinstance(field.default, msgspec.Struct):
            yield from coding_keys(type(field.default), f"{name}.")
        elif name == "modes":
            yield from coding_keys(coding.ModeSettings, f"{name}.KIND.")
        elif name == "phases":
            yield from coding_keys(coding.PhaseSettings, f"{name}.NAME.")
        else:
            factory = field.default_factory
            yield name, field.default if factory is msgspec.NODEFAULT else factory()


def test_settings_of_coding():
    table = TEXTS["coding_jobs.md"].partition("| key | default | meaning |\n")[2].partition("\n\n")[0]
    said = {
        row[0].strip("`"): row[1]
        for line in table.splitlines()[1:]
        if (row := [cell.strip() for cell in line.split("|")[1:]])
    }
    keys = dict(coding_keys(coding.CodingSettings))
    assert list(said) == list(keys)
    for name, default in keys.items():
        assert said[name] == ("none" if default is None else f"`{json.dumps(default)}`"), name
    meaning = next(line for line in table.splitlines() if "tool_result_limits" in line)
    assert [
        name
        for name, limit in coding.RESULT_LIMITS.items()
        if not re.search(rf"{limit:,} (for|as)[^\d]*`{name}`", meaning)
    ] == []


@table(
    "names",
    [
        job.DurableJob.__struct_fields__,
        get_args(job.DurableState),
        get_args(phases.Evidence),
        get_args(phases.PromptPart),
        get_args(coding.Access),
        [f"/{name}" for name in chat_commands.COMMANDS],
        [str(code) for code in {*outcome.EXIT_CODES.values(), 2}],
    ],
)
def test_tables_of_coding(names):
    assert {f"`{name}`" for name in names} <= {
        name
        for page in ("coding.md", "coding_phases.md", "coding_jobs.md", "chat.md", "jobs.md", "environment.md")
        for name in rows(page)
    }


def exceptions():
    """The public exceptions by their names; an alias is a name of its own."""
    packages = (ROOT / "docs/site_hooks.py").read_text("utf-8").partition("PACKAGES = (")[2].partition(")")[0]
    rooms = [importlib.import_module(name) for name in re.findall(r'"([\w.]+)"', packages)]
    values = {name: getattr(room, name) for room in rooms for name in room.__all__}
    kinds = {name: value for name, value in values.items() if isinstance(value, type) and issubclass(value, Exception)}
    return kinds | {"NoAnswer": NoAnswer, "StepLimitReached": StepLimitReached}


GATEWAY_CODES = {**http_errors.STATUSES, "context_length_exceeded": 400}


@table("kind", exceptions().values(), ids=lambda kind: kind.__name__)
def test_exceptions(kind):
    bases, party, *_ = rows("errors.md")[f"`{kind.__name__}`"]
    assert bases == ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
    assert party == (f"`{kind.party}`" if hasattr(kind, "party") else "none")


@table(
    ("heading", "prefix", "names"),
    [
        ("Exceptions", "", exceptions()),
        ("Codes of a failed reply", "reply-", errors.REPLY_CODES),
        ("Codes of the gateway", "gateway-", GATEWAY_CODES),
    ],
)
def test_each_error_has_a_row_with_an_anchor(heading, prefix, names):
    text = TEXTS["errors.md"].partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.findall(r'^\| (?:<a id="(.*)"></a>)?`(.*?)` \|', text, re.MULTILINE)
    assert sorted(found) == sorted((f"{prefix}{name}".lower(), name) for name in names)


def test_an_error_without_a_hint_names_its_row():
    (repository,) = re.findall("^repo_url: (.*)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert f"{repository}/blob/main/docs/errors.md" == errors.PAGE
    kinds = [errors.ModelFileError, errors.ProviderError, DatabaseUnavailable, ServerTimeout, NoAnswer]
    found = ["modelfileerror", "providererror", "databaseunavailable", "toolexecutionfailure", "noanswer"]
    assert [kind("no").page.removeprefix(f"{errors.PAGE}#") for kind in kinds] == found
    assert errors.ProviderError("no", code="cut").page == f"{errors.PAGE}#reply-cut"
    assert errors.ProviderError("no", code="cut", hint="ask again").page == errors.CallerError("no").page == ""
    assert http_errors.HttpError("overloaded", "no").headers == {
        "link": f'<{errors.PAGE}#gateway-overloaded>; rel="help"'
    }


def commands(command, name):
    command = command.load() if hasattr(command, "load") else command
    yield name, command
    for word, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{name} {word}")


@table(("name", "command"), [*commands(get_command(app), "callboard")])
def test_commands_and_options(name, command):
    pages = [text for page, text in TEXTS.items() if page.startswith("cli_")]
    blocks = [text.partition(f"<!-- help: {name} -->")[2].partition("<!-- end -->")[0] for text in pages]
    block = TEXTS["cli.md"] if name == "callboard" else "".join(blocks)
    shown = [each for each in command.params if not each.hidden]
    options = [option for each in shown for option in ([each.metavar] if each.metavar else each.opts)]
    assert block
    assert [option for option in options if option not in block] == []


# What it is built on.


def required():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    every = [*project["dependencies"], *(each for extra in project["optional-dependencies"].values() for each in extra)]
    return [re.split("[<>=~ ]", each)[0] for each in every]


UNNAMED_LICENCES = {"agent-client-protocol": ("Apache License\n                           Version 2.0", "Apache-2.0")}
"""Packages whose metadata names no licence: how the file begins that is one, and its name."""


@table("package", required())
def test_dependencies(package):
    about = importlib.metadata.metadata(package.partition("[")[0])
    licence = about.get("License-Expression") or about.get("License")
    if licence is None and package in UNNAMED_LICENCES:
        begin, licence = UNNAMED_LICENCES[package]
        assert begin in importlib.metadata.distribution(package).read_text("licenses/LICENSE")
    elif licence is None:
        licence = next(each for each in about.get_all("Classifier") if "License ::" in each).rpartition(" :: ")[2]
    assert rows("dependencies.md")[f"`{package}`"][0] == licence


SETTINGS = [
    ("gateway_operation.md", gateway.BackendSettings),
    ("gateway_operation.md", gateway.GatewayLimits),
    ("gateway_operation.md", gateway.GatewaySettings),
    ("mcp.md", ServerSettings),
]


@table(("page", "kind"), SETTINGS, ids=lambda each: getattr(each, "__name__", ""))
def test_settings_and_their_defaults(page, kind):
    said = rows(page)
    for field in msgspec.structs.fields(kind):
        default = said[f"`{field.name}`"][0]
        if isinstance(field.default, (int, float, str, bool)) and default.startswith("`"):
            assert json.loads(default.split()[0].strip("`")) == field.default


@table("code", GATEWAY_CODES)
def test_statuses_of_the_codes(code):
    assert rows("errors.md")[f"`{code}`"][0] == str(GATEWAY_CODES[code])


def test_rooms():
    law = configparser.ConfigParser()
    law.read(ROOT / ".importlinter")
    layers = law["importlinter:contract:layers"]["layers"].strip()
    assert f"```text\n{layers}\n```" in TEXTS["architecture.md"]
    here = {path.stem for path in (ROOT / "src/callboard").iterdir() if not path.stem.startswith(("_", "py"))}
    assert {f"`{room}`" for room in here} <= rows("architecture.md").keys()


def test_modules_of_the_dialects():
    named = {name for row in rows("architecture.md") for name in re.findall("`([^`]*)`", row)}
    here = {path.stem for path in (ROOT / "src/callboard/dialects").iterdir() if not path.stem.startswith("_")}
    assert here - named == set()


def test_the_stations_of_a_trip_are_there():
    stations = re.findall(r"`([\w/]+\.py):([\w.]+)`", TEXTS["architecture.md"])
    assert len(stations) > 40
    for path, name in stations:
        tree = ast.parse((ROOT / "src/callboard" / path).read_text("utf-8"))
        for part in name.split("."):
            bodies = [node for node in ast.walk(tree) if getattr(node, "name", "") == part]
            assert bodies, f"{path} has no {name}"
            tree = bodies[0]


def test_measurements():
    every = "\n".join(TEXTS.values())
    assert [path.name for path in (ROOT / "bench").glob("*.py") if f"bench.{path.stem}`" not in every] == []


FIGURES = [
    ("README.md", "in any of {} formats", len(DIALECTS.keys() - {AUTO.name})),
    ("tools.md", "and that to {:g} |", execute.DEFAULT_TIMEOUT),
    ("tool_calls.md", "[ensemble](glossary.md)'s, else {:g}.", execute.DEFAULT_TIMEOUT),
    ("tool_calls.md", "after {} s, then twice as long", execute._FIRST_DELAY),
    ("tools.md", "at most {} such threads", execute._threads.limit),
    ("tools.md", "at most {} calls of one run", parallel.DEFAULT_LIMIT),
    ("tool_calls.md", "At most {} mistakes are listed", schema_errors.LISTED),
    ("tool_calls.md", "no more than {} characters", schema_errors.SHOWN),
    ("tools.md", "larger than {} KB", json_schema.SIZE // 1024),
    ("tools.md", "than {} levels", json_schema.DEPTH),
    ("tools.md", "more than {} patterns", json_schema.PATTERNS),
    ("tool_calls.md", "Text beyond {} characters", result_content.MAX_TEXT),
    ("coding_phases.md", "in at most {} files that the task is about", prompts.MAX_FILES),
    ("coding_phases.md", "at most {:,} characters (about 6,000 tokens)", prompts.MAX_TEXT),
    ("coding_phases.md", "the change, up to {:,} characters", prompts.MAX_DIFF),
    ("coding_jobs.md", "told to the model, up to {:,} characters", repository_instructions.MAX_CHARS),
    ("coding_phases.md", "at temperatures of 0.4, 0.8 and then {:g}", phase_runner.TEMPERATURES[-1]),
    ("coding_phases.md", "makes up to {} small mistakes", mutation_check.MAX_MUTANTS),
    ("coding.md", "A copy is at most {:,} files", files.MAX_FILES),
    ("coding.md", "files and {} GB", files.MAX_BYTES // 1024**3),
    ("chat.md", "{} MB. Without a terminal", snapshots.MAX_FILE // 1024**2),
    ("dialect_rules.md", "at most {:,} characters; what is longer", text_buffer.MAX_HELD),
    ("dialect_rules.md", "longer than {:,} characters makes", marker_pattern.MAX_NAME),
    ("dialect_rules.md", "a key of a call object longer than {}.", json_object.MAX_KEY),
    ("dialect_rules.md", "nested deeper than {} ", python_literals.MAX_DEPTH),
    ("local_models.md", "`callboard eval` uses {:,} tokens", eval_model._CONTEXT),
    ("models.md", "more than\n{:g} seconds is not waited for", retries.LONGEST_WAIT),
    ("models.md", "{} s, doubled each time up to", retries._BACKOFFS[0]),
    ("models.md", "doubled each time up to {:g}", retries._BACKOFFS[-1]),
]


@table(("page", "sentence", "figure"), FIGURES)
def test_figures(page, sentence, figure):
    assert " ".join(sentence.format(figure).split()) in " ".join(TEXTS[page].split())


def test_statuses_that_are_asked_again():
    *most, last = sorted(retries.RETRIED_STATUSES)
    assert f"the statuses {', '.join(map(str, most))} and {last}" in TEXTS["models.md"]


def test_names_in_the_pages_exist():
    """Every dotted `callboard.…` name that a page mentions can be had."""
    for name in {found for text in TEXTS.values() for found in re.findall(r"`(callboard(?:\.\w+)+)`", text)}:
        if name in ("callboard.execution", "callboard.ensembles"):  # a logger, and a room too; a group of plug-ins
            continue
        module, _, attribute = name.rpartition(".")
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(module), attribute), name


# The words that the glossary explains.

NOUNS = {
    **dict.fromkeys(("canister", "ensemble", "invoker", "invocation", "descriptor", "dialect", "profile"), ("", "")),
    **dict.fromkeys(("round", "evidence", "phase", "access"), ("", "")),
    "workflow": ("(?<!Temporal )", ""),
    "front": ("(?<!in )", "(?! of| end)"),
    "stage": ("(?<!nor )", ""),
    "fold": ("(?<!NFKC )", ""),
    "wire": ("(?<!on the )", ""),
    "mode": ("(?<!strict )(?<!calling )", ""),
}
"""Each with what is not before it and not behind it, where another meaning of the word is not ours."""
NO_PROSE = re.compile(
    r"^```.*?^```$|^#[^\n]*$|^ *\|[^\n]*$|<!--.*?-->|`[^`]*`|!?\[[^\]]*\]\((?!(?:docs/)?glossary\.md\))[^)]*\)",
    re.MULTILINE | re.DOTALL,
)


@table("page", [page for page in [*PAGES, ROOT / "SECURITY.md"] if page.name != "glossary.md"])
def test_the_first_use_of_a_noun_links_the_glossary(page):
    prose = " ".join(NO_PROSE.sub(" ` ", page.read_text("utf-8")).split())
    link = "](" + os.path.relpath(ROOT / "docs" / "glossary.md", page.parent) + ")"
    for noun, (before, behind) in NOUNS.items():
        first = re.search(rf"(?<![\w/.-]){before}\b{noun}s?\b(?![\w-]){behind}", prose, re.IGNORECASE)
        if first:
            linked = prose[first.start() - 1] == "[" and prose[first.end() :].startswith(link)
            assert linked, f"{page.name}: {prose[first.start() - 40 : first.end() + 40]!r}"
