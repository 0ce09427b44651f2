"""``train-manager skill``: how an agent works with this library. It needs no torch."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from train_manager.commands.answer import Answer
from train_manager.commands.exit_codes import ALL_IS_WELL

SKILL: Final = Path(__file__).parents[1] / "skill" / "SKILL.md"


def add_to(commands: Any) -> None:
    """Add the command to a parser's commands."""
    text = (
        "Print the skill file of the library, which tells an agent how to write a hook, read an error and find a page. "
        "An agent finds it in a folder of its skills, as train-manager/SKILL.md."
    )
    command = commands.add_parser("skill", help="print the skill file for agents", description=text)
    command.set_defaults(command=skill)


def skill(options: argparse.Namespace) -> Answer:
    """Print the skill file."""
    text = SKILL.read_text(encoding="utf-8")
    if not options.json:
        print(text, end="")
    return Answer(ALL_IS_WELL, {"path": str(SKILL), "text": text})
