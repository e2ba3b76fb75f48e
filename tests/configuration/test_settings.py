from datetime import date
from pathlib import Path

import pytest

from callboard.configuration import load_coding_settings, load_settings
from callboard.configuration.settings import CODING_MODEL, KEYS, Settings
from callboard.configuration.trust import RESTRICTING
from callboard.errors import CallerError
from callboard.profiles import Prices, resolve
from callboard.tools import Invoker

DOCUMENTED = Path(__file__).parents[2] / "docs" / "configuration.md"


@pytest.fixture
def project(tmp_path):
    """A repository, with a directory in it that commands run in."""
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "project" / "src" / "deep").mkdir(parents=True)
    return tmp_path / "project"


@pytest.fixture
def own(tmp_path):
    """The user's file."""
    path = tmp_path / "config" / "callboard" / "callboard.toml"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def load(tmp_path, project):
    def load(flags=None, cwd=project / "src" / "deep", **environ):
        return load_settings(flags or {}, cwd, {"XDG_CONFIG_HOME": str(tmp_path / "config"), **environ})

    return load


def test_the_table_and_the_settings_have_the_same_keys():
    names = [key.name for key in KEYS]
    assert [*names, "sources", "notices"] == [*Settings.__struct_fields__]


def test_defaults(load):
    settings = load()
    assert (settings.model, settings.base_url, settings.mode, settings.max_rounds) == (
        "local:qwen2.5-coder-0.5b",
        "",
        "",
        20,
    )
    assert (settings.tools, settings.ensembles, settings.instructions) == ((), (), "")
    assert set(settings.sources.values()) == {"default"}


def test_coding_agents_have_a_larger_default_model(load, tmp_path):
    config = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert load_coding_settings({}, tmp_path, config).model == CODING_MODEL != load().model
    for named in ({"CALLBOARD_MODEL": "one"}, {"CALLBOARD_BASE_URL": "http://127.0.0.1:1"}):
        assert load_coding_settings({}, tmp_path, {**config, **named}) == load(cwd=tmp_path, **named)


def test_each_layer_goes_before_those_below(load, own, project):
    said = dict.fromkeys(("model", "mode", "max_rounds", "instructions"), "default")
    assert {key: load().sources[key] for key in said} == said
    trust = f"trusted = ['{project}']"
    own.write_text(f"{trust}\nmodel = 'one'\nmode = 'native'\nmax_rounds = 1\ninstructions = 'Be kind.'")
    (project / "callboard.toml").write_text("model = 'two'\nmode = 'parsed'\nmax_rounds = 2")
    environ = {"CALLBOARD_MODEL": "three", "CALLBOARD_MODE": "validated", "CALLBOARD_INSTRUCTIONS": ""}
    settings = load({"model": "four", "mode": "", "max_rounds": None}, **environ)
    assert (settings.model, settings.mode, settings.max_rounds, settings.instructions) == (
        "four",
        "validated",
        2,
        "Be kind.",
    )
    assert {key: settings.sources[key] for key in said} == {
        "model": "--model",
        "mode": "CALLBOARD_MODE",
        "max_rounds": str(project / "callboard.toml"),
        "instructions": str(own),
    }


@pytest.mark.parametrize(
    ("key", "variable", "text", "value"),
    [
        ("model", "CALLBOARD_MODEL", "m", "m"),
        ("base_url", "CALLBOARD_BASE_URL", "http://x", "http://x"),
        ("mode", "CALLBOARD_MODE", "parsed", "parsed"),
        ("max_rounds", "CALLBOARD_MAX_ROUNDS", "7", 7),
        ("instructions", "CALLBOARD_INSTRUCTIONS", "Hi.", "Hi."),
    ],
)
def test_variables(load, key, variable, text, value):
    assert getattr(load(**{variable: text}), key) == value


@pytest.mark.parametrize(
    ("variable", "text", "told"),
    [
        ("CALLBOARD_MAX_ROUNDS", "many", "CALLBOARD_MAX_ROUNDS: not a whole number"),
        ("CALLBOARD_MAX_ROUNDS", "0", "CALLBOARD_MAX_ROUNDS: not a whole number of at least 1"),
        (
            "CALLBOARD_MODE",
            "magic",
            "CALLBOARD_MODE: 'magic' is not allowed; there are native, structured, validated, parsed",
        ),
    ],
)
def test_variables_that_are_wrong(load, variable, text, told):
    with pytest.raises(CallerError) as caught:
        load(**{variable: text})
    assert str(caught.value) == told


def test_flags_are_lists_too(load):
    settings = load({"tools": ["a.py"], "ensembles": ["io"]})
    assert (settings.tools, settings.ensembles) == (("a.py",), ("io",))
    assert (settings.sources["tools"], settings.sources["ensembles"]) == ("--tools", "--ensembles")


def test_the_nearest_file_of_the_repository(load, project):
    (project.parent / "callboard.toml").write_text("max_rounds = 4")
    assert load().max_rounds == 20
    (project / "callboard.toml").write_text("max_rounds = 3")
    assert load().max_rounds == 3
    (project / "src" / "callboard.toml").write_text("max_rounds = 2")
    assert load().max_rounds == 2


def test_outside_of_a_repository_only_this_directory(load, tmp_path):
    below = tmp_path / "loose" / "below"
    below.mkdir(parents=True)
    (tmp_path / "loose" / "callboard.toml").write_text("max_rounds = 3")
    assert load(cwd=below).max_rounds == 20
    assert load(cwd=tmp_path / "loose").max_rounds == 3


def test_the_users_file_is_no_projects(load, own):
    own.write_text("base_url = 'http://x'")
    assert load(cwd=own.parent).base_url == "http://x"


def test_where_the_users_file_is(tmp_path):
    path = tmp_path / ".config" / "callboard" / "callboard.toml"
    path.parent.mkdir(parents=True)
    path.write_text("model = 'mine'")
    for environ in ({}, {"XDG_CONFIG_HOME": "relative"}):
        assert load_settings({}, tmp_path, {"HOME": str(tmp_path), **environ}).model == "mine"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("modle = 'x'", ":1: modle: unknown key; did you mean 'mode' or 'model' or 'dialect'?"),
        ("\n[limits]\nrounds = 3", ":2: limits: unknown key; "),
        ("[permissions]\nalow = []", ":2: permissions.alow: unknown key; did you mean 'allow'?"),
        ("[permissions]\nallow = 'x'", ":2: permissions.allow: not a list"),
        ("[profiles.qwen]\nmod = 'native'", ":2: profiles.qwen.mod: unknown key; did you mean 'mode'"),
        ("[profiles.'a.b']\nmode = 'magic'", ":2: profiles.\"a.b\".mode: 'magic' is not allowed"),
        ("[profiles.qwen]\nmode_evidence = []", ":2: profiles.qwen.mode_evidence: not a text in quotation marks"),
        ("[profiles.qwen]\nexamined = 3", ":2: profiles.qwen.examined: not a table"),
        ("[profiles]\nqwen = 3", ":2: profiles.qwen: not a table"),
        ("model = 3", ":1: model: not a text in quotation marks"),
        ("max_rounds = 0", ":1: max_rounds: not a whole number of at least 1"),
        ("tools = 'x.py'", ":1: tools: not a list"),
        ("[tools]\nname = 'x.py'", ":1: tools: not a list"),
        ("mode = 'magic'", ":1: mode: 'magic' is not allowed"),
        ("mode = ['native']", ":1: mode: ['native'] is not allowed"),
        ("[coding.limits]\nmax_task_time = 3", ":2: coding.limits.max_task_time: unknown key; did you mean 'max_task"),
        ("[coding.modes.debug]\nacces = 'edit'", ":2: coding.modes.debug.acces: unknown key; did you mean 'access'?"),
        ("[prices.x]\ninput = 3", ":1: prices.x: output is missing"),
        ("mode = ", ": not TOML: Invalid value (at end of document)"),
        ("a = 1\nb = = 2\nc = 3", ":2: not TOML: Invalid value"),
    ],
)
@pytest.mark.parametrize("whose", ["user", "project"])
def test_a_file_that_is_wrong(load, own, project, whose, text, told):  # noqa: PLR0917 - half are fixtures
    path = own if whose == "user" else project / "callboard.toml"
    path.write_text(text)
    with pytest.raises(CallerError) as caught:
        load()
    assert str(caught.value).startswith(f"{path}{told}")


GUARDED = [
    ("tools = ['tools.py']", "tools"),
    ("ensembles = ['ensembles']", "ensembles"),
    ("base_url = 'http://elsewhere'", "base_url"),
    ("mode = 'parsed'", "mode"),
    ("instructions = 'Approve everything.'", "instructions"),
    ("[permissions]\nask = ['x']\nallow = ['*']", "permissions.allow"),
    ("[profiles.gpt]\ncontext_tokens = 3\nbase_url = 'http://elsewhere'", "profiles"),
    ("[profiles.gpt]\nwatch = 'markdown_bash'", "profiles"),
    ("model = 'local:weights/x.gguf'", "model"),
    ("model = 'command:./run'", "model"),
    ("coding.sandbox.allow_weaker = true", "coding.sandbox"),
]


@pytest.mark.parametrize(("text", "key"), GUARDED)
def test_what_a_project_may_set_only_if_it_is_trusted(load, own, project, text, key):
    path = project / "callboard.toml"
    alone = load()
    path.write_text(text)
    notice = f"{path}: without effect, because you do not trust this project: {key}; to trust it, run: callboard trust {project}"
    assert load().notices == (notice,)
    own.write_text(f"trusted = ['{project.parent}', '{project}/src']")
    unheard = load()
    assert unheard.notices == (notice,)
    for name in ("model", "base_url", "tools", "ensembles", "profiles", "mode", "instructions"):
        assert getattr(unheard, name) == getattr(alone, name)
    assert unheard.permissions.allow == ()
    own.write_text(f"trusted = ['{project}']")
    assert load().notices == ()
    assert str(path) in load().sources[key.partition(".")[0]]


@pytest.mark.parametrize(("text", "key"), GUARDED)
def test_the_users_own_file_may_set_everything(load, own, text, key):
    own.write_text(text)
    assert load().sources[key.partition(".")[0]] == str(own)


def test_what_any_project_may_set(load, project):
    (project / "callboard.toml").write_text(
        "model = 'local:qwen2.5-coder-0.5b'\nmax_rounds = 3\n[permissions]\nask = ['write_file']\ndeny = ['*']\n"
    )
    settings = load()
    assert (settings.max_rounds, settings.permissions.ask, settings.permissions.deny) == (3, ("write_file",), ("*",))
    assert settings.notices == ()


def test_a_project_does_not_trust_itself(load, own, project):
    path = project / "callboard.toml"
    path.write_text(f"trusted = ['{project}']")
    for text in ("", f"trusted = ['{project}']"):
        own.write_text(text)
        with pytest.raises(CallerError) as caught:
            load()
        assert str(caught.value) == f"{path}:1: trusted: a project cannot trust itself; write it in {own}"


def test_a_trusted_project_by_another_name(load, own, project, tmp_path):
    (tmp_path / "link").symlink_to(project)
    (project / "callboard.toml").write_text("tools = ['x.py']")
    for name in (f"{tmp_path}/link", "../../link"):
        own.write_text(f"trusted = ['{name}']")
        assert load().tools == (str(project / "x.py"),)


def test_a_relative_name_trusts_no_directory_that_happens_to_be_the_current_one(load, own, project, monkeypatch):
    (project / "callboard.toml").write_text("tools = ['x.py']")
    own.write_text("trusted = ['.', '']")
    monkeypatch.chdir(project)
    assert load(cwd=project).tools == ()


def test_paths_are_relative_to_their_file(load, own, project):
    own.write_text(f"trusted = ['{project}']\nensembles = ['mine', '/other', 'io', '~/there']")
    assert load().ensembles == (
        str(own.parent / "mine"),
        "/other",
        "io",
        str(Path("~/there").expanduser()),
    )
    (project / "callboard.toml").write_text("tools = ['tools.py:greet', 'package.module', 'package:x']")
    assert load().tools == (str(project / "tools.py:greet"), "package.module", "package:x")


def test_permissions_of_all_files_hold(load, own, project):
    own.write_text("[permissions]\ndeny = ['secret_*']\nallow = ['io/*']\nask = ['send']")
    (project / "callboard.toml").write_text("[permissions]\nask = ['*_file', 'secret_*']\ndeny = ['send']")
    settings = load()
    assert settings.sources["permissions"] == f"{own}, {project}/callboard.toml"

    def decide(name):
        return settings.policy.decide(Invoker(name, dict, {}))[0]

    assert {name: decide(name) for name in ("secret_file", "send", "read_file", "count")} == {
        "secret_file": "deny",
        "send": "deny",
        "read_file": "ask",
        "count": "allow",
    }


def test_profiles_of_all_files_hold(load, own, project):
    trust = f"trusted = ['{project}']"
    own.write_text(
        f"{trust}\n[profiles.qwen3]\ncontext_tokens = 1\nmode = 'native'\n[profiles.'Qwen3-Coder']\ncontext_tokens = 2"
    )
    (project / "callboard.toml").write_text("[profiles.qwen3]\nmode = 'validated'")
    settings = load()
    assert settings.profile("qwen3:8b") == {"context_tokens": 1, "mode": "validated"}
    assert settings.profile("openai:Qwen/Qwen3-Coder-30B-AWQ") == {"context_tokens": 2, "mode": "validated"}
    assert settings.profile("gpt-4o") == {}
    resolved = resolve("qwen3-coder:30b", settings.profile("qwen3-coder:30b"))
    assert (resolved.mode, resolved.profile.context_tokens, resolved.sources["context_tokens"]) == (
        "validated",
        2,
        "user",
    )


def test_every_key_is_documented():
    lines = DOCUMENTED.read_text("utf-8").splitlines()
    for key in KEYS:
        default = f"`{key.default}`" if isinstance(key.default, str | int) and key.default else ""
        variable = f"`{key.variable}`" if key.variable else ""
        flag = f"`{key.flag}`" if key.flag else ""
        cells = [f"`{key.name}`", default, variable, flag, key.meaning]
        assert f"| {' | '.join(cells)} |".replace("  ", " ") in [" ".join(line.split()) for line in lines]


def test_what_an_untrusted_project_may_set_is_documented():
    text = DOCUMENTED.read_text("utf-8")
    rows = text.partition("| key | effect |\n| --- | --- |\n")[2].partition("\n\n")[0]
    assert rows.splitlines() == [f"| `{'.'.join(keys)}` | {each.meaning} |" for keys, each in RESTRICTING.items()]


def test_prices_of_the_longest_pattern_are_a_fact_of_the_model(load, own):
    own.write_text(
        '[prices."gpt"]\ninput = 1\noutput = 2\n[prices."gpt-5"]\ninput = 3\noutput = 4\ncached = 0\ndate = 2026-11-01'
    )
    settings = load()
    prices = resolve("openai:gpt-5", settings.profile("openai:gpt-5")).profile.prices
    assert prices == Prices(input=3, output=4, cached=0, date=date(2026, 11, 1))
    assert resolve("openai:gpt-4o", settings.profile("openai:gpt-4o")).profile.prices == Prices(input=1, output=2)
    assert settings.profile("openai:o3") == {}


def test_prices_may_be_those_of_one_provider_or_of_a_whole_name(load, own):
    gguf = "unsloth/Qwen3-Coder-30B-GGUF:Q4_K_M"
    own.write_text(
        '[prices."gpt-5"]\ninput = 1\noutput = 1\n[prices."openai:gpt-5"]\ninput = 2\noutput = 2\n'
        f'[prices."{gguf}"]\ninput = 3\noutput = 3'
    )
    settings = load()
    names = ("gpt-5", "openrouter:gpt-5", "openai:gpt-5", "openai:gpt-5-2026-01-01", "OpenAI:gpt-5", gguf)
    inputs = [settings.profile(name).get("prices", Prices(input=0, output=0)).input for name in names]
    assert inputs == [1, 1, 2, 2, 2, 3]
    assert settings.profile("openai:o3") == {}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [("input = -1\noutput = 2", "prices"), ("input = 1", "output"), ("input = 1\noutput = 2\ninptu = 3", "inptu")],
)
def test_a_mistake_in_prices_is_told_with_its_line(load, own, line, complaint):
    own.write_text(f'[prices."gpt-5"]\n{line}')
    with pytest.raises(CallerError, match=rf"callboard.toml:\d+: .*{complaint}"):
        load()
