from __future__ import annotations

import pytest
from tests.tables import table

from callboard.errors import CallerError
from callboard.servers.gateway import BackendSettings
from callboard.servers.gateway.auth import digest
from callboard.servers.gateway.configuration import load_gateway_settings, parse_keys

ONE = BackendSettings(url="http://127.0.0.1:8080/v1")
FILE = """\
heartbeat = 5
strict = true
origins = ["https://app.example"]

[keys]
ann = "sk-ann-0123456789"
bob = "sha256:{digest}"

[limits]
items = 7

[[backends]]
name = "fast"
url = "https://fast.example/v1"
wire = "messages"
models = ["claude-*"]
model_map = {{ haiku = "claude-haiku-4" }}
weight = 2
key = "upstream"
headers = {{ "x-team" = "a" }}

[[backends]]
local = "qwen2.5-coder-0.5b"
mode = "validated"
"""


@pytest.fixture
def written(tmp_path):
    def written(text):
        path = tmp_path / "gateway.toml"
        path.write_text(text)
        return str(path)

    return written


def wrong(*given):
    with pytest.raises(CallerError) as caught:
        load_gateway_settings(*given)
    return str(caught.value)


def test_a_file(written):
    settings = load_gateway_settings(written(FILE.format(digest=digest("sk-bob-123"))), {}, None)
    fast, local = settings.backends
    assert (fast.name, fast.wire, fast.models, fast.model_map) == (
        "fast",
        "messages",
        ("claude-*",),
        {"haiku": "claude-haiku-4"},
    )
    assert (fast.weight, fast.key, fast.headers) == (2.0, "upstream", {"x-team": "a"})
    assert (local.local, local.wire, local.mode) == ("qwen2.5-coder-0.5b", "chat", "validated")
    assert settings.keys == {"ann": digest("sk-ann-0123456789"), "bob": digest("sk-bob-123")}
    assert (settings.heartbeat, settings.strict, settings.limits.items) == (5.0, True, 7)
    assert settings.idle_timeout == 600  # a default


def test_flags_are_above_the_file(written):
    path = written(FILE.format(digest=digest("sk-bob-123")))
    flags = {"heartbeat": 9.0, "strict": None, "origins": (), "keys": {"eve": "sk-eve-0123456789"}, "store": ""}
    settings = load_gateway_settings(path, flags, ONE)
    assert [each.url or each.local for each in settings.backends] == [
        "https://fast.example/v1",
        "qwen2.5-coder-0.5b",
        "http://127.0.0.1:8080/v1",
    ]
    assert (settings.heartbeat, settings.strict, settings.origins) == (9.0, True, ("https://app.example",))
    assert settings.keys == {"eve": digest("sk-eve-0123456789")}


def test_no_flag_and_no_file():
    assert "no backend" in wrong("", {}, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hartbeat = 5\n", ["gateway.toml:1: hartbeat", "did you mean 'heartbeat'"]),
        ("\nheartbeat = 'soon'\n", ["gateway.toml:2: heartbeat", "not a number"]),
        (
            "[[backends]]\nurl = 'http://a'\n\n[[backends]]\nurl = 'http://x'\nwieght = 3\n",
            ["gateway.toml:6: backends[1].wieght", "did you mean 'weight'"],
        ),
        ("[[backends]]\nurl = 5\n", ["gateway.toml:2: backends[0].url", "not a text"]),
        ("backends = 3\n", ["gateway.toml:1: backends"]),
        ("backends = 'http://x'\n", ["gateway.toml:1: backends"]),
        ("[limits]\nbodies = 1\n", ["gateway.toml:2: limits.bodies", "did you mean 'body'"]),
        ("heartbeat = \n", ["gateway.toml:1"]),
    ],
)
def test_a_mistake_is_told_with_its_place(written, text, said):
    message = wrong(written(text), {}, ONE)
    assert [part for part in said if part not in message] == [], message


def test_a_file_that_is_not_there(tmp_path):
    assert "gateway.toml" in wrong(str(tmp_path / "gateway.toml"), {}, ONE)


@table(
    ("backend", "said"),
    [
        ({}, "a backend needs either a url or local"),
        ({"url": "http://x", "local": "qwen"}, "a backend needs either a url or local"),
        ({"url": "127.0.0.1:8080"}, "not a URL"),
        ({"url": "ftp://x"}, "not a URL"),
        ({"url": "http://"}, "not a URL"),
        ({"url": "http://[::1"}, "not a URL"),
        ({"url": "http://x", "wire": "smoke"}, "no wire 'smoke'"),
        ({"url": "http://x", "mode": "magic"}, "no mode 'magic'"),
        ({"url": "http://x", "dialect": "klingon"}, "klingon"),
        ({"url": "http://x", "profile": {"speed": 3}}, "no fact 'speed'"),
        ({"url": "http://x", "profile": {"uses_tools": "perhaps"}}, "uses_tools"),
        ({"url": "http://x", "key_variable": "NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE: is not set"),
    ],
)
def test_a_backend_that_cannot_be(backend, said):
    assert said in wrong("", {}, BackendSettings(**backend))


@table(
    ("flag", "value"),
    [
        ("requests_per_minute", -1.0),
        ("max_concurrent", -1),
        ("idle_timeout", 0.0),
        ("idle_timeout", -5.0),
        ("heartbeat", 0.0),
        ("heartbeat", -1.0),
    ],
)
def test_a_number_that_cannot_be(flag, value):
    assert flag in wrong("", {flag: value}, ONE)


def test_the_backend_s_key_may_be_in_the_environment(monkeypatch):
    monkeypatch.setenv("UPSTREAM", "secret")
    (backend,) = load_gateway_settings("", {}, BackendSettings(url="http://x", key_variable="UPSTREAM")).backends
    assert backend.key == "secret"


@table(
    ("given", "keys"),
    [
        ((), {}),
        (("sk-12345678",), {f"key-{digest('sk-12345678')}": "sk-12345678"}),
        (("ann=sk-12345678", "sk-87654321"), {"ann": "sk-12345678", f"key-{digest('sk-87654321')}": "sk-87654321"}),
        (("c2VjcmV0Cg==",), {f"key-{digest('c2VjcmV0Cg==')}": "c2VjcmV0Cg=="}),
        (("ann=c2VjcmV0Cg==",), {"ann": "c2VjcmV0Cg=="}),
        (("sha256:" + "A" * 64,), {"key-" + "a" * 64: "sha256:" + "A" * 64}),
    ],
)
def test_keys_of_flags(given, keys):
    assert parse_keys(given) == keys


def test_keys_are_kept_as_digests():
    settings = load_gateway_settings(
        "", {"keys": {"a": "sk-1234567890123", "b": f"sha256:{digest('sk-87654321').upper()}"}}, ONE
    )
    assert settings.keys == {"a": digest("sk-1234567890123"), "b": digest("sk-87654321")}
    assert "sk-1234" not in repr(settings)


@table(
    ("key", "said"),
    [
        ("shorty", "too short"),
        ("fifteen-letters", "at least 16 characters, such as this new one: "),
        ("sha256:abc", "not a digest"),
        ("sha256:" + "g" * 64, "not a digest"),
    ],
)
def test_keys_that_cannot_be(key, said):
    message = wrong("", {"keys": {"a": key}}, ONE)
    assert said in message
    assert key not in message


TWO = """
[[backends]]
url = "http://one/v1"
mode = "native"
profile = {temperature = 0.5, max_tokens = 9}

[[backends]]
url = "http://two/v1"
"""
FIRST = TWO.rpartition("[[backends]]")[0]


def test_flags_are_above_the_files_backends(written):
    fields = {"mode": "validated", "dialect": "hermes", "profile": {"temperature": 0.1}}
    one, two = load_gateway_settings(written(TWO), {}, None, fields).backends
    assert (one.mode, one.dialect, one.profile) == ("validated", "hermes", {"temperature": 0.1, "max_tokens": 9})
    assert (two.mode, two.dialect, two.profile) == ("validated", "hermes", {"temperature": 0.1})


def test_flags_of_one_backend_are_for_a_file_with_one(written, monkeypatch):
    monkeypatch.setenv("UPSTREAM", "secret")
    fields = {"wire": "messages", "key_variable": "UPSTREAM", "model_map": {"a": "b"}}
    (backend,) = load_gateway_settings(written(FIRST), {}, None, fields).backends
    assert (backend.wire, backend.key, backend.model_map, backend.mode) == ("messages", "secret", {"a": "b"}, "native")
    for name, flag in [("wire", "--backend-wire"), ("key_variable", "--backend-key"), ("model_map", "--model-map")]:
        said = wrong(written(TWO), {}, None, {name: fields[name]})
        assert said.startswith(f"{flag}: does not say which backend it is for")
