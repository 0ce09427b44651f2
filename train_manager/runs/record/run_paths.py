"""Which run a path means, and which runs are below a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, final

from train_manager.runs.record.run_file import has_runs, is_run_file, read_entry, read_runs
from train_manager.telling.errors import InputError, did_you_mean, near

Entry = Mapping[str, Any]
DEEPEST: Final = 8  # levels of folders that are searched for runs
ABOVE: Final = 2  # levels above a path at which its train_dir is looked for: that of checkpoints/step-100
MOST_NAMED: Final = 5  # folders that an error names
# Folders that are not searched: folders of train_dirs, and large folders without runs.
NOT_RUNS: Final = frozenset({"checkpoints", "code", "plots", "node_modules", "__pycache__"})


@final
@dataclass(frozen=True)
class FoundRun:
    """A run, and where it is."""

    train_dir: Path
    entry: dict[str, Any]  # the content of its file
    entries: tuple[dict[str, Any], ...]  # the entries of all runs of the folder, the oldest first

    @property
    def id(self) -> str:
        """The run_id."""
        return str(self.entry["id"])

    @property
    def label(self) -> str:
        """The folder, with the beginning of the run_id if there are several runs in it: ``runs/a#3f2a``."""
        return f"{self.train_dir}#{short_id(self)}" if len(self.entries) > 1 else str(self.train_dir)


def named_run(text: str | os.PathLike[str]) -> FoundRun:
    """Return the run that a path means: of a ``train_dir`` the last one that trained, of ``train_dir#3f2a`` that one.

    Raises:
        InputError: there is none, or several begin so; or its file is of another form.
        CheckpointError: its file is damaged.
    """
    given = os.fspath(text)
    # A folder may have a # in its name: it is taken for the separator only if no such folder exists.
    folder, _, begins = (given, "", "") if Path(given).is_dir() or "#" not in given else given.rpartition("#")
    train_dir = Path(folder)
    if not train_dir.is_dir():
        what = f"{folder} is a file" if train_dir.exists() else f"there is no folder {folder}"
        raise InputError(what, name=folder, cure=nearby(train_dir) or "give the train_dir of a training")
    if not has_runs(train_dir) and (cure := nearby(train_dir)):
        raise InputError(f"{folder} is not a train_dir", name=folder, cure=cure)
    asked = [path for path in train_dir.glob("run-*.json") if path.name.startswith(f"run-{begins}")]
    if begins and len(asked) == 1:
        read_entry(asked[0])  # raises its error, where `read_runs` leaves out what cannot be read
    entries = tuple(read_runs(train_dir))
    if not begins:
        trained = [entry for entry in entries if has_trained(entry)]
        return FoundRun(train_dir, (trained or entries)[-1], entries)
    found = [entry for entry in entries if str(entry["id"]).startswith(begins)]
    if len(found) != 1:
        known = ", ".join(str(entry["id"]) for entry in found or entries)
        many = (
            f"{len(found)} runs of {train_dir} begin with {begins!r}" if found else f"{train_dir} has no run {begins!r}"
        )
        raise InputError(many, name=begins, cure=f"its runs are {known}" if not found else f"they are {known}")
    return FoundRun(train_dir, found[0], entries)


def nearby(path: Path) -> str:
    """Return a cure that names the train_dir which a wrong path may mean; an empty text if none is near."""
    path = Path(os.path.normpath(path))
    around = [folder for folder in list(path.parents)[:ABOVE] if folder.is_dir() and has_runs(folder)]
    if around:
        return f"give its train_dir: {around[0]}"
    below = list(islice(folders_with_runs(path), MOST_NAMED + 1)) if path.is_dir() else []
    if not path.exists() and path.parent.is_dir() and (nearest := near(path.name, os.listdir(path.parent))):
        return did_you_mean([str(path.parent / name) for name in nearest])
    more = ", ..." if len(below) > MOST_NAMED else ""
    return f"give a train_dir below it: {', '.join(map(str, below[:MOST_NAMED]))}{more}" if below else ""


def folders_with_runs(folder: Path) -> Iterator[Path]:
    """Yield the folders below a folder, and itself, that have files of runs; links are not followed.

    Raises:
        OSError: the folder cannot be read; one below it is left out.
    """
    os.scandir(folder).close()  # raises the error of this folder, which `os.walk` would pass over
    for place, below, files in os.walk(folder):
        path = Path(place)
        if any(is_run_file(path / name) for name in files if name.startswith("run-")):
            yield path
        # `os.walk` descends into the folders that stay in this list.
        is_deepest = len(path.relative_to(folder).parts) == DEEPEST
        below[:] = [] if is_deepest else sorted(one for one in below if one[0] != "." and one not in NOT_RUNS)


def labels_of(places: Sequence[tuple[Path, str]]) -> list[str]:
    """Return the shortest ends of the paths that tell runs apart, with a part of the run_id where they share a folder.

    >>> labels_of([(Path("/a/run"), "3f2a"), (Path("/b/run"), "9c01"), (Path("/b/run"), "77aa")])
    ['a/run', 'b/run#9c01', 'b/run#77aa']

    Args:
        places: the ``train_dir`` of each run, and what its ``short_id`` is.
    """
    parts = [Path(os.path.abspath(train_dir)).parts for train_dir, _ in places]
    labels = []
    for own, (_, id_) in zip(parts, places, strict=True):
        others = [other for other in parts if other != own]
        length = next((n for n in range(1, len(own)) if not any(o[-n:] == own[-n:] for o in others)), len(own))
        labels.append("/".join(own[-length:]) + (f"#{id_}" if parts.count(own) > 1 else ""))
    return labels


def short_id(run: FoundRun) -> str:
    """Return as much of a run's id as tells it from the others in its folder, at least four digits."""
    others = [str(entry["id"]) for entry in run.entries if entry["id"] != run.entry["id"]]
    return next(
        (run.id[:length] for length in range(4, len(run.id)) if not any(o.startswith(run.id[:length]) for o in others)),
        run.id,
    )


def has_trained(entry: Mapping[str, Any]) -> bool:
    """Return whether a run has taken a step, or may have: it has not ended."""
    steps, begun = _number(entry.get("progress"), "steps"), _number(entry.get("goes_on_from"), "step")
    return entry["outcome"] == "running" or steps > begun


def _number(values: object, name: str) -> int:
    number = values.get(name) if isinstance(values, dict) else None
    return number if isinstance(number, int) else 0
