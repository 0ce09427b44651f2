"""Gives every file of the repository that a page links to, and that is not in docs/, a page of its own on the site.

So a link such as ``../../examples/gan.py`` works on the site as it does in a checkout.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "source"  # of the site
LINK = re.compile(r'(?P<before>\]\(|(?:src|srcset|href)=")(?!\w+:|[#/])(?P<target>[^)#"\s]+)')
NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file outside of docs/ that can be reached by links."""
    from mkdocs.structure.files import File, InclusionLevel  # here, so that tests need no mkdocs

    waiting = [path for file in files.documentation_pages() for path in outside(f"docs/{file.src_uri}")]
    while waiting:
        path = waiting.pop()
        uri = site_uri(path)
        if files.get_file_from_path(uri) is None:
            content = NOT_SEARCHED + text_of(path)
            files.append(File.generated(config, uri, content=content, inclusion=InclusionLevel.NOT_IN_NAV))
            waiting.extend(outside(path))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links of the repository into links of the site."""
    path = in_repository(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)
    if not has_links(path):
        return markdown

    def turned(link: re.Match[str]) -> str:
        target = resolved(path, link["target"])
        return link["before"] + (posixpath.relpath(site_uri(target), here) if target else link["target"])

    return LINK.sub(turned, markdown)


def outside(path: str) -> Iterator[str]:
    """The paths that a file of the repository links to, and that are not on the site anyway."""
    for link in LINK.finditer(text_of(path)) if has_links(path) else ():
        target = resolved(path, link["target"])
        if target and site_uri(target).startswith(f"{FOLDER}/"):
            yield target


def resolved(path: str, target: str) -> str | None:
    """Return the path that a link leads to, from the root; None if there is no such file."""
    found = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return found if not found.startswith("..") and (ROOT / found).exists() else None


def site_uri(path: str) -> str:
    """Return where the site has a file of the repository, as the source of a page."""
    if path.startswith("docs/") and not path.endswith(".py"):
        return path.removeprefix("docs/")
    return f"{FOLDER}/{path}" if path.endswith(".md") else f"{FOLDER}/{path}.md"


def in_repository(uri: str) -> str:
    """Return the path of the file that a page shows: the other way round."""
    if not uri.startswith(f"{FOLDER}/"):
        return f"docs/{uri}"
    path = uri.removeprefix(f"{FOLDER}/")
    return path if (ROOT / path).exists() else path.removesuffix(".md")


def has_links(path: str) -> bool:
    return path.endswith(".md") or (ROOT / path).is_dir()


def text_of(path: str) -> str:
    """Return what the page of a file shows, as Markdown."""
    file = ROOT / path
    if file.is_dir():
        inside = sorted(part.relative_to(file.parent).as_posix() for part in file.rglob("*.py"))
        return f"# {path}\n\n" + "\n".join(f"- [{part}]({part})" for part in inside)
    if path.endswith(".md"):
        return file.read_text()
    if path.endswith(".ipynb"):
        return "\n\n".join(_cell(cell) for cell in json.loads(file.read_text())["cells"])
    return f"# {path}\n\n````{file.suffix[1:]}\n{file.read_text()}````\n"


def _cell(cell: dict[str, object]) -> str:
    source = "".join(cell["source"])  # type: ignore[call-overload]
    return str(source) if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"
