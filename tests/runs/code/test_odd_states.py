"""Whatever state a repository is in, it is recorded right, or the record says why it is not."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.runs.code.repositories import (
    RUN,
    assert_put_back,
    contents_of,
    git,
    head,
    kept_in,
    put_back,
    repository,
    tree,
    write,
)
from train_manager.runs.code.git import Git, git_module
from train_manager.runs.code.left_out import Limits
from train_manager.runs.code.restore import restore_code
from train_manager.runs.code.take import take_code_record

FILES = {"train.py": b"print(1)\n", "lib/net.py": b"net\n"}


def recorded(root: Path, **more: Any) -> dict[str, Any]:
    """The only repository of a record."""
    record = take_code_record(root, root.parent / "runs", RUN, **more)
    assert record["reason"] is None
    (entry,) = record["repositories"]
    return entry  # type: ignore[no-any-return]


def everything(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Each file below a folder with its time, mode and content."""
    return {
        os.path.relpath(os.path.join(place, name), folder): (
            os.lstat(os.path.join(place, name)).st_mtime_ns,
            os.lstat(os.path.join(place, name)).st_mode,
            Path(place, name).read_bytes(),
        )
        for place, _, names in os.walk(folder)
        for name in names
    } | {place: (os.stat(place).st_mtime_ns, 0, b"") for place, _, _ in os.walk(folder)}


def test_files_that_ran_are_kept_without_a_repository(tmp_path: Path) -> None:
    write(tmp_path / "lab", FILES)
    loaded = [tmp_path / "lab" / name for name in FILES]

    record = take_code_record(tmp_path / "lab", tmp_path / "runs", RUN, loaded=loaded)

    assert record["reason"] == "not in a git repository"
    restored = restore_code(tmp_path / "runs", RUN, tmp_path / "again")
    assert (restored.commit, restored.problems) == (None, [])
    assert tree(restored.root) == tree(tmp_path / "lab")


def test_a_file_that_ran_is_kept_although_git_ignores_it(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {**FILES, ".gitignore": b"local.py\n"})
    write(root, {"local.py": b"lr = 3\n"})

    entry = recorded(root, loaded=[root / "local.py", root / "train.py"])

    assert [(path, how) for path, (how, _) in kept_in(entry).items()] == [("local.py", "stored")]


@pytest.mark.parametrize("is_imported", [True, False], ids=["before", "there"])
def test_a_machine_without_git_has_a_reason_wherever_gitpython_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_imported: bool
) -> None:
    root = repository(tmp_path / "lab", FILES)
    git_module()
    for name in [name for name in sys.modules if name == "git" or name.startswith("git.")]:
        if not is_imported:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setenv("PATH", str(tmp_path))

    record = take_code_record(root, tmp_path / "runs", RUN)

    assert record["reason"] == "git is not installed"


def test_a_git_that_hangs_in_between_leaves_the_commit_and_what_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = repository(tmp_path / "lab", FILES)
    write(root, {"train.py": b"print(2)\n"})
    program = tmp_path / "git"
    real = shutil.which("git")
    program.write_text(f'#!/bin/sh\ncase "$*" in *ls-files*) sleep 1000;; *) exec {real} "$@";; esac\n')
    program.chmod(0o755)
    monkeypatch.setattr(git_module().cmd.Git, "GIT_PYTHON_GIT_EXECUTABLE", str(program))
    answer = Git.answer

    def patient_but_once(self: Git, *arguments: str, feed: bytes | None = None) -> tuple[int, bytes, bytes]:
        """Give commands that do not hang the time of a slow machine."""
        return answer(self if "ls-files" in arguments else replace(self, seconds=90), *arguments, feed=feed)

    monkeypatch.setattr(Git, "answer", patient_but_once)
    record = take_code_record(
        root, tmp_path / "runs", RUN, limits=Limits(seconds=0.2), loaded=[root / "train.py", root / "lib/net.py"]
    )

    assert record["reason"] == "git did not answer within 0.2 s"
    (entry,) = record["repositories"]
    assert entry["commit"] == head(root)
    monkeypatch.undo()
    restored = restore_code(tmp_path / "runs", RUN, tmp_path / "again")
    assert restored.problems == ["not all code was recorded: git did not answer within 0.2 s"]
    assert tree(restored.root) == tree(root)


def test_a_machine_without_gitpython_has_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = repository(tmp_path / "lab", FILES)
    for name in [name for name in sys.modules if name == "git" or name.startswith("git.")]:
        monkeypatch.delitem(sys.modules, name)
    found = [place for place in sys.path if not (Path(place) / "git").is_dir()]
    monkeypatch.setattr(sys, "path", found)

    record = take_code_record(root, tmp_path / "runs", RUN)

    assert record["reason"] == "GitPython is not installed: pip install GitPython"


def test_a_repository_without_a_commit_keeps_all_files(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab")
    write(root, {**FILES, ".gitignore": b"*.log\n", "forced.log": b"x", "a.log": b"y"})
    git(root, "add", "-f", "train.py", "forced.log")

    entry = recorded(root)

    assert (entry["commit"], entry["branch"]) == (None, "main")
    assert {file["path"] for file in entry["files"]} == {".gitignore", "train.py", "lib/net.py", "forced.log"}
    assert tree(put_back(root)) == {name: told for name, told in tree(root).items() if name != "a.log"}


def test_a_detached_head_has_no_branch(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", FILES)
    git(root, "checkout", "-q", "--detach")

    entry = recorded(root)

    assert (entry["commit"], entry["branch"], entry["files"]) == (head(root), None, [])
    assert_put_back(root)


def test_a_shallow_clone_is_told_and_put_back(tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin", FILES)
    git(origin, "commit", "-q", "--allow-empty", "-m", "second")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{origin}", "lab")
    write(tmp_path / "lab", {"train.py": b"print(2)\n"})

    entry = recorded(tmp_path / "lab")

    assert entry["shallow"] is True
    assert entry["remotes"] == {"origin": f"file://{origin}"}
    again = put_back(tmp_path / "lab")
    assert tree(again) == tree(tmp_path / "lab")
    assert git(again, "rev-list", "--count", "HEAD") == b"1\n"


def test_a_linked_worktree_is_recorded_as_it_is(tmp_path: Path) -> None:
    main = repository(tmp_path / "main", FILES)
    git(main, "worktree", "add", "-q", "-b", "trial", str(tmp_path / "lab"))
    write(tmp_path / "lab", {"train.py": b"print(2)\n", "new.py": b"new\n"})
    before = everything(main / ".git")

    entry = recorded(tmp_path / "lab")

    assert entry["branch"] == "trial"
    assert_put_back(tmp_path / "lab")
    assert everything(main / ".git") == before


def test_a_worktree_inside_of_the_repository_is_named_only(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", FILES)
    git(root, "worktree", "add", "-q", "-b", "trial", str(root / "trial"))

    record = take_code_record(root, tmp_path / "runs", RUN)

    assert record["reason"] == "trial: another working tree of this repository"
    assert [entry["path"] for entry in record["repositories"]] == [str(root)]


def test_a_bare_repository_has_a_reason(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "lab.git")

    record = take_code_record(tmp_path / "lab.git", tmp_path / "runs", RUN)

    assert record["reason"] == f"the git repository at {tmp_path}/lab.git is bare: it does not have files to run"


def test_the_git_folder_itself_has_a_reason(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", FILES)

    record = take_code_record(root / ".git", tmp_path / "runs", RUN)

    assert record["reason"] == "not in the files of a git repository, but in its .git folder"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_repository_of_another_user_has_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = repository(tmp_path / "lab", FILES)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for place in (root, root / ".git"):
        os.chown(place, 12345, 12345)

    record = take_code_record(root, tmp_path / "runs", RUN)

    assert record["reason"] == f"the git repository at {root} is owned by another user"


def conflict(folder: Path) -> Path:
    """A repository with two branches that have changed the same line."""
    root = repository(folder, FILES)
    git(root, "checkout", "-q", "-b", "other")
    write(root, {"train.py": b"print(3)\n", "theirs.py": b"theirs\n"})
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "theirs")
    git(root, "checkout", "-q", "main")
    write(root, {"train.py": b"print(4)\n"})
    git(root, "commit", "-q", "-a", "-m", "ours")
    return root


@pytest.mark.parametrize(
    ("command", "state"),
    [
        (["merge", "other"], "merge"),
        (["rebase", "other"], "rebase"),
        (["cherry-pick", "other"], "cherry-pick"),
        (["revert", "--no-edit", "HEAD~1"], "revert"),
        (["bisect", "start"], "bisect"),
    ],
)
def test_what_a_repository_is_in_the_middle_of_is_told(tmp_path: Path, command: list[str], state: str) -> None:
    root = conflict(tmp_path / "lab")
    if state == "revert":
        write(root, {"train.py": b"print(5)\n"})
        git(root, "commit", "-q", "-a", "-m", "third")
    git(root, *command, check=False)
    before = everything(root / ".git")

    entry = recorded(root)

    assert entry["state"] == [state]
    assert_put_back(root)
    assert everything(root / ".git") == before


def test_a_sha256_repository_is_recorded_and_put_back(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", FILES, "--object-format=sha256")
    write(root, {"train.py": b"print(2)\n", "new.py": b"new\n"})

    entry = recorded(root)

    assert len(entry["commit"]) == 64
    assert_put_back(root)


def test_a_secret_in_a_new_file_of_a_sha256_repository_is_left_out(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", FILES, "--object-format=sha256")
    write(root, {"key.py": b"key = 'AKIAIOSFODNN7ABCDEFG'\n", "new.py": b"new\n"})

    assert {path: how for path, (how, _) in kept_in(recorded(root)).items()} == {
        "key.py": "left out",
        "new.py": "stored",
    }


def test_a_folder_in_the_place_of_a_file_is_put_back(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {**FILES, "d": b"a file that is longer than the one in the folder"})
    (root / "d").unlink()
    write(root, {"d/x": b"x"})

    assert kept_in(recorded(root)) == {"d": ("deleted", None), "d/x": ("stored", None)}
    assert_put_back(root)


@pytest.mark.parametrize("options", [["--cone", "--sparse-index"], ["--no-cone"]], ids=" ".join)
def test_a_sparse_checkout_comes_back_whole(tmp_path: Path, options: list[str]) -> None:
    root = repository(tmp_path / "lab", {**FILES, "data/a.txt": b"a", "data/b/c.txt": b"c"})
    whole = tree(root)
    git(root, "sparse-checkout", "set", *options, "lib")
    write(root, {"lib/net.py": b"changed\n"})

    entry = recorded(root)

    assert kept_in(entry) == {"lib/net.py": ("stored", None)}
    assert "data" not in os.listdir(root)
    assert tree(put_back(root)) == {**whole, "lib/net.py": ("file", b"changed\n")}


def test_a_damaged_index_is_a_reason_and_the_files_that_ran_are_kept(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", FILES)
    write(root, {"train.py": b"print(2)\n"})
    (root / ".git/index").write_bytes(b"DIRC nonsense")

    record = take_code_record(root, tmp_path / "runs", RUN, loaded=[root / "train.py"])

    assert re.fullmatch("git ls-files failed: .*index file smaller than expected", record["reason"])
    assert tree(restore_code(tmp_path / "runs", RUN, tmp_path / "again").root) == tree(root)


def test_a_split_index_is_read(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", FILES)
    git(root, "update-index", "--split-index")
    write(root, {"staged.py": b"s\n", "train.py": b"print(2)\n"})
    git(root, "add", "staged.py")

    entry = recorded(root)

    assert [file["path"] for file in entry["files"]] == ["staged.py", "train.py"]
    assert_put_back(root)


def test_files_that_git_assumes_unchanged_or_skips_are_looked_at(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", FILES)
    git(root, "update-index", "--assume-unchanged", "train.py")
    git(root, "update-index", "--skip-worktree", "lib/net.py")
    write(root, {"train.py": b"print(2)\n", "lib/net.py": b"changed\n"})

    entry = recorded(root)

    assert [file["path"] for file in entry["files"]] == ["lib/net.py", "train.py"]


def test_a_repository_without_an_index_is_compared_with_its_commit(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", FILES)
    (root / ".git/index").unlink()

    assert recorded(root)["files"] == []


@pytest.mark.parametrize("name", ["new\nline 🙂 é", '-quo"te\\s #x:y;z', os.fsdecode(b"\xff\xfe")])
def test_the_name_of_the_folder_does_not_matter(tmp_path: Path, name: str) -> None:
    root = repository(tmp_path / "in" / name, FILES)
    write(root, {"train.py": b"print(2)\n", "new.py": b"new\n"})

    entry = recorded(root)

    assert entry["path"] == str(root)
    assert_put_back(root)


def test_the_variables_of_a_hook_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, elsewhere = repository(tmp_path / "lab", FILES), repository(tmp_path / "elsewhere", {"x": b"x"})
    write(root, {"train.py": b"print(2)\n"})
    monkeypatch.setenv("GIT_DIR", str(elsewhere / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(elsewhere / ".git/index"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(elsewhere / ".git/objects"))
    monkeypatch.setenv("GIT_LITERAL_PATHSPECS", "0")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", "false")

    entry = recorded(root)

    assert [file["path"] for file in entry["files"]] == ["train.py"]
    assert_put_back(root)


def test_a_lock_on_the_index_is_neither_waited_for_nor_removed(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", FILES)
    write(root, {"train.py": b"print(2)\n"})
    (root / ".git/index.lock").write_bytes(b"")

    assert [file["path"] for file in recorded(root)["files"]] == ["train.py"]
    assert (root / ".git/index.lock").exists()


def test_two_records_at_the_same_time_are_both_whole(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", FILES)
    write(root, {"train.py": b"print(2)\n", "new.py": b"new\n"})
    records: list[dict[str, Any]] = []

    def take(number: int) -> None:
        records.append(take_code_record(root, tmp_path / "runs", f"{number:016x}"))

    threads = [threading.Thread(target=take, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [record["reason"] for record in records] == [None] * 6
    assert {record["repositories"][0]["tree"] for record in records} == {records[0]["repositories"][0]["tree"]}
    assert sorted(contents_of(tmp_path / "runs").values()) == [b"new\n", b"print(2)\n"]
    for number in range(6):
        assert restore_code(tmp_path / "runs", f"{number:016x}", tmp_path / str(number)).problems == []


def pointer(content: bytes) -> bytes:
    digest = hashlib.sha256(content).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(content)}\n".encode()


def with_lfs(folder: Path, stored: bytes, working: bytes) -> Path:
    """A repository with a pointer in its commit, and something else in the working tree."""
    root = repository(folder, {**FILES, "w.bin": stored})
    write(root, {".gitattributes": b"*.bin filter=lfs diff=lfs merge=lfs -text\n"})
    git(root, "config", "filter.lfs.clean", "cat > /dev/null; cat lfs-pointer")
    (root / "lfs-pointer").write_bytes(stored)
    git(root, "add", ".gitattributes")
    git(root, "commit", "-q", "-m", "attributes")
    write(root, {"w.bin": working})
    git(root, "add", "w.bin")  # so that times and sizes are those of the content
    (root / "lfs-pointer").unlink()
    return root


def test_a_pointer_that_was_never_fetched_is_nothing_to_record(tmp_path: Path) -> None:
    root = with_lfs(tmp_path / "lab", pointer(b"weights"), pointer(b"weights"))

    assert kept_in(recorded(root)) == {}


def test_a_large_file_that_lfs_keeps_is_named_and_stays_a_pointer(tmp_path: Path) -> None:
    root = with_lfs(tmp_path / "lab", pointer(b"weights" * 1000), b"weights" * 1000)

    entry = recorded(root, limits=Limits(file=5000))

    assert kept_in(entry) == {"w.bin": ("left out", "it is larger than 0.005 MB")}
    restored = restore_code(tmp_path / "runs", RUN, tmp_path / "again")
    assert restored.problems == ["w.bin was left out of the record: it is larger than 0.005 MB"]
    assert (restored.root / "w.bin").read_bytes() == pointer(b"weights" * 1000)


def test_a_small_file_that_lfs_keeps_is_kept(tmp_path: Path) -> None:
    root = with_lfs(tmp_path / "lab", pointer(b"weights"), b"weights")

    assert kept_in(recorded(root)) == {"w.bin": ("stored", None)}
    assert_put_back(root)


def test_what_a_filter_encrypts_is_left_out(tmp_path: Path) -> None:
    root = with_lfs(tmp_path / "lab", b"\0GITCRYPT\0..", b"cleartext...")
    write(root, {".gitattributes": b"*.bin filter=git-crypt\n"})
    git(root, "config", "filter.git-crypt.clean", "true")

    entry = recorded(root)

    assert kept_in(entry) == {
        ".gitattributes": ("stored", None),
        "w.bin": ("left out", "its filter 'git-crypt' keeps it secret in the repository"),
    }


def test_a_new_file_that_a_filter_would_encrypt_is_left_out(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab")
    write(root, {".gitattributes": b"*.bin filter=git-crypt\n", "w.bin": b"cleartext..."})

    for _ in range(2):  # without a commit, and with one
        files = kept_in(recorded(root))
        assert files["w.bin"] == ("left out", "its filter 'git-crypt' keeps it secret in the repository")
        git(root, "commit", "-q", "--allow-empty", "-m", "first")


def test_an_index_that_is_not_a_file_is_not_read(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", FILES)
    write(root, {"train.py": b"print(2)\n"})
    (root / ".git/index").unlink()
    (root / ".git/index").symlink_to("/dev/zero")

    assert [file["path"] for file in recorded(root)["files"]] == ["train.py"]


def test_a_user_without_a_home_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = repository(tmp_path / "lab", FILES)
    write(root, {"train.py": b"print(2)\n"})
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as where the user has no name

    assert [file["path"] for file in recorded(root)["files"]] == ["train.py"]
