"""Names that a reader knows: what a class, a function, a variable and a module of Callboard may not be called."""

import ast
from collections import defaultdict
from pathlib import Path

from tests import test_prose
from tests.test_prose import read_module, statements

PACKAGE = Path(__file__).parents[1] / "src/callboard"
forget_modules = test_prose.forget_modules


def modules():
    return {path.relative_to(PACKAGE).as_posix(): read_module(path) for path in PACKAGE.rglob("*.py")}


PARTICIPLES = """
    told said asked given kept shown found spelled listed left begun lost crossed suited amended reminded settled taken
    made held noted served heard overheard beneath meant wanted written seen sent gone done_with put_back passed_on
    allowed_by stood standing telling saying asking
"""
"""A function is a verb: `render`, not `spelled`."""

ADJECTIVES = "cached embed feed filtered prefixed renamed sed"
"""What tools become by these functions of callboard.tools, and words that only end like participles."""

RIDDLES = "told said given kept found left lost asked heard meant beneath wanted"
"""A value is a noun: `notice`, not `told`."""


def bound_name(node):
    """The name that a node binds as an argument, a variable or an attribute."""
    match node:
        case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return name
    return ""


def is_participle(function):
    """Whether a function is a participle alone; a property is a value, and may be one."""
    name = function.name.lstrip("_")
    value = any(getattr(each, "id", "") in {"property", "cached_property"} for each in function.decorator_list)
    participle = name.endswith("ed") and "_" not in name and name not in ADJECTIVES.split()
    return name in PARTICIPLES.split() or (participle and not value)


def test_functions_are_verbs():
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in modules().items()
        for node in statements(tree)
        if isinstance(node, functions) and is_participle(node)
    ] == []


def test_values_are_nouns():
    assert [
        f"{path}:{node.lineno} {bound_name(node)}"
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if bound_name(node).lstrip("_") in RIDDLES.split()
    ] == []


def test_the_name_of_a_class_means_one_thing():
    """The codecs of the wires have the same names on purpose."""
    places = defaultdict(list)
    for path, tree in modules().items():
        for node in statements(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not path.startswith("wires/"):
                places[node.name].append(path)
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}
