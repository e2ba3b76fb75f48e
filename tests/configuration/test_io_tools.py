import tomllib

import pytest

from callboard import Invoker
from callboard.configuration import io_tools, load_configuration
from callboard.configuration.import_by_name import ENSEMBLES_DIRECTORY
from callboard.errors import DescriptorError
from callboard.execution import run_invoker


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_built_in_ensemble(call, here):
    io = load_configuration(["io"])
    (written,) = call(io, "write_file", {"path": "notes/today.txt", "content": "héllo\r\n"})
    assert written.text == "8 bytes were written to notes/today.txt"
    read, also = call(io, "read_file", {"path": "notes/today.txt"}, {"path": str(here / "notes/today.txt")})
    assert read.text == also.text == "héllo\r\n"
    (listed,) = call(io, "list_directory", {})
    assert listed.text == '["notes/"]'


def test_it_is_laid_out_as_the_seed_says():
    assert sorted(str(path.relative_to(ENSEMBLES_DIRECTORY)) for path in ENSEMBLES_DIRECTORY.rglob("*.toml")) == [
        "io.toml",
        "io/invokers/list_directory.toml",
        "io/invokers/read_file.toml",
        "io/invokers/write_file.toml",
    ]
    # Seed 000, but for the third tool.
    assert tomllib.loads((ENSEMBLES_DIRECTORY / "io.toml").read_text()) == {
        "ensemble": {"name": "io", "enabled": True},
        "defaults": {"timeout": 30, "max_retries": 3},
        "invokers": [
            {"source": "io/invokers/read_file.toml"},
            {"source": "io/invokers/write_file.toml"},
            {"source": "io/invokers/list_directory.toml"},
        ],
    }
    read_file = tomllib.loads((ENSEMBLES_DIRECTORY / "io/invokers/read_file.toml").read_text())
    assert read_file["invoker"] == {"name": "read_file", "enabled": True, "description": "Reads contents of a file"}
    assert read_file["arguments"]["properties"]["path"]["description"] == "Absolute path to file"


@pytest.mark.parametrize(
    ("name", "arguments", "category", "told"),
    [
        ("read_file", {"path": "nothing"}, "execution", "FileNotFoundError: [Errno 2] No such file or directory: 'not"),
        ("read_file", {"path": "folder"}, "execution", "IsADirectoryError: [Errno 21] Is a directory: 'folder'"),
        ("read_file", {"path": "../x"}, "permission", "PermissionError: '../x' is outside of "),
        ("write_file", {"path": "/etc/x", "content": ""}, "permission", "PermissionError: '/etc/x' is outside of "),
        ("list_directory", {"path": "/"}, "permission", "PermissionError: '/' is outside of "),
        ("read_file", {"path": "latin"}, "execution", "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe9"),
        ("read_file", {"path": "latin", "encoding": "klingon"}, "execution", "ValueError: no encoding 'klingon'"),
        ("read_file", {"path": "latin", "encoding": "idna"}, "execution", "ValueError: no encoding 'idna'"),
        ("read_file", {"path": "latin", "encoding": "zlib"}, "execution", "LookupError: 'zlib' is not a text encoding"),
        ("read_file", {"path": "large"}, "execution", "OSError: [Errno 27] File has more than 10485760 bytes: 'large'"),
        ("write_file", {"path": "x", "content": "é", "encoding": "ascii"}, "execution", "UnicodeEncodeError: "),
        ("read_file", {"pth": "x"}, "validation", "ArgValidationError: path\n  Field required"),
        ("read_file", {"path": "latin", "mode": "r"}, "validation", "ArgValidationError: mode\n  Extra inputs are not"),
    ],
)
def test_what_a_model_gets_wrong(call, here, name, arguments, category, told):  # noqa: PLR0917 - half are fixtures
    (here / "folder").mkdir()
    (here / "latin").write_bytes(b"caf\xe9")
    with (here / "large").open("wb") as file:
        file.truncate(io_tools.MAX_BYTES + 1)
    (result,) = call(load_configuration(["io"]), name, arguments)
    assert result.error.category == category
    assert result.error.message.startswith(told)
    assert not (here / "x").exists()


def test_an_encoding(call, here):
    (here / "latin").write_bytes(b"caf\xe9")
    (result,) = call(load_configuration(["io"]), "read_file", {"path": "latin", "encoding": "latin-1"})
    assert result.text == "café"


def test_content_that_is_too_large(call, here):
    (result,) = call(load_configuration(["io"]), "write_file", {"path": "x", "content": "x" * (io_tools.MAX_BYTES + 1)})
    assert result.error.message == "ValueError: the content has more than 10485760 bytes"
    assert not (here / "x").exists()


def test_a_root_of_its_own(call, here, write):
    write("elsewhere/x", "in it")
    io = {"ensembles": [{"name": "io", "root": str(here / "elsewhere"), "invokers": [{"name": "read_file"}]}]}
    assert call(io, "read_file", {"path": "x"})[0].text == "in it"


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"rot": "."}, "ensembles[0].rot: unknown key; did you mean 'root'?"),
        ({"root": 3}, "ensembles[0].root: Input should be a valid string"),
    ],
)
def test_a_root_that_is_none(call, keys, told):
    with pytest.raises(DescriptorError) as caught:
        call({"ensembles": [{"name": "io", **keys, "invokers": [{"name": "read_file"}]}]}, "read_file")
    assert str(caught.value) == told


def test_models_may_read_and_people_are_asked_before_they_write():
    asked = {each.name: each.approval for each in (io_tools.read_file, io_tools.write_file, io_tools.list_directory)}
    assert asked == {"read_file": False, "write_file": True, "list_directory": False}


def test_a_tool_without_its_ensemble():
    import asyncio

    result = asyncio.run(run_invoker(Invoker.of(io_tools.read_file), {"path": "x"}, on_error="feedback"))
    assert result.error.message == "TypeError: this tool belongs to an ensemble with a root"
