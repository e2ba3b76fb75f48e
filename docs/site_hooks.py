# ruff: noqa: INP001  # mkdocs loads it by its path
"""Adds generated pages to the site: the home page, the pages of the root folder, the API reference and llms.txt."""

import ast
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ROOT_PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
ROOT_PAGES["SECURITY.md"] = "security_policy.md"
PACKAGES = (
    "callboard", "callboard.errors", "callboard.agent", "callboard.core", "callboard.tools", "callboard.schema",
    "callboard.dialects", "callboard.modes", "callboard.profiles", "callboard.wires", "callboard.adapters", "callboard.loop",
    "callboard.execution", "callboard.providers", "callboard.sandbox", "callboard.mcp", "callboard.configuration",
    "callboard.jobs", "callboard.telemetry", "callboard.evaluation", "callboard.testing", "callboard.servers.agui",
)  # fmt: skip
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
MARKED_FENCE = re.compile(r"^(```\w+) .*$", re.MULTILINE)
_pages: dict[str, str] = {}


def on_config(config: Any) -> Any:
    """List the pages of the API in the navigation."""
    pages = [{package: f"api/{package}.md"} for package in PACKAGES]
    for part in config.nav:
        for entries in part.values():
            if "API" in entries:
                entries[entries.index("API")] = {"Python API": pages}
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not files of `docs`."""
    for source, target in ROOT_PAGES.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text("utf-8")))
    for package in PACKAGES:
        files.append(File.generated(config, f"api/{package}.md", content=_api(package)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links at pages of the site or at the repository. Remove the marks of fences, which only our tests read."""
    title = markdown.partition("\n")[0].removeprefix("# ")
    _pages[page.file.src_uri] = f"- [{title}]({config.site_url or '/'}{page.file.url})"

    def moved(link: re.Match[str]) -> str:
        path = link[1].removeprefix("../").removeprefix("docs/")
        path = ROOT_PAGES.get(path, path)
        return f"]({path}" if files.get_file_from_path(path) else f"]({config.repo_url}/blob/main/{path}"

    return LINK.sub(moved, MARKED_FENCE.sub(r"\1", markdown))


def on_post_build(config: Any) -> None:
    """Write llms.txt (https://llmstxt.org): the title and the address of each page, by the sections of the navigation."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for part in config.nav:
        for section, entries in part.items():
            lines += [f"## {section}", "", *[_pages[path] for path in _paths(entries)], ""]
    Path(config.site_dir, "llms.txt").write_text("\n".join(lines), "utf-8")


def _paths(entries: Any) -> list[str]:
    """Return the paths in an entry of the navigation, in order."""
    if isinstance(entries, str):
        return [entries]
    inner = entries.values() if isinstance(entries, dict) else entries
    return [path for each in inner for path in _paths(each)]


def _api(package: str) -> str:
    """Make the reference page of a package from its `__all__`."""
    path = ROOT / "src" / Path(*package.split("."))
    source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8")
    names = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            names = ast.literal_eval(node.value)
    return "\n\n".join([f"# {package}", *[f"::: {package}.{name}" for name in names if name != "__version__"], ""])
