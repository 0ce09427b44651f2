"""The page docs/explanation/benchmarks.md: what a terminal shows of each section, and what is written at the end."""

from __future__ import annotations

import datetime
import os
import platform
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks import peers
from benchmarks.measure import ROOT
from benchmarks.section import Section, table
from train_manager.reporting.figures import render_figure

PAGE: Final = ROOT / "docs" / "explanation" / "benchmarks.md"

TEXT: Final = """\
# Benchmarks

What stages and training steps cost, here and in other toolkits. `make bench-peers` writes this page.

Measured on {date}: {machine}, one thread; {versions}.

The cases take turns in random order. Numbers are medians of CPU time over rounds, with the quartiles in brackets;
ratios are taken inside a round. Compare ratios: times depend on the machine.

{sections}

## Limits

{claims}
"""


def shown(section: Section) -> str:
    """A section as text, without its pictures."""
    text = re.sub(r"!\[.*\n\n?", "", section.text)
    return f"\n## {section.title}\n\n{text.strip()}\n\n{limits([section]) if section.claims else ''}".rstrip()


def limits(sections: Sequence[Section]) -> str:
    """The table of all claims."""
    rows = [claim.row() for section in sections for claim in section.claims]
    return table(["", "measured", "limit", "goal", ""], rows)


def kept_and_missed(sections: Sequence[Section]) -> str:
    """How many claims are kept, and a table of the others."""
    claims = [claim for section in sections for claim in section.claims]
    missed = [[cell.removesuffix(" x") for cell in claim.row()[:3]] for claim in claims if claim.is_missed]
    kept = len(claims) - len(missed)
    text = f"`python -m benchmarks` prints all limits and tables. Of {len(claims)} limits, {kept} are kept"
    return f"{text}; the others are:\n\n{table(['', 'measured', 'limit'], missed)}" if missed else f"{text}."


def write(sections: Sequence[Section], page: Path = PAGE) -> None:
    """Write the page, and its pictures into the folder of its name."""
    page.with_suffix("").mkdir(exist_ok=True)
    detailed = [section for section in sections if section.on_page]
    for section in detailed:
        for name, figure in section.figures.items():
            (page.with_suffix("") / f"{name}.png").write_bytes(render_figure(figure, "png"))
    text = TEXT.format(
        date=datetime.datetime.now(datetime.UTC).date(),
        machine=machine(),
        versions=", ".join(versions()),
        claims=kept_and_missed(sections),
        sections="\n\n".join(f"## {section.title}\n\n{section.text.strip()}" for section in detailed),
    )
    page.write_text(text.rstrip() + "\n", encoding="utf-8")


def machine() -> str:
    """The processor and how many cores there are, without a name that somebody gave to the machine."""
    information = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.*)$", information.read_text(), re.MULTILINE) if information.exists() else []
    return f"{names[0] if names else platform.machine()} with {os.cpu_count()} cores, {platform.system()}"


def versions() -> list[str]:
    """Python, torch, and the toolkits that were compared."""
    import torch

    return [f"Python {sys.version.split()[0]}", f"torch {torch.__version__}", *peers.versions()]
