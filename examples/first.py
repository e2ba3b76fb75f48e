"""The tools of `make run`: things a language model cannot know by itself."""

from pathlib import Path

from callboard import tool


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two whole numbers exactly.

    Args:
        a: The first factor.
        b: The second factor.
    """
    return a * b


@tool
def list_files(folder: str = ".") -> list[str]:
    """List the files of a folder of this project.

    Args:
        folder: The folder, relative to the project's root.
    """
    root = Path(__file__).resolve().parent.parent
    wanted = (root / folder).resolve()
    if not wanted.is_relative_to(root):
        raise PermissionError(f"{folder} is not in this project")
    return sorted(path.name + "/" * path.is_dir() for path in wanted.iterdir() if not path.name.startswith("."))
