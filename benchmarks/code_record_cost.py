"""What the record of a run's code costs, beside what git takes for a diff.

python -m benchmarks code_record_cost
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

from benchmarks.measure import interleaved, ratios, spread
from benchmarks.section import Claim, Section, table
from train_manager import Extension
from train_manager.extensions import CodeRecord
from train_manager.runs.code.left_out import Limits
from train_manager.runs.code.take import take_code_record
from train_manager.testing import tiny_manager

OWN: Final = "this repository, 3 new files"
MANY: Final = "many files, 1 MB of changes"
LARGE: Final = "few files, {megabytes} MB of changes"
RECORD: Final = "the record"
DIFF: Final = "git diff --binary"
WAIT: Final = "what the first step waits"
PER_FOLDER: Final = 100
QUICK: dict[str, Any] = {"rounds": 1, "files": 200, "megabytes": 2}
AUTHOR: Final = {
    f"GIT_{role}_{part}": text for role in ("AUTHOR", "COMMITTER") for part, text in (("NAME", "A"), ("EMAIL", "a"))
}

TEXT: Final = """\
Time on the clock of `CodeRecord` and of `git diff --binary`, which reads and compresses what changed and leaves new
files out. The first repository is a clone of this one. The second has {files} files, of which 50 text files with 1 MB
in all have changed; in the third, 5 binary files with {megabytes} MB in all have changed. A changed file above 1 MB is
stored, and not told line by line. The record is taken in a thread; the first step waits until it has begun.

{table}

A record starts {processes} git processes in the second repository. Nothing is done per step.

{new} new files of {new_size} take {new_seconds:.2f} s, and {new_disk} on the disk; a second record of them takes
{again_seconds:.2f} s, and {again_disk} more.
"""


def section(rounds: int = 2, files: int = 20_000, megabytes: int = 20) -> Section:
    """Measure."""
    large = LARGE.format(megabytes=megabytes)
    with TemporaryDirectory() as name:
        folder = Path(name)
        repositories = {
            OWN: own_clone(folder / "own"),
            MANY: many_files(folder / "many", files),
            large: large_files(folder / "large", megabytes),
        }
        processes = _processes(repositories[MANY], folder / "counted")
        measured = interleaved(_cases(repositories, folder / "runs"), rounds)
        new = new_files(folder / "new", files)
        new_size = sum(path.stat().st_size for path in new.glob("*/*.txt"))
        first, again = (_take_new(new, folder / "of_new", run) for run in ("1" * 16, "2" * 16))
    rows = [
        [f"{which}: {case}", spread(measured[which, case]).times(1e3).shown(0), _ratio(measured, which, case)]
        for which in repositories
        for case in (RECORD, DIFF, WAIT)
    ]
    text = TEXT.format(
        files=f"{files:,}",
        megabytes=megabytes,
        table=table(["", "ms", "ratio"], rows),
        processes=processes,
        new=f"{files:,}",
        new_size=_megabytes(new_size),
        new_seconds=first[0],
        new_disk=_megabytes(first[1]),
        again_seconds=again[0],
        again_disk=_megabytes(again[1] - first[1]),
    )
    seconds = {which: spread(measured[which, RECORD]).median for which in repositories}
    wait = spread(measured[MANY, WAIT]).median
    claims = [
        Claim("the code record of this repository", seconds[OWN], must=0.5, goal=0.2, unit="s"),
        Claim(f"the code record of {files:,} files with 1 MB of changes", seconds[MANY], must=0.5, goal=0.3, unit="s"),
        Claim(f"the code record of {megabytes} MB of changed files", seconds[large], must=5, goal=2, unit="s"),
        Claim("what the first step waits for it", wait, must=0.1, goal=0.02, unit="s"),
        Claim(f"the code record of {files:,} new files", first[0], must=20, goal=8, unit="s"),
        Claim("the disk that they take, of their size", first[1] / new_size, must=1, goal=0.5),
    ]
    return Section("A code record", text, claims, on_page=False)


def own_clone(folder: Path) -> Path:
    """Clone this repository, or where it is not one make a repository of its package, with three new files."""
    here = Path(__file__).resolve().parents[1]
    if (here / ".git").exists():
        _git(here, "clone", "-q", os.fspath(here), os.fspath(folder))
    else:
        shutil.copytree(here / "train_manager", folder / "train_manager")
        _commit(folder)
    for number in range(3):
        (folder / f"new{number}.py").write_text(f"x = {number}\n" * 100)
    return folder


def new_files(folder: Path, files: int) -> Path:
    """Make a repository beside whose commit small texts lie that git does not know."""
    folder.mkdir()
    (folder / "train.py").write_text("lr = 0.1\n")
    _commit(folder)
    for number in range(files):
        path = folder / f"folder{number // PER_FOLDER}" / f"file{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"line {line} of {number}\n" for line in range(100)))
    return folder


def _take_new(repository: Path, runs: Path, run: str) -> tuple[float, int]:
    """Take a record of new files, and return its seconds, and the bytes of the disk that the train_dir takes."""
    seconds = _seconds(lambda: take_code_record(repository, runs, run, limits=Limits(total=1 << 40, seconds=60)))
    return seconds, sum(path.stat().st_blocks * 512 for path in runs.rglob("*") if path.is_file())


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def many_files(folder: Path, files: int) -> Path:
    """Make a repository of small files, and change 50 of them such that the changes are 1 MB."""
    for number in range(files):
        path = folder / f"folder{number // PER_FOLDER}" / f"file{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"file {number}\n" * 20)
    _commit(folder)
    for number in range(0, files, max(files // 50, 1)):
        path = folder / f"folder{number // PER_FOLDER}" / f"file{number}.txt"
        path.write_text("".join(f"changed line {line} of {number}\n" for line in range(750)))
    return folder


def large_files(folder: Path, megabytes: int) -> Path:
    """Make a repository of five binary files, and change each as a whole."""
    folder.mkdir()
    for seed in (0, 1):
        for number in range(5):
            content = random.Random(seed * 5 + number).randbytes(megabytes * 1_000_000 // 5)
            (folder / f"data{number}.bin").write_bytes(content)
        if seed == 0:
            _commit(folder)
    return folder


def _commit(folder: Path) -> None:
    _git(folder, "init", "-q")
    _git(folder, "config", "gc.auto", "0")
    _git(folder, "add", "-A")
    _git(folder, "commit", "-qm", "first")


def _git(folder: Path, *arguments: str) -> bytes:
    environment = {**os.environ, **AUTHOR, "GIT_CONFIG_GLOBAL": os.devnull}
    return subprocess.run(["git", "-C", folder, *arguments], check=True, stdout=subprocess.PIPE, env=environment).stdout


def _cases(repositories: dict[str, Path], runs: Path) -> dict[tuple[str, str], Callable[[], float]]:
    cases: dict[tuple[str, str], Callable[[], float]] = {}
    for which, path in repositories.items():
        cases[which, RECORD] = partial(_seconds, partial(_require_whole, path, runs))
        cases[which, DIFF] = partial(_seconds, partial(_git, path, "diff", "--binary"))
        cases[which, WAIT] = partial(_wait, path, runs)
    return cases


def _require_whole(repository: Path, runs: Path) -> None:
    record = take_code_record(repository, runs, "0123456789abcdef")
    assert record["reason"] is None
    assert record["repositories"][0]["left_out"] == []


def _wait(repository: Path, runs: Path) -> float:
    """Seconds from the opening of a run to its first step, less those without a record."""
    return max(_to_first_step(runs, CodeRecord(folder=repository)) - _to_first_step(runs), 1e-6)


def _to_first_step(runs: Path, *extensions: Extension) -> float:
    reached: list[float] = []
    first = Extension.of(pre_train_step_batch=lambda: reached.append(perf_counter()))
    tm = tiny_manager(*extensions, first, train_dir=runs)
    before = perf_counter()
    tm.train()
    return reached[0] - before


def _processes(repository: Path, runs: Path) -> int:
    """How many processes a record starts."""
    counted = 0
    popen = subprocess.Popen.__init__

    def count(*args: Any, **options: Any) -> None:
        nonlocal counted
        counted += 1
        popen(*args, **options)

    _require_whole(repository, runs)  # what is imported first asks for git's version
    subprocess.Popen.__init__ = count  # type: ignore[method-assign]
    try:
        _require_whole(repository, runs)
    finally:
        subprocess.Popen.__init__ = popen  # type: ignore[method-assign]
    return counted


def _ratio(measured: dict[tuple[str, str], list[float]], which: str, case: str) -> str:
    return "" if case == DIFF else ratios(measured[which, case], measured[which, DIFF]).shown(2)


def _seconds(run: Callable[[], object]) -> float:
    before = perf_counter()
    run()
    return perf_counter() - before
