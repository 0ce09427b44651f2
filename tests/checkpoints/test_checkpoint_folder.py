"""Which checkpoints there are, which one is used, and which ones stay."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from train_manager.checkpoints.checkpoint_folder import CheckpointFolder
from train_manager.checkpoints.checkpoint_names import step_of
from train_manager.checkpoints.hashed_file import hash_of
from train_manager.checkpoints.verification import verify
from train_manager.errors import CheckpointError
from train_manager.files.lock import WriterLock

LEFTOVER = ".tmp-a-0f3c5b7a"


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path / "checkpoints")


def write(folder: CheckpointFolder, *steps: int, values: tuple[float | None, ...] = ()) -> list[Path]:
    facts = [{"monitored": value} for value in values] or [{}] * len(steps)
    return [folder.write(step, {"step": step}, fact) for step, fact in zip(steps, facts, strict=True)]


def steps(folder: CheckpointFolder) -> list[int]:
    return [step_of(path) for path in folder.checkpoints()]


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def damage(path: Path) -> None:
    (path / "state.json").write_text("")


def again(folder: CheckpointFolder) -> CheckpointFolder:
    """The folder as another process sees it."""
    return CheckpointFolder(folder.path)


@contextmanager
def warned() -> Iterator[list[str]]:
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts += [str(warning.message) for warning in caught]
    assert {warning.category for warning in caught} <= {RuntimeWarning}


def error_of(call: Callable[[], Any]) -> str:
    with pytest.raises(CheckpointError) as caught:
        call()
    return str(caught.value)


def test_a_folder_that_is_not_there_has_no_checkpoints(folder: CheckpointFolder) -> None:
    assert folder.checkpoints() == []


def test_checkpoints_are_in_the_order_of_steps_and_numbers_whatever_the_clock_says(folder: CheckpointFolder) -> None:
    write(folder, 20, 3, 1000, *[3] * 10)
    for second, path in enumerate(reversed(folder.checkpoints())):
        os.utime(path, (second, second))

    first = "step-000000000003"
    of_three = [first, *(f"{first}-{number}" for number in range(2, 12))]
    assert [path.name for path in folder.checkpoints()] == [*of_three, "step-000000000020", "step-000000001000"]


def test_a_step_may_have_more_than_twelve_digits(folder: CheckpointFolder) -> None:
    write(folder, 10**12, 10**12 - 1)
    assert steps(folder) == [10**12 - 1, 10**12]


@pytest.mark.parametrize(
    "name",
    ["step-12", "step-000000000012.old", "damaged-step-000000000012", ".tmp-step-000000000012-1", "superseded", "notes",
     "step-000000000012-", "step-٠٠٠٠٠٠٠٠٠٠١٢", "step-000000000012\n"],
)  # fmt: skip
def test_foreign_names_are_no_checkpoints_and_stay(folder: CheckpointFolder, name: str) -> None:
    (folder.path / name).mkdir(parents=True)
    write(folder, 1, 2)
    folder.keep(1)
    assert steps(folder) == [2]
    assert name in names(folder.path)


def test_files_and_links_to_files_are_no_checkpoints_and_stay(folder: CheckpointFolder) -> None:
    folder.path.mkdir()
    (folder.path / "step-000000000001").touch()
    (folder.path / "step-000000000002").symlink_to("step-000000000001")
    write(folder, 1, 2)
    folder.keep(1)
    assert [path.name for path in folder.checkpoints()] == ["step-000000000002-2"]
    assert (folder.path / "step-000000000002").exists()


def test_nothing_is_overwritten(folder: CheckpointFolder) -> None:
    assert [path.name for path in write(folder, 5, 5, 5)] == [
        "step-000000000005",
        "step-000000000005-2",
        "step-000000000005-3",
    ]


def test_a_thousand_checkpoints_are_listed_with_one_look_at_the_folder(folder: CheckpointFolder) -> None:
    for step in range(999):
        (folder.path / f"step-{step:012d}").mkdir(parents=True)
    (newest,) = write(folder, 1_000)
    asked: list[str] = []
    sys.setprofile(lambda frame, event, call: asked.append(call.__name__) if in_posix(event, call) else None)
    found = folder.checkpoints()
    sys.setprofile(None)

    assert len(found) == 1_000
    # Python 3.13 has two functions in posix that take paths apart, and look at no file.
    assert [name for name in asked if not name.startswith("_path_")] == ["scandir"]
    assert folder.find("last") == newest  # and no other is looked at


def in_posix(event: str, call: Any) -> bool:
    return event == "c_call" and call.__module__ == "posix" and call is not os.fspath


def test_the_last_sound_one_is_used_and_damaged_ones_are_kept_aside_and_told(folder: CheckpointFolder) -> None:
    first, second, third = write(folder, 10, 20, 30)
    damage(second)
    damage(third)
    with warned() as texts:
        assert again(folder).find("last") == first

    assert texts == [
        f"{folder.path}/step-{step:012d} is damaged: state.json is empty; "
        f"it is kept as damaged-step-{step:012d}, and step-000000000010 is used instead"
        for step in (30, 20)
    ]
    assert names(folder.path) == ["damaged-step-000000000020", "damaged-step-000000000030", "step-000000000010"]


@pytest.mark.parametrize("asked", ["last", "best"])
def test_with_no_sound_one_each_look_is_an_error_and_all_stay(folder: CheckpointFolder, asked: str) -> None:
    for path in write(folder, 10, 20, values=(0.1, 0.2)):
        damage(path)
        (path / "manifest.json").write_text("{}")
    first = 20 if asked == "last" else 10
    for _ in range(2):
        assert error_of(lambda: again(folder).find(asked)) == (
            f"{folder.path}/step-{first:012d}/manifest.json is not a manifest of train_manager\n"
            '  no other checkpoint can be used; resume="fresh" moves all aside and begins anew'
        )
    assert steps(folder) == [10, 20]


def test_a_damaged_one_does_not_overwrite_another_damaged_one(folder: CheckpointFolder) -> None:
    write(folder, 5)
    for _ in range(2):
        damage(*write(folder, 10))
        with warned():
            folder.find("last")
    assert names(folder.path) == ["damaged-step-000000000010", "damaged-step-000000000010-2", "step-000000000005"]


def test_what_cannot_be_read_here_and_now_is_neither_renamed_nor_deleted(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = write(folder, 10, 20, values=(0.5, 0.1))
    other, opened = again(folder), os.open

    def lost(path: Any, *arguments: Any, **options: Any) -> int:
        if Path(path).parent == second:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return opened(path, *arguments, **options)

    with monkeypatch.context() as patch, warned() as texts:
        patch.setattr(os, "open", lost)
        assert other.find("last") == other.find("best", mode="min") == first
        write(other, 30, 40)
        other.keep(1, mode="min")

    assert steps(folder) == [10, 20, 40]
    assert {*texts} == {
        f"{second}/manifest.json cannot be read: Stale file handle; it stays as it is, and {first.name} is used instead"
    }
    assert again(folder).find("best", mode="min") == second


def test_if_none_can_be_read_the_error_is_that_of_the_system(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = write(folder, 10)

    def lost(*_: Any, **__: Any) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "open", lost)
    assert error_of(lambda: folder.find("last")) == (
        f"{path}/manifest.json cannot be read: Input/output error\n"
        "  no other checkpoint can be used; try again when it can be read"
    )
    assert steps(folder) == [10]


def test_a_checkpoint_that_goes_while_it_is_read_is_not_damaged(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = write(folder, 10, 20)

    def after_a_deletion(path: Path) -> dict[str, Any]:
        if path == second:
            second.rename(folder.path / ".tmp-step-000000000020-0f3c5b7a")
        return verify(path)

    monkeypatch.setattr("train_manager.checkpoints.checkpoint_folder.verify", after_a_deletion)
    assert folder.find("last") == first


def test_a_checkpoint_of_a_newer_format_is_told_and_stays(folder: CheckpointFolder) -> None:
    first, second = write(folder, 10, 20)
    manifest = second / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format": 2', '"format": 3'))
    other = again(folder)
    with warned() as texts:
        assert other.find("last") == first
        third, *_ = write(other, 30)
        other.keep(1)

    assert texts == [
        f"{manifest} was written by a newer train_manager (format 3); this one reads format 2; "
        "it stays as it is, and step-000000000010 is used instead"
    ]
    assert folder.checkpoints() == [second, third]


def test_where_all_are_of_an_earlier_format_the_error_says_so(folder: CheckpointFolder) -> None:
    for path in write(folder, 10, 20):
        manifest = path / "manifest.json"
        manifest.write_text(manifest.read_text().replace('"format": 2', '"format": 1'))
    with pytest.raises(CheckpointError) as info:
        again(folder).find("last")

    assert str(info.value) == (
        f"{manifest} was written by an earlier train_manager (format 1); this one reads format 2\n"
        '  load it with that train_manager, or begin anew, with resume="fresh"'
    )
    assert names(folder.path) == ["step-000000000010", "step-000000000020"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and rename all")
def test_who_may_only_read_is_told_what_is_damaged(folder: CheckpointFolder) -> None:
    first, second = write(folder, 10, 20)
    damage(second)
    folder.path.chmod(0o500)
    try:
        with warned() as texts:
            assert folder.find("last") == first
    finally:
        folder.path.chmod(0o700)
    assert "it cannot be renamed (Permission denied), and step-000000000010 is used instead" in texts[0]


def test_the_best_is_the_earliest_of_equals_and_never_nan(folder: CheckpointFolder) -> None:
    values = (math.nan, 0.5, 0.3, 0.3, None, math.inf, -math.inf)
    write(folder, *range(7), values=values)
    for seen in (folder, again(folder)):
        assert step_of(seen.find("best", mode="min")) == 6
        assert step_of(seen.find("best", mode="max")) == 5
    damage(folder.path / "step-000000000006")
    with warned():
        assert step_of(folder.find("best", mode="min")) == 2


def test_a_damaged_manifest_is_told_when_the_best_is_looked_for(folder: CheckpointFolder) -> None:
    first, second = write(folder, 10, 20, values=(0.5, 0.1))
    manifest = second / "manifest.json"
    manifest.write_text(manifest.read_text().replace("0.1", "0.9"))
    with warned() as texts:
        assert again(folder).find("best") == first
    assert texts == [
        f"{manifest} is damaged: it has changed since it was written; it is kept as damaged-step-000000000020, "
        "and step-000000000010 is used instead"
    ]


@pytest.mark.parametrize("asked", [20, "step-000000000020", Path("step-000000000020")])
def test_one_is_found_by_step_name_and_path(folder: CheckpointFolder, asked: int | str | Path) -> None:
    _, path, _ = write(folder, 10, 20, 30)
    assert folder.find(asked) == path
    assert folder.find(path) == path


def test_of_a_step_with_several_the_last_is_found(folder: CheckpointFolder) -> None:
    write(folder, 10, 10, 20)
    assert folder.find(10).name == "step-000000000010-2"


def test_a_path_elsewhere_is_found(folder: CheckpointFolder, tmp_path: Path) -> None:
    (path,) = write(CheckpointFolder(tmp_path / "elsewhere"), 10)
    assert folder.find(path) == path


def test_a_missing_step_is_told_with_what_is_there(folder: CheckpointFolder) -> None:
    write(folder, 10, 20, 30)
    assert error_of(lambda: folder.find(24)) == (
        f"{folder.path} has no checkpoint of step 24\n"
        "  there are checkpoints of the steps 10, 20, 30; the nearest is 20"
    )


def test_a_missing_name_is_told_with_what_is_there(folder: CheckpointFolder) -> None:
    write(folder, *range(20))
    assert error_of(lambda: folder.find("lats")) == (
        f"{folder.path} has no checkpoint 'lats'\n"
        "  there are checkpoints of the steps ... (12 earlier ones), 12, 13, 14, 15, 16, 17, 18, 19"
    )


def test_a_damaged_one_that_is_asked_for_is_an_error_and_stays(folder: CheckpointFolder) -> None:
    write(folder, 10)
    (path,) = write(folder, 20)
    damage(path)
    assert error_of(lambda: folder.find(20)) == (
        f"{path} is damaged: state.json is empty\n  there are checkpoints of the steps 10; the nearest is 10"
    )
    assert path.exists()


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ("last", "holds no sound checkpoint\n  it has none"),
        ("best", "holds no sound checkpoint with a monitored value\n  it has none"),
        (3, "has no checkpoint of step 3\n  it has none"),
    ],
)
def test_an_empty_folder_says_so(folder: CheckpointFolder, asked: str | int, text: str) -> None:
    assert error_of(lambda: folder.find(asked)) == f"{folder.path} {text}"


def test_without_monitored_values_there_is_no_best(folder: CheckpointFolder) -> None:
    write(folder, 10)
    assert error_of(lambda: folder.find("best")) == (
        f"{folder.path} holds no sound checkpoint with a monitored value\n  there are checkpoints of the steps 10"
    )


@pytest.mark.parametrize("asked", [True, -1, 2.5, None])
def test_what_cannot_be_a_step_is_refused(folder: CheckpointFolder, asked: Any) -> None:
    assert error_of(lambda: folder.find(asked)) == f"at must be a whole number of at least 0, but is {asked}"


def test_the_newest_and_the_best_stay(folder: CheckpointFolder) -> None:
    write(folder, 10, 20, 30, 40, 50, values=(0.5, 0.1, 0.3, 0.4, 0.2))
    folder.keep(2, mode="min")
    assert steps(folder) == [20, 40, 50]
    folder.keep(1)
    assert names(folder.path) == ["step-000000000050"]


def test_the_best_of_another_metric_is_not_taken_for_the_best(folder: CheckpointFolder) -> None:
    for step, monitor, value in ((10, "valid/error", 0.0), (20, "valid/loss", 0.3), (30, "valid/loss", 0.5)):
        folder.write(step, {}, {"monitored": value, "monitor": monitor, "mode": "min"})

    for found in (folder, again(folder)):
        assert found.find("best").name == "step-000000000020"
    folder.keep(1, mode="min")
    assert steps(folder) == [20, 30]


def test_damaged_ones_do_not_count_among_those_that_are_kept(folder: CheckpointFolder) -> None:
    *_, third, fourth = write(folder, 10, 20, 30, 40, values=(0.1, 0.5, 0.4, 0.3))
    damage(third)
    damage(fourth)
    with warned() as texts:
        again(folder).keep(1, mode="min")
    assert steps(folder) == [10, 20]
    assert [text.partition("; ")[2] for text in texts] == [
        f"it is kept as damaged-{path.name}, and step-000000000020 is used instead" for path in (fourth, third)
    ]


def test_each_checkpoint_of_another_process_is_verified_once_and_own_ones_never(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, 10, 20, 30, 40)
    other, verified = again(folder), []

    def noted(path: Path) -> dict[str, Any]:
        verified.append(step_of(path))
        return verify(path)

    monkeypatch.setattr("train_manager.checkpoints.checkpoint_folder.verify", noted)
    for step in (50, 60, 70):
        write(other, step)
        other.keep(3)
    assert verified == [40, 30]


def test_nothing_is_verified_if_nothing_is_to_be_deleted(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, 10, 20)
    monkeypatch.setattr("train_manager.checkpoints.checkpoint_folder.verify", None)
    again(folder).keep(2, mode="min")
    assert steps(folder) == [10, 20]


def test_a_run_that_resumes_from_an_earlier_one_moves_the_later_ones_aside(folder: CheckpointFolder) -> None:
    write(folder, 10, 20, 20, 30)
    assert [path.name for path in folder.set_aside_after(20)] == ["step-000000000030"]
    assert steps(folder) == [10, 20, 20]
    folder.set_aside_after(folder.path / "step-000000000020")
    write(folder, 20, 30)
    folder.set_aside_after(10)

    assert steps(folder) == [10]
    assert names(folder.path / "superseded") == [
        "step-000000000020",
        "step-000000000020-2",
        "step-000000000020-2-2",
        "step-000000000030",
        "step-000000000030-2",
    ]


def test_leftovers_are_removed_and_nothing_else(folder: CheckpointFolder, tmp_path: Path) -> None:
    with WriterLock(tmp_path) as lock:
        folder.clean_up(lock)  # of a folder that is not there
        write(folder, 10)
        for name in (LEFTOVER, ".tmp-mine", "damaged-a"):
            (folder.path / name / "deep").mkdir(parents=True)
        folder.clean_up(lock)

    assert names(folder.path) == [".tmp-mine", "damaged-a", "step-000000000010"]


def test_leftovers_are_not_removed_while_another_writes(folder: CheckpointFolder, tmp_path: Path) -> None:
    (folder.path / LEFTOVER).mkdir(parents=True)
    with WriterLock(tmp_path) as released:
        pass
    with WriterLock(tmp_path):
        folder.clean_up(released)
    assert names(folder.path) == [LEFTOVER]


def test_leftovers_are_not_removed_where_nobody_can_be_kept_out(
    folder: CheckpointFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", without_locks)
    (folder.path / LEFTOVER).mkdir(parents=True)
    with pytest.warns(RuntimeWarning, match="has no locks"), WriterLock(tmp_path) as lock:
        folder.clean_up(lock)
    assert names(folder.path) == [LEFTOVER]


def test_what_cannot_be_deleted_is_told_and_removed_by_the_next_run(
    folder: CheckpointFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(path: Path) -> None:
        raise OSError(39, "Directory not empty")

    write(folder, 10, 20)
    with monkeypatch.context() as patch, warned() as texts:
        patch.setattr("train_manager.files.leftovers.shutil.rmtree", busy)
        folder.keep(1)
    (left,) = folder.path.glob(".tmp-step-000000000010-*")
    assert texts == [f"{left} cannot be deleted: Directory not empty; the next run tries again"]
    with WriterLock(tmp_path) as lock:
        folder.clean_up(lock)
    assert names(folder.path) == ["step-000000000020"]


def test_a_folder_that_was_deleted_while_running_is_made_again(folder: CheckpointFolder) -> None:
    write(folder, 10)
    for path in folder.checkpoints():
        path.rename(folder.path.with_name("gone"))
    folder.path.rmdir()
    write(folder, 20)
    folder.keep(1)
    assert steps(folder) == [20]


@pytest.mark.parametrize("name", ["my runs", "two\nlines", "🦊", "-rf", "d" * 255])
def test_any_name_of_a_train_dir_will_do(tmp_path: Path, name: str) -> None:
    folder = CheckpointFolder(tmp_path / name / "checkpoints")
    (tmp_path / name).mkdir()
    with WriterLock(tmp_path / name) as lock:
        folder.clean_up(lock)
        write(folder, 10, 20, 30)
        folder.set_aside_after(20)
        folder.keep(1)
    assert folder.find("last").name == "step-000000000020"


def test_a_folder_behind_a_link_will_do(tmp_path: Path) -> None:
    (tmp_path / "large disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "large disk")
    with WriterLock(tmp_path / "link") as lock:
        folder = CheckpointFolder(tmp_path / "link" / "checkpoints")
        write(folder, 10, 20)
        folder.keep(1)
        folder.clean_up(lock)
    assert names(tmp_path / "large disk" / "checkpoints") == ["step-000000000020"]


# ---- a reader beside a run that saves --------------------------------------------------------------------------------


def deleting(folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch, *new: int) -> None:
    """Let a run write a newer checkpoint, and delete the older ones, while the first file is hashed."""
    left = list(new)

    def hashed(path: Path) -> str:
        if left:
            write(again(folder), left.pop(0))
            again(folder).keep(1)
        return hash_of(path)

    monkeypatch.setattr("train_manager.checkpoints.verification.hash_of", hashed)


def test_a_reader_of_what_a_run_deletes_meanwhile_looks_again(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, 10)
    deleting(folder, monkeypatch, 20)

    assert again(folder).find("last").name == "step-000000000020"


def test_the_error_of_a_checkpoint_that_is_deleted_while_it_is_read_says_so(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = write(folder, 10)
    deleting(folder, monkeypatch, 20)

    assert error_of(lambda: verify(path)) == f"{path} was deleted while it was read"


def test_what_a_folder_has_verified_is_not_hashed_again_as_it_is_read(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, 10)
    reader = again(folder)
    found = reader.find("last")
    monkeypatch.setattr("train_manager.checkpoints.verification.hash_of", None)

    assert reader.read(found) == {"step": 10}


# ---- links to checkpoints --------------------------------------------------------------------------------------------


def test_a_link_to_a_checkpoint_is_refused_by_name_and_nothing_behind_it_changes(
    folder: CheckpointFolder, tmp_path: Path
) -> None:
    (path,) = write(CheckpointFolder(tmp_path / "other"), 30)
    write(folder, 10)
    link = folder.path / path.name
    link.symlink_to(path)
    told = f"{link} is a link, and not a checkpoint\n  give the checkpoint itself, {path}, and move the link away"

    for call in (folder.checkpoints, lambda: folder.find("last"), lambda: folder.find(30), lambda: folder.find(link)):
        assert error_of(call) == told
    assert error_of(lambda: verify(link)) == told
    verify(path)


def test_a_link_to_nothing_is_no_checkpoint(folder: CheckpointFolder, tmp_path: Path) -> None:
    write(folder, 10)
    (folder.path / "step-000000000040").symlink_to(tmp_path / "gone")

    assert steps(folder) == [10]
