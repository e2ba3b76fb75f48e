"""Show a call of the chat in an editor: its kind, its title, its files, and its result.

Law: text from a model or a file is shown as code, so it cannot imitate a link, a picture or one of our questions.

Read the prompt of a client's user: texts, files, pictures.

Law: nothing is fetched. The model reads a file that the prompt names with its own tools, if the rules allow it.
"""

from __future__ import annotations

import base64
import binascii
import json
import os.path
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from acp.helpers import image_block, text_block, tool_content, tool_diff_content
from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    ContentToolCallContent,
    EmbeddedResourceContentBlock,
    FileEditToolCallContent,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    ToolCallLocation,
    ToolKind,
)

from callboard.coding.agents.phases import actions_of_groups
from callboard.coding.workspace.changed_files import ChangedFile, diff_of
from callboard.coding.workspace.file_editor import NotText, decode
from callboard.core import PictureContent, ResultCanister
from callboard.errors import CallerError
from callboard.execution.result_store import READ_RESULT
from callboard.text.display import collapse, make_visible, strip_controls
from callboard.text.truncate import truncate

ContentBlock: TypeAlias = (
    TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
)

MAX_PROMPT: Final = 2_000_000
"""Maximum characters of a prompt, including its files."""
MAX_PICTURES: Final = 20
_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")


class Prompt(NamedTuple):
    """A prompt: its text, and its pictures."""

    text: str
    pictures: tuple[PictureContent, ...]


def read_prompt(blocks: Iterable[ContentBlock], root: Path) -> Prompt:
    """Return the prompt in a client's blocks. `root` is the session's directory. Raises CallerError."""
    texts: list[str] = []
    pictures: list[PictureContent] = []
    for at, block in enumerate(blocks):
        match block:
            case TextContentBlock(text=text):
                texts.append(text)
            case ImageContentBlock(data=data, mime_type=kind):
                pictures.append(_read_picture(data, kind, f"prompt[{at}]"))
            case ResourceContentBlock(uri=uri):
                texts.append(_name_of(uri, root))
            case EmbeddedResourceContentBlock(resource=resource):
                if isinstance(resource, BlobResourceContents):
                    hint = "send text or a picture"
                    raise CallerError("only text files can be read", path=f"prompt[{at}]", hint=hint)
                name = _name_of(resource.uri, root)
                texts.append(f'\n<file path="{name}">\n{resource.text}\n</file>\n')
            case _:
                raise CallerError("audio is not supported", path=f"prompt[{at}]", hint="send text or pictures")
    # JSON can contain half a surrogate pair, which UTF-8 cannot encode.
    text = "".join(texts).encode("utf-8", "replace").decode()
    if len(text) > MAX_PROMPT:
        raise CallerError(
            f"more than {MAX_PROMPT} characters", path="prompt", hint="name files instead of sending them"
        )
    if len(pictures) > MAX_PICTURES:
        raise CallerError(f"more than {MAX_PICTURES} pictures", path="prompt", hint="send fewer pictures at once")
    if not text.strip() and not pictures:
        raise CallerError("the prompt is empty", path="prompt", hint="describe the task")
    return Prompt(text, tuple(pictures))


def _read_picture(data: str, kind: str, path: str) -> PictureContent:
    if kind not in _TYPES:
        raise CallerError(f"type {collapse(kind)!r} is not supported", path=path, hint=f"send {', '.join(_TYPES)}")
    try:
        return PictureContent(base64.b64decode(data, validate=True), kind)
    except (binascii.Error, ValueError):
        raise CallerError("the data is not base64", path=path, hint="send the picture's bytes in base64") from None


def _name_of(uri: str, root: Path) -> str:
    """Return the model's name for an address: the path relative to the root if the file is inside it."""
    try:
        parts = urlsplit(uri)
        path = Path(unquote(parts.path)) if parts.scheme == "file" else None
        name = str(path.relative_to(root)) if path is not None and path.is_relative_to(root) else uri
    except ValueError:
        name = uri
    return collapse(name, 1000).replace('"', "'")


ToolContent: TypeAlias = ContentToolCallContent | FileEditToolCallContent

MAX_TEXT: Final = 100_000
"""Maximum characters of a result that are shown."""
MAX_FILE: Final = 2_000_000
"""Maximum bytes of a file that the editor gets whole, before and after. For larger files it gets only the changes."""
MAX_DEPTH: Final = 64
"""Maximum levels of a call's arguments. Deeper arguments are shown as the model wrote them."""
_MAX_TITLE: Final = 200
_SUBJECTS: Final = ("command", "path", "query", "pattern", "name", "branch", "message")
"""Arguments that describe a call. The first one present is used."""
_NAME: Final = re.compile(r"[\w-]+")
"""Text that an editor shows as a word, not as a link."""

_KINDS: Final[Mapping[str, ToolKind]] = {
    **dict.fromkeys(actions_of_groups(("look", "history")), "read"),
    READ_RESULT: "read",
    **dict.fromkeys(("grep", "find_files", "find_definition", "find_in_file"), "search"),
    **dict.fromkeys((*actions_of_groups(("edit",)), "put_code"), "edit"),
    "delete_file": "delete",
    **dict.fromkeys(actions_of_groups(("commit", "git_checkout", "git_branch", "check")), "execute"),
}


def kind_of(action: str) -> ToolKind:
    """Return the kind of one of our actions by its name, or "other"."""
    return _KINDS.get(action, "other")


def title_of(name: str, arguments: Mapping[str, Any] | None) -> str:
    """Return a call in one line: the tool and its main argument."""
    values = arguments or {}
    action = values.get("action")
    subject = next((text for key in _SUBJECTS if isinstance(text := values.get(key), str) and text), "")
    words = [_plain_word(name, 80), _plain_word(action, 40) if isinstance(action, str) else ""]
    return " ".join([each for each in (*words, subject and _code_span(collapse(subject, _MAX_TITLE))) if each])


def locations_of(root: Path, arguments: Mapping[str, Any] | None) -> list[ToolCallLocation]:
    """Return the file of a call and its line, if the file is inside the root."""
    values = arguments or {}
    path = values.get("path")
    if not isinstance(path, str) or not path or "\0" in path:
        return []
    place = os.path.normpath(root / path)
    if not Path(place).is_relative_to(root):
        return []
    line = next((at for key in ("line", "start_line") if type(at := values.get(key)) is int and at > 0), None)
    return [ToolCallLocation(path=place, line=line)]


def input_of(arguments: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the arguments for programs, or None if they are nested too deeply for most parsers."""
    return arguments if arguments is not None and _is_shallow(arguments) else None


def describe_call(arguments: Mapping[str, Any] | None, raw: str) -> list[ToolContent]:
    """Return all arguments of a call for review before it runs, with invisible characters escaped."""
    if arguments is None or not _is_shallow(arguments):
        return [_block(fence(make_visible(raw)))]
    command = arguments.get("command")
    if isinstance(command, str) and len(arguments) == 1:
        return [_block(fence(make_visible(command)))]
    return [_block(fence(make_visible(json.dumps(arguments, ensure_ascii=False, indent=2))))]


def describe_changes(root: Path, changes: Iterable[ChangedFile]) -> list[ToolContent]:
    return [_describe_change(root, each) for each in changes if each.before is not None or each.after is not None]


def describe_invisible(changes: Iterable[ChangedFile]) -> list[ToolContent]:
    """Return changed lines with invisible characters escaped, if there are any: editors draw diffs themselves."""
    diff = diff_of(changes)
    visible = make_visible(diff, keep="\r\n\t")
    return [] if visible == diff else [_block(fence(visible))]


def describe_result(result: ResultCanister) -> list[ToolContent]:
    contents: Sequence[ToolContent] = [
        tool_content(image_block(base64.b64encode(part.data).decode("ascii"), part.mime_type))
        for part in result.content
        if isinstance(part, PictureContent) and part.data
    ]
    text = result.error.message if result.error else result.text
    return [*([_block(fence(truncate(text, MAX_TEXT)))] if text else []), *contents]


def fence(text: str) -> str:
    """Return a text as a code block that the text cannot close."""
    ticks = "`" * max(3, _longest_ticks(text) + 1)
    return f"{ticks}\n{strip_controls(text)}\n{ticks}"


def _describe_change(root: Path, change: ChangedFile) -> ToolContent:
    try:
        if max(len(data or b"") for data in (change.before, change.after)) <= MAX_FILE:
            before, after = (None if data is None else decode(data).text for data in (change.before, change.after))
            return tool_diff_content(str(root / change.path), after or "", before)
    except NotText:
        pass
    return _block(fence(diff_of([change])))


def _block(text: str) -> ContentToolCallContent:
    return tool_content(text_block(text))


def _is_shallow(value: Any) -> bool:
    """True if a value is nested at most MAX_DEPTH levels."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner = [each.values() if isinstance(each, Mapping) else each for each in level]
        level = [each for values in inner for each in values if isinstance(each, (Mapping, list, tuple)) and each]
        if not level:
            return True
    return False


def _plain_word(text: str, longest: int) -> str:
    """Return a plain name unchanged, and any other text as code."""
    word = collapse(text, longest)
    return word if not word or _NAME.fullmatch(word) else _code_span(word)


def _code_span(text: str) -> str:
    ticks = "`" * (_longest_ticks(text) + 1)
    return f"{ticks}{text}{ticks}" if len(ticks) == 1 else f"{ticks} {text} {ticks}"


def _longest_ticks(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
