"""The command line ``train-manager``: its parser, and how errors and JSON are printed.

Each command is a file of ``commands``. No command needs torch before it runs, and most never do.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Final, NoReturn, final

from train_manager._version import __version__
from train_manager.commands import check, compare, export, report, reproduce, runs, show, skill, tune, verify_resume
from train_manager.commands.answer import Answer, error_data, nothing_printed
from train_manager.commands.exit_codes import ALL_IS_WELL, CANNOT_BE_DONE
from train_manager.files.json_text import text_of
from train_manager.reporting.terminal import printable_lines
from train_manager.telling.errors import TrainManagerError

COMMANDS = (show, check, runs, compare, report, export, reproduce, verify_resume, tune, skill)  # as the help lists them

JSON: Final = "print one JSON document and nothing else on the standard output, also of an error"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit code."""
    given = [*(sys.argv[1:] if arguments is None else arguments)]
    of_script: list[str] = []
    # The arguments after `--` belong to the script that is run. argparse would take them for arguments of the
    # command if an option stands before them.
    if given[:1] in (["verify-resume"], ["tune"]) and "--" in given:
        of_script, given = given[given.index("--") + 1 :], given[: given.index("--")]
    as_json = "--json" in given
    try:
        options = parser().parse_args(given, argparse.Namespace(arguments=of_script))
        with nothing_printed() if options.json else nullcontext():
            answer: Answer = options.command(options)
        if options.json:
            print(text_of(answer.data))
        sys.stdout.flush()  # now, where the error of a closed pipe is caught
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has seen enough
        # Python flushes stdout once more as it exits, which would print the error again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ALL_IS_WELL
    except UsageError as error:
        if not as_json:
            error.parser.print_usage(sys.stderr)
            error.parser.exit(CANNOT_BE_DONE, f"{error.parser.prog}: error: {error}\n")
        print(text_of(error_data(error)))
        return CANNOT_BE_DONE
    except (TrainManagerError, OSError) as error:
        if as_json:
            print(text_of(error_data(error)))
        else:
            print(printable_lines(f"train-manager: {error}"), file=sys.stderr)
        return CANNOT_BE_DONE
    return answer.code


class UsageError(Exception):
    """Raised if the arguments of the command line are invalid.

    Attributes:
        parser: the parser of the command, with its usage.
    """

    def __init__(self, message: str, parser: argparse.ArgumentParser) -> None:
        super().__init__(message)
        self.parser = parser


@final
class Parser(argparse.ArgumentParser):
    """A parser that does not print its errors: a program may want them as JSON."""

    def error(self, message: str) -> NoReturn:
        """Raise the error that argparse would print.

        Raises:
            UsageError: always.
        """
        raise UsageError(message, self)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, which the reference is made from too."""
    whole = Parser(prog="train-manager", description="Look at checkpoints and runs, and verify trainings.")
    whole.add_argument("--version", action="version", version=f"train-manager {__version__}")
    commands = whole.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_to(commands)
    for of_command in commands.choices.values():
        of_command.add_argument("--json", action="store_true", help=JSON)
    return whole
