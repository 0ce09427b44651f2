"""``train-manager export``: the metrics of a run, sent to another tool."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from train_manager.commands.answer import Answer
from train_manager.commands.exit_codes import ALL_IS_WELL
from train_manager.telling.errors import InputError, did_you_mean, near

# The extension of each tool, by the name of the extra that it needs.
SINKS: Final = {"tensorboard": "TensorBoard", "mlflow": "MLflow", "wandb": "WandB"}


def add_to(commands: Any) -> None:
    """Add the command to a parser's commands."""
    text = (
        "Send the metrics that MetricStore has stored in a train_dir to TensorBoard, MLflow or Weights & Biases: all "
        "that count for a run, also if they were sent while it trained. TensorBoard then shows these alone, MLflow "
        "each once, and Weights & Biases a run of another name. It needs the extra of that name: pip install "
        "'train-manager[tensorboard]'."
    )
    command = commands.add_parser("export", help="send the metrics of a run to another tool", description=text)
    command.set_defaults(command=export)
    command.add_argument("train_dir", metavar="RUN", type=Path, help="a train_dir")
    command.add_argument("--to", required=True, type=tool, choices=SINKS, help="the tool")
    text = "another run than the newest of the folder; the first digits of its run_id suffice"
    command.add_argument("--run", metavar="ID", help=text)
    text = "an argument of the extension, such as project=digits; may be repeated"
    command.add_argument("--with", dest="settings", metavar="NAME=VALUE", type=setting, action="append", help=text)


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


def setting(text: str) -> tuple[str, str]:
    """Return the name and the value of an argument.

    Raises:
        argparse.ArgumentTypeError: it has no value.
    """
    name, is_given, value = text.partition("=")
    if not is_given:
        raise argparse.ArgumentTypeError(f"{text!r} has no value: write {text}=...")
    return name, value


def export(options: argparse.Namespace) -> Answer:
    """Send the metrics of a run, and print their number."""
    import train_manager.extensions

    sink = getattr(train_manager.extensions, SINKS[options.to])(**dict(options.settings or ()))
    try:
        count = sink.export(options.train_dir, options.run)
    # The package of the tool is missing: the message names the extra to install, and needs no traceback.
    except ImportError as error:
        raise InputError(str(error)) from error
    if not options.json:
        print(f"{count:,} metrics sent to {options.to}")
    return Answer(ALL_IS_WELL, {"to": options.to, "metrics": count})
