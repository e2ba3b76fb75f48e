"""Agent Skills: folders with a `SKILL.md`, in the format of agentskills.io.

A prompt lists the skills by name and description. The tool `skill` loads one of them, and the other files of its folder.

Laws: a skill reads only files beneath its own folder, after links are resolved. A skill of a project that the user does
not trust is listed, and never loaded. A problem turns off one skill, not the others.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from callboard.configuration.ownership import find_unsafe_owner
from callboard.errors import CallerError
from callboard.storage.confined_directory import ConfinedDirectory, set_path_guard
from callboard.text.display import collapse, escape
from callboard.text.suggest import suggest
from callboard.tools import Context, Ensemble, Invoker

FILE: Final = "SKILL.md"
PLACES: Final = (".agents/skills", ".claude/skills")
"""Folders of skills in a project and in the user's home: the one that agents share, and the one most skills are made for."""
SKILL: Final = "skill"
"""Name of the tool, and of its ensemble."""
MAX_BYTES: Final = 256 * 1024
"""Maximum bytes of a file of a skill."""
MAX_FRONT_MATTER: Final = 16 * 1024
"""Maximum characters of the front matter."""
MAX_NAME: Final = 64
MAX_DESCRIPTION: Final = 1024
MAX_SKILLS: Final = 200
"""Maximum skills of one folder."""
MAX_LISTED: Final = 100
"""Maximum files of a skill that the model is told about."""
MAX_TOKENS: Final = 2000
"""Maximum tokens of the list in a prompt."""
SHARE: Final = 0.05
"""Maximum share of the model's context window that the list takes."""

_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_KEY: Final = re.compile(r"[A-Za-z][\w-]*")
_BLOCK: Final = re.compile(r"[|>][-+]?\d?")
_CHARS_PER_TOKEN: Final = 4
_HEADING: Final = (
    "These skills hold instructions for certain tasks. If one fits the task, call skill with its name first, and follow "
    "what it says:"
)
_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "The skill's name"},
        "file": {"type": "string", "default": "", "description": "A file of the skill; empty for its instructions"},
    },
    "required": ["name"],
    "additionalProperties": False,
}


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """A skill. `folder` has no links. A skill with a `problem` is off, and `hint` says how to turn it on."""

    name: str
    description: str = ""
    folder: Path
    source: str = ""
    """Its owner: `project`, `user`, or `argument` of a program."""
    problem: str = ""
    hint: str = ""


def find_skills(directory: Path, trusted: Iterable[str], home: Path | None = None) -> list[Skill]:
    """Return the skills of a project and of the user, by name, also those that are off.

    Of several skills with one name, the one nearest to the directory is on.

    Args:
        directory: A directory of the project. Its parents count up to the root of the repository.
        trusted: The projects that the user trusts.
        home: The user's home.
    """
    above = [directory.resolve(), *directory.resolve().parents]
    root = next((at for at, each in enumerate(above) if (each / ".git").exists()), 0)
    projects, own = above[: root + 1], (home or Path.home()).resolve()
    is_trusted = not {Path(each).resolve() for each in trusted}.isdisjoint(projects)
    skills = [
        each
        for project in projects
        if project != own
        for each in _find_in(project, "project", within=projects[-1], is_trusted=is_trusted)
    ]
    skills += _find_in(own, "user", within=None, is_trusted=True)
    chosen: dict[str, Skill] = {}
    others: list[Skill] = []
    unique: dict[Path, Skill] = {}
    for each in skills:
        unique.setdefault(each.folder, each)
    for each in unique.values():
        if each.problem:
            others.append(each)
        elif (first := chosen.setdefault(each.name, each)) is not each:
            others.append(replace(each, problem=f"another skill has this name: {first.folder}"))
    return sorted([*chosen.values(), *others], key=lambda each: each.name)


def load_skills(paths: Iterable[str | Path]) -> list[Skill]:
    """Return the skills in these folders; a folder without a `SKILL.md` is a folder of skills.

    Raises CallerError for a skill that cannot be used, and for two skills of one name.
    """
    by_name: dict[str, Skill] = {}
    for path in paths:
        folder = Path(path).expanduser()
        folders = [folder] if (folder / FILE).exists() else [*_folders_of(folder)]
        if not folders:
            raise CallerError(f"no {FILE} here", path=str(folder), hint="name a skill's folder, or a folder of skills")
        for each in folders:
            skill = read_skill(each, "argument")
            if (other := by_name.setdefault(skill.name, skill)).folder != skill.folder:
                raise CallerError(f"another skill has this name: {other.folder}", path=str(each))
    return [*by_name.values()]


def read_skill(folder: Path, source: str, within: Path | None = None) -> Skill:
    """Return the skill in a folder. Raises CallerError if its folder leads out of `within`, or is no skill."""
    path = str(folder / FILE)
    try:
        real = folder.resolve(strict=True)
        if within is not None and not real.is_relative_to(within):
            raise CallerError(f"it is a link to {real}, outside of the project", path=str(folder))
        fields, _ = _split(_read(real, FILE), path)
    except (OSError, RuntimeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CallerError(reason, path=path) from None
    name, description = fields.get("name", ""), " ".join(fields.get("description", "").split())
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        hint = f"use at most {MAX_NAME} lower-case letters, digits and single hyphens"
        raise CallerError(f"the name '{escape(name[: MAX_NAME + 1])}' is not valid", path=path, hint=hint)
    if name != folder.name:
        raise CallerError(f"the name is {name}, and the folder is {escape(folder.name)}", path=path, hint="rename one")
    if not description or len(description) > MAX_DESCRIPTION or not description.isprintable():
        hint = f"write 1 to {MAX_DESCRIPTION} printable characters"
        raise CallerError(f"the description has {len(description)} characters", path=path, hint=hint)
    return Skill(name=name, description=description, folder=real, source=source)


def describe_skills(skills: Sequence[Skill], context_tokens: int | None = None) -> str:
    """Return the list of skills for a prompt, within its share of a context window; "" without skills."""
    room = _CHARS_PER_TOKEN * int(min(MAX_TOKENS, SHARE * (context_tokens or MAX_TOKENS / SHARE)))
    lines: list[str] = []
    for each in skills:
        line = f"- {each.name}: {each.description}"
        room -= len(line) + 1
        if room < 0:
            rest = [skill.name for skill in skills[len(lines) :]]
            more = ", ".join(rest)
            lines.append(f"{len(rest)} more: {more if len(more) <= 10 * _CHARS_PER_TOKEN else 'too many to list'}")
            break
        lines.append(line)
    return "\n".join([_HEADING, *lines]) if lines else ""


def describe_off(skills: Sequence[Skill]) -> str:
    """Return a notice about the skills that are off, "" for none."""
    off = [each for each in skills if each.problem]
    more = f" and {len(off) - 1} more" if len(off) > 1 else ""
    return f"the skill {off[0].name}{more} is off: {off[0].problem}; callboard skills lists them" if off else ""


def make_skills_ensemble(skills: Iterable[Skill]) -> Ensemble:
    """Return an ensemble with the tool that loads these skills."""
    by_name = {each.name: each for each in skills}

    async def load(_: Context, arguments: Mapping[str, Any]) -> str:
        set_path_guard(None)  # the rules for paths are about the workspace
        name, file = arguments["name"], arguments["file"]
        skill = by_name.get(name)
        if skill is None:
            raise CallerError(f"no skill {name[:MAX_NAME]!r}", hint=suggest(name, by_name))
        text = _read(skill.folder, file or FILE)
        if file not in ("", FILE):
            return text
        names = [*islice(_files_of(skill.folder), MAX_LISTED + 1)]
        more = f"\n... and more than {MAX_LISTED}" if len(names) > MAX_LISTED else ""
        listed = "".join([f"\n- {escape(each)}" for each in names[:MAX_LISTED]])
        files = f"\n\nOther files in {escape(str(skill.folder))}:{listed}{more}" if names else ""
        return _split(text, FILE)[1].strip() + files

    description = "Loads a skill: its instructions, or another file of its folder."
    return Ensemble(SKILL, [Invoker(SKILL, load, _SCHEMA, description=description, idempotent=True)])


def _find_in(base: Path, source: str, *, within: Path | None, is_trusted: bool) -> Iterator[Skill]:
    for place in PLACES:
        for folder in _folders_of(base / place):
            off = Skill(name=escape(folder.name), folder=folder, source=source)
            try:
                skill = read_skill(folder, source, within)
            except CallerError as error:
                yield replace(off, problem=error.message, hint=error.hint)
                continue
            if not is_trusted:
                hint = f"callboard trust {base}"
                skill = replace(skill, problem="you do not trust this project", hint=hint)
            elif unsafe := find_unsafe_owner(skill.folder / FILE, trusted=source == "project"):
                skill = replace(skill, problem=unsafe.reason, hint=unsafe.hint)
            yield skill


def _folders_of(place: Path) -> Iterator[Path]:
    """Yield the folders with a `SKILL.md`, also if it is a broken link or a link out of the folder."""
    try:
        names = sorted(each.name for each in islice(os.scandir(place), MAX_SKILLS))
    except OSError:
        return
    for name in names:
        if os.path.lexists(place / name / FILE) or (place / name).is_symlink():
            yield place / name


def _files_of(folder: Path) -> Iterator[str]:
    for path, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if (file := str(Path(path, name).relative_to(folder))) != FILE:
                yield file


def _read(folder: Path, file: str) -> str:
    """Return the text of a file beneath the folder. Raises OSError, CallerError, UnicodeDecodeError."""
    with ConfinedDirectory(str(folder)) as files:
        return files.read(file, MAX_BYTES).decode("utf-8")


def _split(text: str, path: str) -> tuple[dict[str, str], str]:
    """Return the fields of the front matter, and the text below it. Raises CallerError."""
    begin, _, rest = text.removeprefix("\ufeff").replace("\r\n", "\n").partition("\n")
    front, closed, body = f"\n{rest[:MAX_FRONT_MATTER]}".partition("\n---\n")
    if begin.rstrip() != "---" or not closed:
        hint = f"begin with a line ---, name: and description:, and a line ---, in {MAX_FRONT_MATTER} characters"
        raise CallerError("no front matter", path=path, hint=hint)
    return _read_fields(front[1:], path), body + rest[MAX_FRONT_MATTER:]


def _read_fields(front: str, path: str) -> dict[str, str]:
    """Return the fields of front matter. A nested value becomes a text of one line.

    This is the part of YAML that the format uses. Other parts, such as anchors and tags, stay text. Unlike YAML it takes
    a colon in a plain text, which many skills have.
    """
    values: dict[str, list[str]] = {}
    key = ""
    for number, line in enumerate(front.split("\n"), 2):
        if not line.strip() or line.startswith("#"):
            continue
        if line[0] in " \t-" and key:
            values[key].append(line.strip())
            continue
        key, colon, value = line.partition(":")
        if not colon or not _KEY.fullmatch(key) or key in values:
            what = "a key is there twice" if key in values else "not `key: value`"
            raise CallerError(f"{what}: {collapse(line, 60)}", path=f"{path}:{number}")
        values[key] = [value.strip()]
    return {key: _unquote(value) for key, value in values.items()}


def _unquote(lines: list[str]) -> str:
    text = " ".join(lines[1:] if _BLOCK.fullmatch(lines[0]) else lines).strip()
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    if len(text) > 1 and text[0] == text[-1] == '"':
        try:
            value = json.loads(text)
        except ValueError:
            return text[1:-1]
        return value if isinstance(value, str) else text
    return text
