"""Code is put back into a new folder, or it is said what is missing."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.runs.code.repositories import RUN, git, repository, tree, write
from tests.runs.code.test_submodules import with_submodule
from train_manager.runs.code.restore import restore_code
from train_manager.runs.code.take import take_code_record
from train_manager.telling.errors import InputError


def recorded(folder: Path) -> Path:
    """A repository with a changed and a new file, and its record in ``runs``."""
    root = repository(folder / "lab", {"train.py": b"print(1)\n", "old.py": b"old\n"})
    write(root, {"train.py": b"print(2)\n", "lib/new.py": b"new\n"})
    (root / "old.py").unlink()
    take_code_record(root, folder / "runs", RUN)
    return root


def change_record(folder: Path, **changes: Any) -> None:
    """Write something else into the record."""
    path = folder / "runs/code" / f"{RUN}.json"
    record = json.loads(path.read_bytes())
    entry = record["repositories"][0]
    for name, value in changes.items():
        (record if name in record else entry)[name] = value
    path.write_text(json.dumps(record))


def stored(folder: Path, content: bytes) -> Path:
    return folder / "runs/code/files" / hashlib.sha256(content).hexdigest()


def restored_problems(folder: Path) -> list[str]:
    return restore_code(folder / "runs", RUN, folder / "again").problems


def test_code_is_put_back_under_the_name_of_its_folder(tmp_path: Path) -> None:
    root = recorded(tmp_path)

    restored = restore_code(tmp_path / "runs", RUN, tmp_path / "again")

    assert (restored.root, restored.problems) == (tmp_path / "again/lab", [])
    assert restored.commit == git(root, "rev-parse", "HEAD").decode().strip()
    assert tree(restored.root) == tree(root)


def test_what_is_put_back_is_a_repository_on_the_same_branch(tmp_path: Path) -> None:
    root = recorded(tmp_path)
    git(root, "remote", "add", "origin", "https://example.com/lab.git")
    take_code_record(root, tmp_path / "runs", RUN)

    again = restore_code(tmp_path / "runs", RUN, tmp_path / "again").root

    assert git(again, "status", "--short", "--branch").decode().splitlines() == [
        "## main",
        " D old.py",
        " M train.py",
        "?? lib/",
    ]
    assert git(again, "remote", "get-url", "origin") == b"https://example.com/lab.git\n"


def test_a_record_of_what_was_put_back_is_the_same(tmp_path: Path) -> None:
    root = recorded(tmp_path)
    again = restore_code(tmp_path / "runs", RUN, tmp_path / "again").root

    (first,) = take_code_record(root, tmp_path / "runs", RUN)["repositories"]
    (second,) = take_code_record(again, tmp_path / "more", RUN)["repositories"]

    assert {**second, "path": ""} == {**first, "path": ""}


def test_another_clone_can_have_the_commit(tmp_path: Path) -> None:
    root = recorded(tmp_path)
    git(tmp_path, "clone", "-q", str(root), "clone")
    root.rename(tmp_path / "gone")

    restored = restore_code(tmp_path / "runs", RUN, tmp_path / "again", repository=tmp_path / "clone")

    assert tree(restored.root) == tree(tmp_path / "gone")


def test_a_commit_that_is_not_there_is_an_error_with_its_cure(tmp_path: Path) -> None:
    root = recorded(tmp_path)
    commit = git(root, "rev-parse", "HEAD").decode().strip()
    other = repository(tmp_path / "other", {"a": b"a"})

    with pytest.raises(InputError) as caught:
        restore_code(tmp_path / "runs", RUN, tmp_path / "again", repository=other)

    assert str(caught.value) == (
        f"the commit {commit} of the record is not in {other}\n  name a clone that has it as `repository`"
    )


def test_a_partial_clone_that_lacks_files_has_a_cure(tmp_path: Path) -> None:
    root = recorded(tmp_path)
    git(root, "config", "uploadpack.allowFilter", "true")
    git(root, "rm", "-q", "-r", "--cached", ".")
    git(root, "commit", "-q", "-m", "second")  # whose checkout fetches none of the files
    git(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{root}", "clone")
    clone = tmp_path / "clone"

    with pytest.raises(InputError) as caught:
        restore_code(tmp_path / "runs", RUN, tmp_path / "again", repository=clone)

    what, cure = str(caught.value).split("\n")
    assert what.startswith(f"{clone} is a partial clone, and lacks files of the commit ")
    assert cure == f"  fetch them: git -C {clone} fetch --refetch --no-filter origin"
    subprocess.run(cure.removeprefix("  fetch them: "), shell=True, check=True, capture_output=True)
    assert tree(restore_code(tmp_path / "runs", RUN, tmp_path / "more", repository=clone).root) == tree(root)


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_clone_without_its_submodule_has_a_cure(tmp_path: Path, is_folder: bool) -> None:
    root = with_submodule(tmp_path)
    take_code_record(root, tmp_path / "runs", RUN)
    git(tmp_path, "clone", "-q", str(root), "clone")
    clone = tmp_path / "clone"
    if not is_folder:
        (clone / "vendor/lib").rmdir()

    with pytest.raises(InputError) as caught:
        restore_code(tmp_path / "runs", RUN, tmp_path / "again", repository=clone)

    assert str(caught.value) == (
        f"the submodule vendor/lib of the record is not checked out in {clone}\n"
        f"  check it out: git -C {clone} submodule update --init --recursive"
    )


def test_a_folder_that_is_in_use_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path)

    with pytest.raises(InputError) as caught:
        restore_code(tmp_path / "runs", RUN, tmp_path / "lab")

    assert str(caught.value) == f"{tmp_path}/lab is not empty\n  name a new folder"


def test_a_run_without_a_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        restore_code(tmp_path, RUN, tmp_path / "again")

    assert str(caught.value) == f"{tmp_path}/code/{RUN}.json is not there: the run has not recorded its code"


def test_a_record_without_code_is_refused_with_its_reason(tmp_path: Path) -> None:
    take_code_record(tmp_path, tmp_path / "runs", RUN)

    with pytest.raises(InputError) as caught:
        restore_code(tmp_path / "runs", RUN, tmp_path / "again")

    assert str(caught.value) == f"the code of run {RUN} was not recorded: not in a git repository"


def test_a_record_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path)
    change_record(tmp_path, version=3)

    with pytest.raises(InputError) as caught:
        restore_code(tmp_path / "runs", RUN, tmp_path / "again")

    assert str(caught.value) == (
        f"{tmp_path}/runs/code/{RUN}.json has version 3 of a code record, and this is version 2"
        "\n  read it with a newer Train Manager"
    )


@pytest.mark.parametrize("text", ["[]", '{"schema": "other"}'])
def test_a_file_that_is_not_a_record_is_refused(tmp_path: Path, text: str) -> None:
    recorded(tmp_path)
    (tmp_path / "runs/code" / f"{RUN}.json").write_text(text)

    with pytest.raises(InputError, match="is not a code record"):
        restore_code(tmp_path / "runs", RUN, tmp_path / "again")


DAMAGED = "is not put back: its content in the record is damaged, or not there"


def test_a_content_that_was_changed_is_not_put_back(tmp_path: Path) -> None:
    recorded(tmp_path)
    stored(tmp_path, b"print(2)\n").write_bytes(b"print(3)\n")

    assert restored_problems(tmp_path) == [f"train.py {DAMAGED}", "train.py is not what it was"]


def test_a_store_that_is_gone_is_told(tmp_path: Path) -> None:
    recorded(tmp_path)
    (tmp_path / "runs/code/files").rename(tmp_path / "elsewhere")

    assert restored_problems(tmp_path) == [
        f"lib/new.py {DAMAGED}",
        f"train.py {DAMAGED}",
        "lib/new.py is not what it was",
        "train.py is not what it was",
    ]


@pytest.mark.parametrize("name", ["../../../secret", "/etc/hostname", "..", ".", "", "secret"])
def test_a_content_elsewhere_is_not_read(tmp_path: Path, name: str) -> None:
    recorded(tmp_path)
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "runs/code/files/secret").symlink_to(tmp_path / "secret")
    entry = {"path": "taken", "how": "stored", "status": "new", "size": 6, "sha256": name, "mode": "100644"}
    change_record(tmp_path, files=[entry])

    assert restored_problems(tmp_path) == [f"taken {DAMAGED}", "taken is not what it was"]


def test_a_store_behind_a_link_is_not_read(tmp_path: Path) -> None:
    recorded(tmp_path)
    (tmp_path / "runs/code/files").rename(tmp_path / "elsewhere")
    (tmp_path / "runs/code/files").symlink_to(tmp_path / "elsewhere")

    assert f"train.py {DAMAGED}" in restored_problems(tmp_path)


def test_deletions_that_lead_out_delete_nothing(tmp_path: Path) -> None:
    recorded(tmp_path)
    (tmp_path / "precious").write_bytes(b"x")
    deleted = {"how": "deleted", "status": "changed", "size": 0, "sha256": "", "mode": "100644"}
    change_record(tmp_path, files=[{"path": "../../precious", **deleted}])

    restored_problems(tmp_path)

    assert (tmp_path / "precious").exists()


def test_a_submodule_that_leads_out_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path)
    change_record(tmp_path, inside="../../out")

    with pytest.raises(InputError, match="its name leads out of the folder"):
        restore_code(tmp_path / "runs", RUN, tmp_path / "again")


def test_a_submodule_is_not_put_through_a_link(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"a.py": b"a"})
    (root / "vendor").symlink_to(tmp_path)
    repository(tmp_path / "inner", {"b.py": b"b"})
    take_code_record(root, tmp_path / "runs", RUN, others={"inner": tmp_path / "inner"})
    path = tmp_path / "runs/code" / f"{RUN}.json"
    record = json.loads(path.read_bytes())
    record["repositories"][1].update(inside="vendor/out")
    del record["repositories"][1]["package"]
    path.write_text(json.dumps(record))

    assert restored_problems(tmp_path) == ["vendor/out is not put back: a link is in its place"]
    assert not (tmp_path / "out").exists()


def test_no_hook_or_filter_of_the_repository_runs(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"a.txt": b"a", ".gitattributes": b"* filter=x\n"})
    canary = tmp_path / "canary"
    git(root, "config", "filter.x.smudge", f"touch {canary}")
    hook = root / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {canary}\n")
    hook.chmod(0o755)
    take_code_record(root, tmp_path / "runs", RUN)

    assert restored_problems(tmp_path) == []
    assert not canary.exists()


def test_the_reason_of_a_record_that_is_not_whole_is_a_problem(tmp_path: Path) -> None:
    recorded(tmp_path)
    change_record(tmp_path, reason="git did not answer within 10 s")

    assert restored_problems(tmp_path) == ["not all code was recorded: git did not answer within 10 s"]


DAMAGES = [
    ("commit", "HEAD", "a commit"),
    ("path", "/somewhere/..", "a path"),
    ("branch", 5, "a name"),
    ("remotes", {"origin": None}, "an object of names"),
    ("diff", [], "a name"),
    ("not_checked_out", {}, "size and SHA-256"),
    ("lfs", "x", "a list of names"),
    ("files", None, "a list"),
    ("inside", "a\0b", "a name"),
]


@pytest.mark.parametrize(("place", "value", "word"), DAMAGES)
def test_a_record_without_what_belongs_there_is_refused(tmp_path: Path, place: str, value: object, word: str) -> None:
    recorded(tmp_path)
    change_record(tmp_path, **{place: value})

    with pytest.raises(InputError) as caught:
        restore_code(tmp_path / "runs", RUN, tmp_path / "again")

    shown = "nothing" if value is None else repr(value)
    assert str(caught.value) == (
        f"{tmp_path}/runs/code/{RUN}.json is damaged: it has {shown} at repositories[0].{place}, where {word} belongs"
    )
    assert not (tmp_path / "again").exists()


def test_an_entry_without_what_belongs_there_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path)
    change_record(tmp_path, files=[{"path": "a", "how": "left out", "sha256": "", "size": 0}])

    with pytest.raises(InputError, match=r"it has nothing at repositories\[0\].files\[0\].mode, where a name"):
        restore_code(tmp_path / "runs", RUN, tmp_path / "again")


@pytest.mark.parametrize("name", ["/etc/hostname", "../../lab/train.py", "link/train.py"])
def test_a_file_elsewhere_is_not_taken_for_a_restored_one(tmp_path: Path, name: str) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1\n"})
    (root / "link").symlink_to(".")
    take_code_record(root, tmp_path / "runs", RUN)
    content = b"1\n" if "train" in name else Path(name).read_bytes() if Path(name).exists() else b""
    digest = hashlib.sha256(content).hexdigest()
    entry = {"path": name, "how": "stored", "status": "changed", "size": 2, "sha256": digest, "mode": "100644"}
    change_record(tmp_path, files=[entry])

    assert f"{name} is not what it was" in restored_problems(tmp_path)


def test_a_file_that_a_link_to_its_folder_hides_is_deleted(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"old/a.py": b"1\n"})
    (root / "old").rename(root / "new")
    (root / "old").symlink_to("new")
    take_code_record(root, tmp_path / "runs", RUN)

    assert restored_problems(tmp_path) == []
    assert tree(tmp_path / "again" / "lab") == tree(root)


def test_what_lfs_keeps_is_not_put_elsewhere(tmp_path: Path) -> None:
    content = b"a model"
    digest = hashlib.sha256(content).hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize 7\n".encode()
    root = repository(tmp_path / "lab", {"train.py": b"1\n"})
    write(root, {f".git/lfs/objects/{digest[:2]}/{digest[2:4]}/{digest}": content})
    take_code_record(root, tmp_path / "runs", RUN)
    (tmp_path / "precious").write_bytes(pointer)
    change_record(tmp_path, lfs=["../../precious"])

    assert restored_problems(tmp_path)[0].startswith("../../precious is only a pointer")
    assert (tmp_path / "precious").read_bytes() == pointer
