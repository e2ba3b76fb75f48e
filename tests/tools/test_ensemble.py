from __future__ import annotations

import pytest
from tests.tables import table

from callboard import Ensemble, Invoker, tool
from callboard.errors import DescriptorError, NoSuchTool, ToolDefinitionError

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def invoker(name):
    async def invocable(_, arguments):
        return f"{name} of {arguments['path']}"

    return Invoker(name, invocable, PATH)


class Connection:
    def __init__(self):
        self.did = []

    async def connect(self):
        self.did.append("connect")

    async def disconnect(self):
        self.did.append("disconnect")


async def test_the_seeds_ensemble():
    read_file, write_file, list_directory = map(invoker, ("read_file", "write_file", "list_directory"))

    # Seed 000, example 2.
    io_ensemble = Ensemble(
        name="io",
        invokers={"read_file": read_file, "write_file": write_file, "list_directory": list_directory},
        configuration={"timeout": 30},
        connection=None,
    )
    await io_ensemble.connect()
    assert io_ensemble.access_invoker("read_file") is read_file
    await io_ensemble.disconnect()
    io = io_ensemble
    assert [*io.invokers] == ["read_file", "write_file", "list_directory"]
    assert io.configuration == {"timeout": 30}
    assert all(each.ensemble is io for each in io.invokers.values())
    assert repr(io) == "<Ensemble io: read_file, write_file, list_directory>"


def test_functions_tools_and_invokers_are_all_welcome():
    def count(text: str) -> int:
        """Count the letters."""
        return len(text)

    @tool(name="shout")
    def loud(text: str) -> str:
        """Shout it."""
        return text.upper()

    mixed = Ensemble("mixed", [count, loud])
    mixed.add_invoker(invoker("read_file"))
    assert {name: type(each) for name, each in mixed.invokers.items()} == dict.fromkeys(
        ("count", "shout", "read_file"), Invoker
    )
    assert mixed.access_invoker("count").description == "Count the letters."


def test_one_tool_may_be_in_two_ensembles():
    @tool
    def count(text: str) -> int:
        """Count the letters."""
        return len(text)

    one, other = Ensemble("one", [count]), Ensemble("other", [count])
    assert one.access_invoker("count").ensemble is one
    assert other.access_invoker("count").ensemble is other


@table(
    ("name", "hint"),
    [
        ("read_fil", "did you mean 'read_file'?"),
        ("list_dir", "did you mean 'list_directory'?"),
        ("zzz", "there are read_file, list_directory"),
    ],
)
def test_a_name_that_there_is_not(name, hint):
    with pytest.raises(NoSuchTool) as caught:
        Ensemble("io", [invoker("read_file"), invoker("list_directory")]).access_invoker(name)
    assert str(caught.value) == f"io: no tool {name!r}; {hint}"
    assert isinstance(caught.value, LookupError)


def test_a_name_in_an_empty_ensemble():
    with pytest.raises(NoSuchTool, match="there are no tools"):
        Ensemble("io").access_invoker("read_file")


def test_a_name_is_taken_once():
    with pytest.raises(DescriptorError) as caught:
        Ensemble("io", [invoker("read_file"), invoker("read_file")])
    assert str(caught.value) == "io: two tools are named 'read_file'; rename one: @tool(name=...)"


def test_what_is_no_tool():
    with pytest.raises(ToolDefinitionError, match="3 is not a tool"):
        Ensemble("io", [3])


def test_nothing_is_changed_from_outside():
    configuration = {"timeout": 30}
    io = Ensemble("io", [invoker("read_file")], configuration)
    configuration["timeout"] = 1
    assert io.configuration["timeout"] == 30
    with pytest.raises(TypeError):
        io.invokers["other"] = invoker("other")
    with pytest.raises(TypeError):
        io.configuration["timeout"] = 1


async def test_the_connection_lives_as_long_as_the_ensemble():
    connection = Connection()
    io = Ensemble("io", connection=connection)

    await io.connect()
    assert connection.did == ["connect"]
    await io.disconnect()
    assert connection.did == ["connect", "disconnect"]


def test_one_invoker_may_be_in_two_ensembles():
    one = Ensemble("one", [invoker("read_file")])
    own = one.access_invoker("read_file")
    other = Ensemble("other")
    added = other.add_invoker(own)
    assert (own.ensemble, added.ensemble) == (one, other)
    assert added is other.access_invoker("read_file")
    assert added is not own


def test_an_invoker_that_says_its_ensemble():
    # Seed 000, example 1.
    io = Ensemble("io")
    said = Invoker("read_file", invoker("read_file").invocable, PATH, ensemble=io)
    assert io.add_invoker(said) is said


def test_a_copy_of_an_invoker():
    own = invoker("read_file")
    copied = own.replace(name="other", approval=True)
    assert (own.name, own.approval, copied.name, copied.approval) == ("read_file", False, "other", True)
    for name in ("arguments_schema", "nonsense", "_validator"):
        with pytest.raises(TypeError, match=f"'{name}' of an invoker cannot be replaced"):
            own.replace(**{name: {}})


@table(
    ("configuration", "message"),
    [
        ({"timeout": "x"}, "io: configuration.timeout: 'x' is not a number of seconds above zero"),
        ({"timeout": 0}, "io: configuration.timeout: 0 is not a number of seconds above zero"),
        ({"timeout": float("nan")}, "io: configuration.timeout: nan is not a number of seconds above zero"),
        ({"max_retries": -1}, "io: configuration.max_retries: -1 is not a count"),
        ({"max_retries": 1.5}, "io: configuration.max_retries: 1.5 is not a count"),
        ([], None),
        ("timeout", "io: configuration: 'timeout' is not a mapping"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_when_it_is_made(configuration, message):
    if message is None:
        assert Ensemble("io", configuration=configuration).configuration == {}
        return
    with pytest.raises(DescriptorError) as caught:
        Ensemble("io", configuration=configuration)
    assert str(caught.value) == message


def test_a_mapping_whose_names_are_not_those_of_its_tools_is_refused():
    def bar() -> None: ...

    with pytest.raises(
        DescriptorError, match=r"^io: 'foo' maps to a tool that is named 'bar'; write 'bar', or rename it"
    ):
        Ensemble("io", {"foo": Invoker.of(tool(bar))})


def test_a_tool_that_is_in_no_list_is_refused():
    def bar() -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"is not a list; put it into a list"):
        Ensemble("io", tool(bar))


async def test_a_connection_may_have_plain_methods():
    happened = []

    class Connection:
        def connect(self) -> None:
            happened.append("connected")

        def disconnect(self) -> None:
            happened.append("disconnected")

    ensemble = Ensemble("io", connection=Connection())
    await ensemble.connect()
    await ensemble.disconnect()
    assert happened == ["connected", "disconnected"]


@table("tools", [None, 5, "look", b"look"])
def test_tools_that_are_no_list_are_refused(tools):
    with pytest.raises(
        ToolDefinitionError, match=r"^io: .* is not a list; give a list of functions, Tools or Invokers$"
    ):
        Ensemble("io", tools)


def test_one_ensemble_is_not_the_tools_of_another():
    with pytest.raises(ToolDefinitionError, match=r"is not a list; give a list of functions"):
        Ensemble("io", Ensemble("inner"))


def test_config_is_another_name_of_configuration():
    assert Ensemble("weather", {}, config={"timeout": 5}).configuration == {"timeout": 5}
    with pytest.raises(DescriptorError, match="not both"):
        Ensemble("weather", configuration={}, config={})
