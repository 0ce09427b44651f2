"""Stops the build if a page would fetch anything from another host: no reader of the docs is told to others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|link(?=[^>]*stylesheet))[^>]*(?:src|href|srcset)=["']?(?:https?:)?//[^>]*>"""
)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Look at what the browser would fetch with a page; links that a reader may follow are none of it."""
    if found := fetched(output):
        raise ValueError(f"{page.file.src_uri} would be fetched from another host: {', '.join(found)}")
    return output


def fetched(html: str) -> list[str]:
    """Return the elements of a page that fetch something from another host."""
    return FETCHED.findall(html)
