"""The code that a prompt shows: from failing tests through imports and re-exports to definitions, in realistic trees."""

from tests.tables import table

from callboard.coding.agents.find_definitions import MAX_MODULES, Project, find_parts
from callboard.coding.agents.prompts import MAX_TEXT, choose_files, choose_lines, format_lines
from callboard.coding.test_runners import Failure, TestReport

TOTAL = "def total(items, rate=0):\n    return sum(items) - rate\n"
TEST = "\n\ndef test_total():\n    assert {use}([1], 2) == 3\n"
FILLER = "".join(f"def helper_{number}(value):\n    return value + {number}\n\n\n" for number in range(400))
LONG = f'"""Prices."""\n\nimport math\n\n\n{FILLER}@cached\n{TOTAL}\n\n{FILLER.replace("helper", "other")}'


def failed(name="tests/test_shop.py::test_total", location="tests/test_shop.py:5", message="assert -1 == 3"):
    return TestReport(runner="pytest", command=("pytest",), code=1, failures=(Failure(name, location, message),))


def prompt(files, report=None, task="test_total fails"):
    """The prompt's text of the files."""
    report = report or failed()
    project = Project([*files], files.get)
    chosen = choose_files(f"{task}\n{report.summary}", [*files], files.get)
    parts = find_parts(task, report, chosen, project)
    shown = choose_lines(parts, chosen, lambda path: getattr(project.load(path), "lines", ()))
    text = format_lines(shown, lambda path: project.load(path).lines)
    assert len(text) <= MAX_TEXT + 200 * len(shown)
    return text


PYTHON = {
    "a long module": ("from shop.prices import total", "total", {"shop/__init__.py": "", "shop/prices.py": LONG}),
    "a re-export": (
        "from shop import total",
        "total",
        {"shop/__init__.py": "from .prices import total\n", "shop/prices.py": LONG},
    ),
    "a re-export under another name": (
        "from shop import compute",
        "compute",
        {
            "shop/__init__.py": "from shop.prices import (\n    other_1,  # x\n    total as compute,\n)\n",
            "shop/prices.py": LONG,
        },
    ),
    "a star import": (
        "from shop import *",
        "total",
        {
            "shop/__init__.py": "from .core import *\n",
            "shop/core/__init__.py": "from .prices import *\n",
            "shop/core/prices.py": LONG,
        },
    ),
    "the src layout": ("import shop.prices as p", "p.total", {"src/shop/__init__.py": "", "src/shop/prices.py": LONG}),
    "a dotted module": ("import shop.prices", "shop.prices.total", {"shop/prices.py": LONG}),
    "a module of a package": (
        "from shop import prices",
        "prices.total",
        {"shop/__init__.py": "", "shop/prices.py": LONG},
    ),
    "a module that the package imports": (
        "import shop",
        "shop.prices.total",
        {"shop/__init__.py": "from . import prices\n", "shop/prices.py": LONG},
    ),
    "a project in a folder": (
        "from shop.prices import total",
        "total",
        {"backend/shop/__init__.py": "", "backend/shop/prices.py": LONG},
    ),
    "a cycle of imports": (
        "from shop import total",
        "total",
        {
            "shop/__init__.py": "from .a import *\nfrom .prices import total\n",
            "shop/a.py": "from .b import *\nfrom shop import *\n",
            "shop/b.py": "from .a import total, x\n",
            "shop/prices.py": LONG,
        },
    ),
    "an import in a function": ("def f():\n    from shop import total\n", "total", {"shop.py": LONG}),
}


@table("layout", PYTHON)
def test_the_definition_behind_a_failing_test_is_shown(layout):
    imported, use, files = PYTHON[layout]
    text = prompt({**files, "tests/test_shop.py": imported + TEST.format(use=use)})
    assert f"@cached\n{TOTAL}" in text
    assert "def test_total" in text
    assert ("prices.py (parts of it)" in text) == ("prices.py" in "".join(files))


def test_what_the_definition_uses_and_what_calls_it_is_shown():
    files = {
        "shop/__init__.py": "from .cart import Cart\n",
        "shop/cart.py": f"from .money import Money, RATES\n\n\n{FILLER}class Cart(Base):\n"
        '    """A cart."""\n\n    def __init__(self):\n        self.items = []\n\n'
        "    def total(self):\n        return self._sum(Money(RATES['x']))\n\n"
        + "".join(f"    def unused_{number}(self):\n        return {number}\n\n" for number in range(400))
        + "    def _sum(self, start):\n        return start - sum(self.items)\n\n\n"
        f"def checkout(cart):\n    return Cart().total()\n\n\n{FILLER.replace('helper', 'other')}",
        "shop/money.py": f"RATES = {{\n    'x': 3,\n}}\n{FILLER}class Money(int):\n    cents = 100\n",
        "tests/conftest.py": f"import pytest\n\n\n{FILLER}@pytest.fixture\ndef cart():\n    return 'the fixture'\n",
        "tests/test_shop.py": f"from shop import Cart\n\n\n{FILLER}class TestCart:\n    def test_total(self, cart):\n"
        "        assert cart.total() == Cart().total()\n",
    }
    text = prompt(files, failed("tests/test_shop.py::TestCart::test_total[a-1]", "shop/cart.py:1210"))
    for shown in (
        "class Cart(Base):",
        "def total(self)",
        "def _sum(self, start)",
        "RATES = {\n    'x': 3,\n}",
        "class Money(int)",
        "def checkout(cart)",
        "return 'the fixture'",
        "def test_total(self, cart)",
        "from .money import Money, RATES",
    ):
        assert shown in text
    assert "unused_77" not in text
    assert "helper_77" not in text


def test_the_definitions_that_a_traceback_and_a_task_name_are_shown():
    files = {
        "a.py": LONG,
        "b.py": LONG.replace("def total(", "def broken("),
        "tests/test_shop.py": "def test_total():\n    run()\n",
    }
    line = LONG[: LONG.index("return sum")].count("\n") + 1
    text = prompt(files, failed(message=f"b.py:{line}: ValueError"), task="In a.py other_7 is wrong")
    assert "def broken(" in text
    assert "def other_7(" in text
    assert "def other_8(" not in text


@table(
    ("name", "location"),
    [
        ("test_total", "tests/test_shop.py:5"),
        ("tests/test_shop.py", ""),
        ("test_shop.py::test_total", ""),
        ("nothing", "gone.py:3"),
    ],
)
def test_tests_are_found_as_runners_name_them(name, location):
    files = {"shop.py": LONG, "tests/test_shop.py": f"from shop import total{TEST.format(use='total')}"}
    assert TOTAL in prompt(files, failed(name, location), task="tests/test_shop.py fails")


SCRIPT = "".join(f"export function helper{number}(value) {{\n  return value;\n}}\n" for number in range(900))
SCRIPTS = {
    "named": (
        "import { total as t } from '../src/prices.js';",
        "t",
        {"src/prices.ts": SCRIPT + "export function total(a) {\n  return -a;\n}\n"},
    ),
    "re-exported": (
        "import { total } from '../src';",
        "total",
        {
            "src/index.ts": "export * from './other';\nexport { sum as total } from './prices';\n",
            "src/other.ts": "",
            "src/prices.ts": SCRIPT + "export const sum = (a) => {\n  return -a;\n};\n",
        },
    ),
    "default": (
        "import total from '../src/prices';",
        "total",
        {"src/prices.js": SCRIPT + "export default function compute(a) {\n  return -a;\n}\n"},
    ),
    "all": (
        "import * as prices from '../src/prices';",
        "prices.total",
        {"src/prices.ts": SCRIPT + "export const total = function (a) {\n  return -a;\n};\n"},
    ),
    "required": (
        "const { total: t } = require('../src/prices');",
        "t",
        {"src/prices.js": SCRIPT + "function total(a) {\n  return -a;\n}\nmodule.exports = { total };\n"},
    ),
    "required whole": (
        "const prices = require('../src/prices');",
        "prices.total",
        {"src/prices.js": SCRIPT + "function total(a) {\n  return -a;\n}\n"},
    ),
}


@table("layout", SCRIPTS)
def test_the_definition_behind_a_failing_script_is_shown(layout):
    imported, use, files = SCRIPTS[layout]
    test = f"{imported}\n\ntest('total', () => {{\n  expect({use}(1)).toBe(1);\n}});\n"
    text = prompt({**files, "test/prices.test.js": test}, failed("total", "test/prices.test.js:4"))
    assert "return -a;" in text
    assert "helper77" not in text


@table(("folder", "package"), [("prices", "prices_test"), ("prices", "prices"), ("", "shop")])
def test_the_definition_behind_a_failing_go_test_is_shown(folder, package):
    filler = "".join(f"func Helper{number}(a int) int {{\n\treturn a\n}}\n" for number in range(900))
    files = {
        "go.mod": "module example.org/shop\n",
        f"{folder}/prices.go".lstrip("/"): f"package prices\n\n{filler}\nfunc Total(a int) int {{\n\treturn -a\n}}\n",
        f"{folder}/prices_test.go".lstrip(
            "/"
        ): f'package {package}\n\nimport (\n\t"testing"\n\n\t"example.org/shop/prices"\n)\n\n'
        f"func TestTotal(t *testing.T) {{\n\tif {'prices.' * (package == 'prices_test')}Total(1) != 1 {{\n\t\tt.Fatal()\n\t}}\n}}\n",
    }
    text = prompt(files, failed("TestTotal", f"{folder}/prices_test.go:11".lstrip("/")))
    assert "return -a" in text
    assert "Helper77" not in text


def test_a_hostile_repository_costs_no_more_than_its_limits():
    read = []
    files = {
        f"m{number}.py": f"from m{(number + 1) % 900} import *\nfrom m{(number * 7) % 900} import *\n"
        for number in range(900)
    }
    files["tests/test_shop.py"] = "from m0 import *\n" + "".join(f"a{number}.b.c\n" for number in range(5000))
    project = Project([*files], lambda path: read.append(path) or files[path])
    find_parts("", failed("tests/test_shop.py", ""), ["tests/test_shop.py"], project)
    assert len(read) == len({*read}) == MAX_MODULES
    for text in (
        "from a import (" * 2000,
        "from a import (\n" * 2000,
        "class A:\n" + " class B:\n" * 2000,
        "x = (\n" * 2000,
        "import\n" * 2000,
        "".join(f"{' ' * number}class x{number}:\n" for number in range(300)),
        "".join(f"from tests.test_shop import x{number + 1} as x{number}\n" for number in range(2000)) + "x0",
        "export default total\n",
    ):
        hostile = {"tests/test_shop.py": text, "a.js": text, "a.go": text}
        for path in hostile:
            find_parts("", failed(path, f"{path}:1"), [path], Project([*hostile], hostile.get))


def test_nothing_beside_the_files_of_the_repository_is_read():
    files = {"tests/test_shop.py": "from ..... import x\nfrom os.path import join\nimport json\njoin(x, json)\n"}
    read = []
    find_parts(
        "",
        failed("tests/test_shop.py", "/etc/passwd:1"),
        [*files],
        Project([*files], lambda path: read.append(path) or files.get(path)),
    )
    assert read == [*files]
