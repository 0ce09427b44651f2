"""What an entry of ``run.json`` has at each place that is read; the rest is only shown."""

from __future__ import annotations

import re
from typing import Final

from train_manager.files.json_shape import LIST, NUMBER, OBJECT, OBJECT_OF_TEXTS, TEXT, TEXTS, TIME, Kind, Shape

_ID: Final = re.compile(r"[\w-]+", re.ASCII)
ENTRY: Final[Shape] = {
    "id": Kind("a name", lambda value: isinstance(value, str) and _ID.fullmatch(value) is not None),
    **dict.fromkeys(("began", "ended"), TIME),
    **dict.fromkeys(("process", "error", "goes_on_from", "calls", "command", "environment", "parameters"), OBJECT),
    **dict.fromkeys(("made", "data", "data.eval_data", "progress"), OBJECT),
    "findings": LIST,
    **dict.fromkeys(("manager", "goes_on_from.step", "progress.steps", "progress.epochs"), NUMBER),
    **dict.fromkeys(("reason", "goes_on_from.run", "command.kind", "command.folder", "command.interpreter"), TEXT),
    **dict.fromkeys(("command.arguments", "command.search_path", "problems"), TEXTS),
    **dict.fromkeys(("environment.variables", "environment.editable"), OBJECT_OF_TEXTS),
    **dict.fromkeys(("environment.threads", "environment.devices", "environment.packages"), OBJECT),
}
