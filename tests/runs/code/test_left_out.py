"""What is too large, secret or written by trainings is left out and named; the rest is kept."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.runs.code.repositories import RUN, contents_of, git, kept_in, repository, tree, write
from train_manager.runs.code.git import Git
from train_manager.runs.code.left_out import Limits, reason_against_name
from train_manager.runs.code.restore import restore_code
from train_manager.runs.code.take import take_code_record

KEY = b"key = 'AKIAIOSFODNN7ABCDEFG'\n"


def describe_files(root: Path, limits: Limits = Limits()) -> dict[str, tuple[str, str | None]]:  # noqa: B008
    """How each file was recorded, and why it was left out."""
    record = take_code_record(root, root.parent / "runs", RUN, limits=limits)
    assert record["reason"] is None
    return kept_in(record["repositories"][0])


def differences(root: Path) -> bytes:
    """The text of the differences."""
    return (root.parent / "runs/code" / f"{RUN}.diff").read_bytes()


def test_the_differences_are_told_as_text_too(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"import os\nlr = 1\n", "old.py": b"old\n"})
    write(root, {"train.py": b"import os\nlr = 2\n"})
    (root / "old.py").unlink()

    describe_files(root)

    shown = [line for line in differences(root).decode().splitlines() if not line.startswith("index ")]
    assert shown == [
        "diff --git a/old.py b/old.py",
        "deleted file mode 100644",
        "--- a/old.py",
        "+++ /dev/null",
        "@@ -1 +0,0 @@",
        "-old",
        "diff --git a/train.py b/train.py",
        "--- a/train.py",
        "+++ b/train.py",
        "@@ -1,2 +1,2 @@",
        " import os",
        "-lr = 1",
        "+lr = 2",
    ]


def test_the_lines_of_a_large_file_are_not_told(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"large.py": b"b\n" * 600_000, "gone.py": b"c\n" * 600_000})
    write(root, {"large.py": b"B\n" * 600_000})
    (root / "gone.py").unlink()

    assert describe_files(root) == {"gone.py": ("deleted", None), "large.py": ("stored", None)}
    assert len(differences(root)) < 1000
    restored = restore_code(tmp_path / "runs", RUN, tmp_path / "again")
    assert tree(restored.root) == tree(root)


def test_a_file_over_its_limit_is_left_out_with_its_size(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"a.py": b"a"})
    write(root, {"data.bin": b"x" * 2_000_000})

    record = take_code_record(root, tmp_path / "runs", RUN, limits=Limits(file=1_000_000))

    time = (root / "data.bin").stat().st_mtime_ns
    assert record["repositories"][0]["left_out"] == [
        {"path": "data.bin", "why": "it is larger than 1 MB", "size": 2_000_000, "time": time}
    ]
    assert contents_of(tmp_path / "runs") == {}
    assert restore_code(tmp_path / "runs", RUN, tmp_path / "again").problems == [
        "data.bin was left out of the record: it is larger than 1 MB"
    ]


def test_small_files_are_kept_before_large_ones(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"a.py": b"a"})
    write(root, {"a.bin": b"x" * 900, "b.py": b"y" * 200, "z.py": b"z" * 100})

    assert describe_files(root, Limits(total=1000)) == {
        "a.bin": ("left out", "the record would hold more than 0.001 MB"),
        "b.py": ("stored", None),
        "z.py": ("stored", None),
    }


def test_of_too_many_new_files_only_those_that_ran_are_kept(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"a.py": b"a"})
    write(root, {**{f"images/{number}.png": b"" for number in range(12)}, "new.py": b"n", "images/read.py": b"r"})

    write(root, {"a.py": b"changed"})

    record = take_code_record(root, tmp_path / "runs", RUN, limits=Limits(names=10), loaded=[root / "new.py"])

    assert kept_in(record["repositories"][0]) == {
        "a.py": ("stored", None),
        "new.py": ("stored", None),
        "./": ("left out", "13 new files are too many to keep"),
    }


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_in_the_place_of_a_file_is_named_and_not_read(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"a.py": b"a"})
    (root / "a.py").unlink()
    os.mkfifo(root / "a.py")
    os.mkfifo(root / "new")

    assert describe_files(root) == {"a.py": ("left out", "it is a pipe, a socket or a device")}


def test_folders_of_trainings_are_left_out_as_a_whole(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1"})
    write(
        root,
        {
            "runs/one/run-1.json": b'{"schema": "train-manager/run", "version": 1}',
            "runs/one/plots/a.svg": b"",
            "two/metrics.sqlite": b"",
            "three/checkpoints/step-000000000001/MANIFEST.json": b"",
            "three/more/deep/x": b"",
            "not_ours/run-1.json": b"{}",
        },
    )

    assert describe_files(root) == {
        "not_ours/run-1.json": ("stored", None),
        "runs/one/": ("left out", "a training writes this folder"),
        "three/": ("left out", "a training writes this folder"),
        "two/": ("left out", "a training writes this folder"),
    }
    assert restore_code(tmp_path / "runs", RUN, tmp_path / "again").problems == []


def test_the_folder_of_this_training_is_left_out_before_anything_is_in_it(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1"})
    write(root, {"out/notes.txt": b"n"})

    record = take_code_record(root, root / "out", RUN)

    assert [(path, how) for path, (how, _) in kept_in(record["repositories"][0]).items()] == [("out/", "left out")]


@pytest.mark.parametrize("folder", ["", "exp"])
def test_code_that_lies_in_the_folder_of_its_training_is_kept(tmp_path: Path, folder: str) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1"})
    place = root / folder
    write(place, {"new.py": b"n", "run-1.json": b"{}", "metrics.sqlite-wal": b"", "checkpoints/step-1/x": b"x"})
    own = {f"code/0123456789abcdef{end}": b"{}" for end in (".json", ".diff", "-1.diff", ".py", ".copy/train.py")}
    write(place, {"code/net.py": b"n", **own, "code/git/HEAD": b"x", "code/gitlab.py": b"m"})

    record = take_code_record(place, place, RUN)

    kept = [path for path, (how, _) in kept_in(record["repositories"][0]).items() if how == "stored"]
    assert kept == [os.path.join(folder, name) for name in ("code/gitlab.py", "code/net.py", "new.py")]


def test_caches_of_python_are_not_code(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1"})
    write(root, {"__pycache__/train.cpython-311.pyc": b"", "lib/__pycache__/x.pyc": b""})

    assert describe_files(root) == {}


def test_a_file_that_changes_while_it_is_recorded_is_kept_as_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1\n"})
    write(root, {"train.py": b"2\n"})
    run = Git.run

    def run_and_change(self: Git, *arguments: str, **more: Any) -> bytes:
        output = run(self, *arguments, **more)
        if "--add" in arguments:  # git has read the file
            write(root, {"train.py": KEY})
        return output

    monkeypatch.setattr(Git, "run", run_and_change)

    assert describe_files(root) == {"train.py": ("stored", None)}
    restored = restore_code(tmp_path / "runs", RUN, tmp_path / "again")
    assert restored.problems == []
    assert (restored.root / "train.py").read_bytes() == b"2\n"
    assert differences(root).endswith(b"-1\n+2\n")


def test_modes_count_only_where_the_file_system_keeps_them(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1\n"})
    (root / "train.py").chmod(0o755)
    assert describe_files(root) == {"train.py": ("stored", None)}

    git(root, "config", "core.fileMode", "false")

    assert describe_files(root) == {}


def test_a_mode_that_the_file_system_does_not_keep_is_no_difference_after_a_restore(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1\n"})
    git(root, "config", "core.fileMode", "false")
    write(root, {"train.py": b"2\n"})
    (root / "train.py").chmod(0o755)

    assert describe_files(root) == {"train.py": ("stored", None)}
    assert restore_code(tmp_path / "runs", RUN, tmp_path / "again").problems == []


def test_a_file_that_is_deleted_while_it_is_recorded_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = repository(tmp_path / "lab", {"data.bin": b"1"})
    write(root, {"data.bin": b"2" * 3000, "new.bin": b"3" * 3000})
    run = Git.run

    def delete_and_run(self: Git, *arguments: str, **more: Any) -> bytes:
        if "--add" in arguments:  # git has listed the files and not read them
            for path in root.glob("*.bin"):
                path.unlink()
        return run(self, *arguments, **more)

    monkeypatch.setattr(Git, "run", delete_and_run)

    assert describe_files(root) == {"data.bin": ("deleted", None)}


def test_code_in_a_folder_that_an_earlier_training_has_written_to_is_kept(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"a.py": b"a"})
    write(root, {"project/train.py": b"b", "project/run-1.json": b'{"schema": "train-manager/run"}'})

    record = take_code_record(root / "project", tmp_path / "runs", RUN)

    files = {path: how for path, (how, _) in kept_in(record["repositories"][0]).items()}
    assert files == {"project/train.py": "stored", "project/run-1.json/": "left out"}


def test_of_a_repository_in_a_home_only_what_lies_beside_the_code_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = repository(tmp_path / "lab", {"a.py": b"a"})
    write(root, {"diary.txt": b"d", "project/train.py": b"t", "library/net.py": b"n"})
    monkeypatch.setenv("HOME", str(root))

    for folder, kept in (("project", ["library/net.py", "project/train.py"]), (".", ["library/net.py"])):
        record = take_code_record(root / folder, tmp_path / "runs", RUN, loaded=[root / "library/net.py"])
        files = kept_in(record["repositories"][0])
        assert files == {
            **dict.fromkeys(kept, ("stored", None)),
            "./": ("left out", "of the new files in a home folder only those beside the code are kept"),
        }


def test_a_file_with_a_secret_name_that_was_deleted_is_deleted(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {".env": b"X=1", "a.py": b"a"})
    (root / ".env").unlink()

    assert describe_files(root) == {".env": ("deleted", None)}


def test_runs_beside_data_that_git_does_not_know_store_no_more_than_the_limit_once(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1\n"})
    write(root, {f"data/{number}.bin": random.Random(number).randbytes(1_200_000) for number in range(4)})

    for number in range(3):
        write(root, {"train.py": b"lr = %d\n" % number})
        take_code_record(root, tmp_path / "runs", f"{number:016x}", limits=Limits(total=3_000_000))

    files = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert 2_400_000 < sum(path.stat().st_size for path in files) < 3_000_000


def test_what_the_text_of_differences_does_not_show_is_named_above_it(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"old key.py": KEY, "train.py": b"1\n"})
    write(root, {"old key.py": b"key = None\n", "train.py": b"2\n"})
    write(root, {f"long{number:03}.txt": b"x\n" * 49_500 for number in range(112)})

    describe_files(root, Limits(total=1 << 40))

    lines = differences(root).decode().splitlines()
    assert lines[:2] == [
        "# old key.py is not shown: in the commit, it holds what looks like a key of AWS (line 1)",
        "# 102 more files are not shown: the differences would be too long",
    ]
    assert [line for line in lines if line.startswith("diff")] == [
        *(f"diff --git a/long{number:03}.txt b/long{number:03}.txt" for number in range(10)),
        "diff --git a/train.py b/train.py",
    ]


def test_what_the_user_ignores_everywhere_is_ignored(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"a.py": b"a"})
    write(tmp_path, {"my ignored": b"*.tmp\n"})
    git(root, "config", "core.excludesFile", str(tmp_path / "my ignored"))
    write(root, {"x.tmp": b"", "x.log": b"", "x.py": b"", ".git/info/exclude": b"*.log\n"})

    assert describe_files(root) == {"x.py": ("stored", None)}


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out", "a//b", ".", "", "a/./b", "a\0b"])
def test_a_name_that_leads_out_is_refused(name: str) -> None:
    assert reason_against_name(name) == "its name leads out of the folder"


@pytest.mark.parametrize("name", [".git/config", "a/.git/hooks/post-checkout", ".GIT/config", ".git. /x", "git~1"])
def test_a_name_in_a_git_folder_is_refused(name: str) -> None:
    assert reason_against_name(name) == "its name leads into a git folder"


def test_a_name_that_could_not_be_put_back_is_left_out(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"a.py": b"a"})
    write(root, {"git~1": b"x", "b.py": b"b"})

    assert describe_files(root) == {"b.py": ("stored", None), "git~1": ("left out", "its name leads into a git folder")}
