"""Writes the pages for language models too: llms.txt, the list of them, and llms-full.txt, their whole text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.nav import Navigation
    from mkdocs.structure.pages import Page

_pages: list[Page] = []


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> None:
    """Remember the pages in the order of the navigation."""
    _pages[:] = nav.pages


def on_post_build(config: MkDocsConfig) -> None:
    """Write both files beside the site's first page."""
    title = f"# {config.site_name}\n\n> {config.site_description}\n"
    lines, section = [title], None
    for page in _pages:
        if page.parent is not None and page.parent.title != section:
            section = page.parent.title
            lines.append(f"\n## {section}\n")
        lines.append(f"- [{page.title}]({page.url}index.html)")
    site = Path(config.site_dir)
    (site / "llms.txt").write_text("\n".join(lines) + "\n")
    texts = [page.markdown for page in _pages if page.markdown and "\n::: " not in page.markdown]
    (site / "llms-full.txt").write_text("\n\n".join([title, *texts]))
