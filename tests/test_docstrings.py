"""What an editor shows of a public name says what it is, what its parameters mean, and what it returns."""

import ast
import importlib
import inspect
import re
from functools import cache
from pathlib import Path

from tests.tables import table

ROOT = Path(__file__).parents[1]
HOOKS = (ROOT / "docs/site_hooks.py").read_text("utf-8")
ROOMS = re.findall(r'"([\w.]+)"', HOOKS.partition("PACKAGES = (")[2].partition(")")[0])
"""The packages of the API reference."""
MAX_IN_PROSE = 4
"""Parameters of a function; more than these have entries under `Args`."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def undocumented(room):
    for name in room.__all__:
        value = getattr(room, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        if not (vars(value) if inspect.isclass(value) else {"__doc__": value.__doc__}).get("__doc__"):
            yield name
        for member, given in vars(value).items():
            function = getattr(given, "fget", None) or getattr(given, "__func__", given)
            if not member.startswith("_") and inspect.isfunction(function) and not function.__doc__:
                yield f"{name}.{member}"


@table("room", ROOMS)
def test_every_public_class_function_and_method_says_what_it_is(room):
    assert [*undocumented(importlib.import_module(room))] == []


@cache
def definitions(path):
    """The classes and functions of a module; of overloads the last one, which is the implementation."""
    tree = ast.parse(Path(path).read_text("utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, *FUNCTIONS))}


def is_entry(name, text):
    return re.search(rf"^ *\**{name}(?: \(.*\))?:", text, re.MULTILINE)


def is_described(name, text):
    """An entry of a section, or the name in backticks: a short sentence is better than a section for few parameters."""
    return is_entry(name, text) or f"`{name}`" in text


def parameters(function):
    own = function.args
    every = [*own.posonlyargs, *own.args, own.vararg, *own.kwonlyargs, own.kwarg]
    return [each.arg for each in every if each and each.arg not in {"self", "cls"}]


def fields(owner):
    """The public fields of a class that have no docstring of their own."""
    for node, after in zip(owner.body, [*owner.body[1:], None], strict=True):
        is_field = isinstance(node, ast.AnnAssign) and not ast.unparse(node.annotation).startswith("ClassVar")
        documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if is_field and not documented and not node.target.id.startswith("_"):
            yield node.target.id


def gaps_of_function(function):
    text = ast.get_docstring(function) or ""
    decorators = {ast.unparse(each) for each in function.decorator_list}
    if "overload" in decorators or any(each.endswith(".setter") for each in decorators):
        return
    if not text:
        yield "docstring"
    elif not decorators & {"property", "cached_property"}:
        names = parameters(function)
        described = is_entry if len(names) > MAX_IN_PROSE else is_described
        yield from [name for name in names if not described(name, text)]
        returned = ast.unparse(function.returns) if function.returns else "None"
        if returned not in {"None", "Never", "NoReturn"} and not re.search("^(Return|Yield)s?\\b", text, re.MULTILINE):
            yield "Returns"


def gaps(node):
    if isinstance(node, FUNCTIONS):
        yield from [f"{node.name}: {gap}" for gap in gaps_of_function(node)]
        return
    functions = [each for each in node.body if isinstance(each, FUNCTIONS)]
    makers = [each for each in functions if each.name == "__init__"]
    text = "\n".join([ast.get_docstring(each) or "" for each in (node, *makers)])
    names = parameters(makers[0]) if makers else fields(node)
    yield from [f"{node.name}: {name}" for name in names if not is_described(name, text)]
    for each in functions:
        if not each.name.startswith("_"):
            yield from [f"{node.name}.{each.name}: {gap}" for gap in gaps_of_function(each)]


@table("room", ROOMS)
def test_docstrings_describe_each_parameter_and_what_is_returned(room):
    module = importlib.import_module(room)
    values = [inspect.unwrap(getattr(module, name)) for name in module.__all__]
    public = [each for each in values if inspect.isclass(each) or inspect.isfunction(each)]
    nodes = [definitions(inspect.getsourcefile(each))[each.__name__] for each in public]
    assert [gap for node in nodes for gap in gaps(node)] == []
