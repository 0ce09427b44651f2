"""How the program of a run is started again: its command, its folder, and the environment variables it gets."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from train_manager.files.secrets import looks_secret
from train_manager.files.train_dirs import OF, STEPS, TRAIN_DIR
from train_manager.runs.record.command import folder_of, run_again
from train_manager.runs.record.environment import OF_SKLEARN, matches
from train_manager.runs.repeating.paths import Moved
from train_manager.telling.errors import InputError

REPEATED: Final = (
    *("PYTHONHASHSEED", "PYTHONOPTIMIZE", "CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE", "ATEN_CPU_CAPABILITY"),
    *("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "GOMP_CPU_AFFINITY"),
)
REPEATED_STARTS: Final = ("OMP_", "MKL_", "OPENBLAS_", "KMP_", "DNNL_", "ONEDNN_")
"""Variables that change results and do not depend on the machine: the program gets them as they were recorded."""

# Set by a launcher, or by an outer reproduction, for this process: the program must not take them for its own.
_OF_ANOTHER_RUN: Final = (TRAIN_DIR, OF, STEPS, "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")


@final
@dataclass(frozen=True)
class Repeated:
    """A command that is ready to run."""

    arguments: tuple[str, ...]  # the program and its arguments
    folder: Path  # the working folder of the program
    variables: Mapping[str, str]  # its whole environment
    notes: tuple[str, ...] = ()  # a sentence for each variable that differs from this process

    def __str__(self) -> str:
        return shlex.join(self.arguments)


def repeated_command(
    entry: Mapping[str, Any],
    train_dir: Path,
    moved: Moved | None = None,
    notebook: Path | None = None,
    steps: int | None = None,
    present: Mapping[str, str] = os.environ,
) -> Repeated:
    """Return how the program of a run is run again.

    Args:
        entry: of the run.
        train_dir: takes the place of that of the program.
        moved: where the repository of the program is now; None if it is where it was.
        notebook: the file with the cells of a notebook, for a run in a notebook.
        steps: after which the run stops; None for none. Other trainings of the program go on to their ends.
        present: the environment variables of this process.

    Raises:
        InputError: the command cannot be run again.
    """
    _require_single(entry)
    folder = folder_of(entry)
    cells = notebook if (entry.get("command") or {}).get("kind") == "notebook" else None
    if cells is not None:
        arguments = [sys.executable, str(cells.absolute())]  # this file is in the train_dir, not in the copied code
    else:
        arguments = run_again(entry)
        if moved is not None:
            arguments = [arguments[0], *map(moved.text, arguments[1:])]
    if moved is not None:
        folder = moved.path(folder)
    variables, notes = repeated_variables(entry, present)
    path = [*([str(folder)] if cells else []), *_search_path(entry, moved, present)]  # as a kernel has it
    if path:
        variables["PYTHONPATH"] = os.pathsep.join(path)
    variables |= {TRAIN_DIR: str(train_dir)}
    if given := entry.get("train_dir"):
        variables[OF] = given if moved is None else str(moved.path(Path(given)))
    if steps is not None:
        variables[STEPS] = f"{entry.get('manager') or 1}:{steps}"
    return Repeated(tuple(arguments), folder, variables, tuple(notes))


def _require_single(entry: Mapping[str, Any]) -> None:
    # Launchers such as torchrun set WORLD_SIZE; one of several processes would wait for the others.
    size = _recorded_variables(entry).get("WORLD_SIZE", "1")
    if size != "1":
        raise InputError(
            f"the run was one process of {size}, which a launcher had started, so it cannot be run again alone",
            name="command",
            cure=f"run the launcher yourself, with {TRAIN_DIR}=<a new folder>, and `train-manager compare` the two",
        )


def _recorded_variables(entry: Mapping[str, Any]) -> dict[str, str]:
    return dict((entry.get("environment") or {}).get("variables") or {})


def repeated_variables(entry: Mapping[str, Any], present: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the environment of the program, and a note for each changed variable; secrets stay as they are here."""
    patterns = (entry.get("environment") or {}).get("patterns") or ()

    def is_repeated(name: str) -> bool:
        is_set = name.startswith(REPEATED_STARTS) and name not in OF_SKLEARN
        return (name in REPEATED or is_set or matches(name, patterns)) and not looks_secret(name, present.get(name))

    wanted = {name: value for name, value in _recorded_variables(entry).items() if is_repeated(name)}
    variables = {name: value for name, value in present.items() if name not in _OF_ANOTHER_RUN}
    notes = []
    for name in sorted(name for name in {*wanted, *variables} if is_repeated(name)):
        # Unset then, and set here: it must not change the results.
        if name not in wanted:
            notes.append(f"{name} is unset, as it was then (here: {variables.pop(name)})")
        elif variables.get(name) != wanted[name]:
            notes.append(f"{name}={wanted[name]}, as it was then (here: {variables.get(name, 'unset')})")
            variables[name] = wanted[name]
    # The order of additions, and so the last bits of sums, depend on the number of threads.
    if "OMP_NUM_THREADS" not in wanted and (threads := _threads(entry)):
        notes.append(f"OMP_NUM_THREADS={threads}: so many threads the run had, on a machine with other CPUs")
        variables["OMP_NUM_THREADS"] = str(threads)
    return variables, notes


def _threads(entry: Mapping[str, Any]) -> int | None:
    """Return the recorded number of threads, if this machine would choose another one."""
    environment = entry.get("environment") or {}
    cpus = (environment.get("devices") or {}).get("usable_cpus")
    if cpus is None or not hasattr(os, "sched_getaffinity") or cpus == len(os.sched_getaffinity(0)):
        return None
    threads = (environment.get("threads") or {}).get("torch")
    return threads if isinstance(threads, int) else None


def _search_path(entry: Mapping[str, Any], moved: Moved | None, present: Mapping[str, str]) -> list[str]:
    """Return PYTHONPATH: the copy's folders come first, before an installed package of the same name."""
    old = [path for path in _recorded_variables(entry).get("PYTHONPATH", "").split(os.pathsep) if path]
    new = [path for path in present.get("PYTHONPATH", "").split(os.pathsep) if path]
    if moved is None:
        return list(dict.fromkeys([*old, *new]))
    entries = list((entry.get("command") or {}).get("search_path") or ())
    # The copy's folders shadow an installed package that is another version of the same code.
    first = moved.search_path([*entries, *_editable(entry)])
    return list(dict.fromkeys([*first, *map(moved.text, old), *new]))


def _editable(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield the folders of packages that were installed in editable form, which a search path may not show."""
    for folder in ((entry.get("environment") or {}).get("editable") or {}).values():
        yield from (str(Path(folder, "src")), str(folder))
