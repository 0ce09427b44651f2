"""``train-manager export``: the metrics of a run, sent to another tool."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Final

from train_manager.commands.exit_codes import ALL_IS_WELL, CANNOT_BE_DONE
from train_manager.telling.errors import did_you_mean, near

# The extension of each tool, by the name of the extra that it needs.
SINKS: Final = {"tensorboard": "TensorBoard", "mlflow": "MLflow", "wandb": "WandB"}


def add_to(commands: Any) -> None:
    """Add the command to a parser's commands."""
    text = (
        "Send the metrics that MetricStore has stored in a train_dir to TensorBoard, MLflow or Weights & Biases: those "
        "that count, and only what was not sent yet by this command or while the run trained. What was sent is noted "
        "in sinks.json. It needs the extra of that name: pip install 'train-manager[tensorboard]'."
    )
    command = commands.add_parser("export", help="send the metrics of a run to another tool", description=text)
    command.set_defaults(command=export)
    command.add_argument("train_dir", metavar="RUN", type=Path, help="a train_dir")
    command.add_argument("--to", required=True, type=tool, choices=SINKS, help="the tool")
    text = "only what this run has measured, of several in the folder; the first digits of its run_id suffice"
    command.add_argument("--run", metavar="ID", help=text)


def tool(name: str) -> str:
    """Return the name of a tool in small letters, so that "TensorBoard" is accepted too.

    Raises:
        argparse.ArgumentTypeError: there is none of this name.
    """
    found = name.lower()
    if found not in SINKS:
        cure = did_you_mean(near(found, SINKS)) or f"choose from {', '.join(SINKS)}"
        raise argparse.ArgumentTypeError(f"there is no tool {name!r}: {cure}")
    return found


def export(options: argparse.Namespace) -> int:
    """Send the metrics that were not sent yet, and print their number."""
    import train_manager.extensions
    from train_manager.runs.sending.exporting import export_metrics

    # Of the extension only its settings are used, such as the folder or the address that it sends to by default.
    extension = getattr(train_manager.extensions, SINKS[options.to])()
    try:
        count = export_metrics(extension, options.train_dir.absolute(), options.run)
    # The package of the tool is missing: the message names the extra to install, and needs no traceback.
    except ImportError as error:
        print(f"train-manager: {error}", file=sys.stderr)
        return CANNOT_BE_DONE
    print(f"{count:,} metrics sent to {options.to}" if count else f"{options.to} has all metrics already")
    return ALL_IS_WELL
