"""Lists all pages for language models, each with what it says first: docs/llms.txt, which make_reference.py writes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parents[1]
ENTRY: Final = re.compile(r"^( +)- (?:(.+?):)? ?(\S+\.md)?$", re.MULTILINE)  # of the navigation: a section, or a page
OF_SECTIONS: Final = 2  # blanks before the sections of the first level
LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
SENTENCE: Final = re.compile(r".+?(?:\.(?=\s)|$)", re.DOTALL)


def llms_page() -> Iterator[str]:
    """Every page of the navigation, in its order."""
    settings = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    site = dict(re.findall(r"^(site_\w+): (.*)$", settings, re.MULTILINE))
    yield f"# {site['site_name']}\n\n> {site['site_description']}"
    yield (
        "The Python package is `train_manager`. `train-manager skill` prints how to write a hook, read an error and "
        "find a page; every command of `train-manager` has `--json`."
    )
    lines: list[str] = []
    for indent, title, page in ENTRY.findall(settings.partition("\nnav:\n")[2]):
        if page:
            lines.append(entry(title, page))
        elif len(indent) == OF_SECTIONS:
            yield "\n".join(lines)
            lines = [f"## {title}\n"]
    yield "\n".join(lines)


def entry(title: str, page: str) -> str:
    """Return the line of a page: its title, its path, and its first sentence."""
    text = (DOCS / page).read_text(encoding="utf-8")
    head = re.search(r"^# (.*)$", text, re.MULTILINE)
    name = title or (head[1] if head else page)
    # The first paragraph that is text, and not a heading, a table, a block of code or a directive.
    paragraphs = (part for part in text.split("\n\n") if re.match(r"[\w`*\[]", part))
    first = SENTENCE.match(LINK.sub(r"\1", next(paragraphs, "")))
    return f"- [{name}]({page}): {' '.join(first[0].rstrip(':').split())}" if first else f"- [{name}]({page})"
