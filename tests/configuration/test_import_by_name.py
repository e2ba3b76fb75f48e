import sys
from types import ModuleType

import pytest

from callboard.configuration import import_by_name, load_configuration
from callboard.configuration.import_by_name import ensemble_file, find_callable, make_connection, named_ensembles
from callboard.errors import CallerError, DescriptorError
from callboard.tools import EnsembleDescriptor, InvokerDescriptor


@pytest.fixture
def shop(monkeypatch):
    """A module with functions."""

    class Till:
        @staticmethod
        def open_drawer():
            return "open"

    def connection(url: str, port: int = 80):
        return (url, port)

    module = ModuleType("shop")

    def sell():
        return "sold"

    sell.__module__ = Till.__module__ = "shop"
    module.sell, module.Till = sell, Till
    module.price = 3
    module.connection = connection
    monkeypatch.setitem(sys.modules, "shop", module)
    return module


def find_by_descriptor(invoker="sell", callable_="", **keys):
    ensemble = EnsembleDescriptor(**{"name": "shop", "path": "shop.toml", **keys})
    return find_callable(InvokerDescriptor(name=invoker, callable=callable_, path="shop.toml:3: invokers[0]"), ensemble)


@pytest.mark.usefixtures("shop")
def test_where_functions_are():
    assert find_by_descriptor(callable_="shop:sell")() == "sold"
    assert find_by_descriptor(callable_="shop:Till.open_drawer")() == "open"
    assert find_by_descriptor(module="shop")() == "sold"
    assert find_by_descriptor("read_file", name="io").name == "read_file"


BROKEN = "raise RuntimeError('not today')"


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (
            {},
            (
                "no function is named for 'sell'; "
                'write callable = "package.module:function", or module = "package.module" in [ensemble]'
            ),
        ),
        ({"callable_": "shop"}, "'shop' does not name a function; write package.module:function"),
        ({"callable_": "shop:"}, "'shop:' does not name a function; write package.module:function"),
        ({"callable_": ":sell"}, "':sell' does not name a function; write package.module:function"),
        ({"callable_": "shop:sel"}, "shop has no 'sel'; did you mean 'sell'?"),
        ({"callable_": "shop:Till.close"}, "shop has no 'Till.close'; did you mean 'Till'?"),
        ({"callable_": "shop:price"}, "shop:price is not a function"),
        ({"callable_": "..:sell"}, "'..' is not a module name; write package.module"),
        ({"callable_": "shop.py:sell"}, "cannot import shop.py: ModuleNotFoundError: No module named 'shop.py'"),
        ({"module": "nowhere"}, "cannot import nowhere: ModuleNotFoundError: No module named 'nowhere'"),
        ({"module": "broken_shop"}, "cannot import broken_shop: RuntimeError: not today"),
        (
            {"name": "io"},
            "callboard.configuration.io_tools has no 'sell'; there are connection, read_file, write_file, list_directory",
        ),
    ],
)
@pytest.mark.usefixtures("shop")
def test_a_function_that_is_not_there(tmp_path, monkeypatch, keys, told):
    (tmp_path / "broken_shop.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(DescriptorError) as caught:
        find_by_descriptor(**keys)
    assert str(caught.value).startswith(f"shop.toml:3: invokers[0]: {told}")


def connected(module="shop", **options):
    places = {key: f"shop.toml:2: ensemble.{key}" for key in options}
    return make_connection(
        EnsembleDescriptor(name="shop", module=module, options=options, places=places, path="shop.toml")
    )


def test_a_connection_is_made_of_the_ensembles_keys(shop):
    assert connected(url="x") == ("x", 80)
    assert connected(url="x", port="8080") == ("x", 8080)
    shop.connection = lambda: "made"
    assert connected() == "made"
    del shop.connection
    assert connected() is None
    assert connected(module="") is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"url": "x", "prt": 1}, "shop.toml:2: ensemble.prt: unknown key; did you mean 'port'?"),
        ({"url": "x", "enabld": True}, "shop.toml:2: ensemble.enabld: unknown key; did you mean 'enabled'?"),
        ({"url": 3}, "shop.toml:2: ensemble.url: Input should be a valid string"),
        ({"port": 3}, "shop.toml: url: Field required"),
        ({}, "shop.toml: url: Field required"),
    ],
)
@pytest.mark.usefixtures("shop")
def test_keys_that_do_not_fit(options, told):
    with pytest.raises(DescriptorError) as caught:
        connected(**options)
    assert str(caught.value) == told


@pytest.fixture
def added(monkeypatch):
    """What packages add."""

    def add(*objects):
        monkeypatch.setattr(import_by_name, "plugins", {"callboard.ensembles": objects}.__getitem__)
        import_by_name._plugin_files.cache_clear()

    yield add
    monkeypatch.undo()
    import_by_name._plugin_files.cache_clear()


def test_ensembles_that_packages_add(added, tmp_path):
    file = tmp_path / "shop.toml"
    file.write_text(
        "[ensemble]\nname = 'till'\n[[invokers]]\nname = 'fill'\ncallable = 'textwrap:fill'\narguments = {}\n"
    )
    added(file, str(tmp_path / "other.toml"))
    assert ensemble_file("shop") == file
    assert [*named_ensembles()] == ["io", "shop", "other"]
    assert [ensemble_file(name) for name in ("nothing", "./shop", "shop.toml", "")] == [None] * 4
    (read,) = load_configuration(["shop"])["ensembles"]
    assert (read.name, [each.name for each in read.invokers]) == ("till", ["fill"])


def test_what_is_no_file_of_an_ensemble(added):
    added(3)
    with pytest.raises(CallerError, match=r"callboard\.ensembles: 3 is no path of a file; name one: NAME\.toml"):
        ensemble_file("shop")
    assert ensemble_file("io") is not None
