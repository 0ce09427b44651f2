"""The command line ``train-manager``: its parser, and how errors are printed. Each command is a file of ``commands``.

No command needs torch before it runs, and most never do.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from train_manager._version import __version__
from train_manager.commands import check, compare, export, report, reproduce, runs, show, tune, verify_resume
from train_manager.commands.exit_codes import ALL_IS_WELL, CANNOT_BE_DONE
from train_manager.reporting.terminal import printable_lines
from train_manager.telling.errors import TrainManagerError

COMMANDS = (show, check, runs, compare, report, export, reproduce, verify_resume, tune)  # as the help lists them


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit code."""
    given = [*(sys.argv[1:] if arguments is None else arguments)]
    of_script: list[str] = []
    # The arguments after `--` belong to the script that is run. argparse would take them for arguments of the
    # command if an option stands before them.
    if given[:1] in (["verify-resume"], ["tune"]) and "--" in given:
        of_script, given = given[given.index("--") + 1 :], given[: given.index("--")]
    options = parser().parse_args(given, argparse.Namespace(arguments=of_script))
    try:
        code: int = options.command(options)
        sys.stdout.flush()  # now, where the error of a closed pipe is caught
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has seen enough
        # Python flushes stdout once more as it exits, which would print the error again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ALL_IS_WELL
    except (TrainManagerError, OSError) as error:
        print(printable_lines(f"train-manager: {error}"), file=sys.stderr)
        return CANNOT_BE_DONE
    return code


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, which the reference is made from too."""
    whole = argparse.ArgumentParser(
        prog="train-manager", description="Look at checkpoints and runs, and verify trainings."
    )
    whole.add_argument("--version", action="version", version=f"train-manager {__version__}")
    commands = whole.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_to(commands)
    return whole
