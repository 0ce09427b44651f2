"""Writes the pages for language models too: llms.txt, their list, and llms-full.txt, their whole text."""

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
    site, title = Path(config.site_dir), f"# {config.site_name}\n\n> {config.site_description}\n"
    # The list of the repository has links to files; those of the site lead to pages.
    listed = (Path(config.docs_dir) / "llms.txt").read_text()
    for page in _pages:
        listed = listed.replace(f"]({page.file.src_uri})", f"]({page.url}index.html)")
    (site / "llms.txt").write_text(listed)
    texts = [page.markdown for page in _pages if page.markdown and "\n::: " not in page.markdown]
    (site / "llms-full.txt").write_text("\n\n".join([title, *texts]))
