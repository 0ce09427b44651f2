"""``sinks.json``: the last rows of ``metrics.sqlite`` that each sink was sent, so that none is repeated or left out."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, final

from train_manager.files.atomic import quote_path, replace_file
from train_manager.telling.errors import InputError

SINKS_FILE: Final = "sinks.json"
_ONE_AT_A_TIME: Final = threading.Lock()  # each sink has a thread, and all of them rewrite the same file


@final
@dataclass(frozen=True)
class SinkState:
    """What a sink has been sent.

    Attributes:
        runs: the run_ids whose rows it is sent.
        ids: the last row of each table that it was sent.
        own: what the sink needs to continue, as plain values.
        process: which process sends, as ``this_process`` names it.
    """

    runs: tuple[str, ...] = ()
    ids: Mapping[str, int] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)
    process: Mapping[str, Any] = field(default_factory=dict)


def read_state(train_dir: Path, sink: str) -> SinkState:
    """Return the state of a sink; an empty one if there is no file.

    Raises:
        InputError: the file is not one of these.
    """
    found = _read(train_dir).get(sink, {})
    try:
        # A field that SinkState does not know raises TypeError: another program, or a newer version, wrote the file.
        return SinkState(tuple(found.pop("runs", ())), **found)
    except TypeError as error:
        raise _not_ours(train_dir / SINKS_FILE) from error


def write_state(train_dir: Path, sink: str, state: SinkState) -> None:
    """Write the state of a sink; the entries of other sinks stay."""
    with _ONE_AT_A_TIME:
        text = json.dumps({**_read(train_dir), sink: asdict(state)}, indent=1)
        replace_file(train_dir / SINKS_FILE, text.encode())


def _read(train_dir: Path) -> dict[str, Any]:
    path = train_dir / SINKS_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise _not_ours(path) from error
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise _not_ours(path)
    return found


def _not_ours(path: Path) -> InputError:
    cure = "remove it, and what the sink has got so far: all is sent again"
    return InputError(f"{quote_path(path)} does not tell what was sent", name="train_dir", cure=cure)
