"""Code is put back into a new folder, or it is said what is missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.runs.code.repositories import RUN, git, kept_in, repository, tree, write
from tests.runs.code.test_submodules import with_submodule
from tests.support.refusals import refusal
from train_manager.runs.code.differences import code_differences
from train_manager.runs.code.restore import restore_code
from train_manager.runs.code.store import blob_of
from train_manager.runs.code.take import take_code_record
from train_manager.telling.errors import CheckpointError, InputError


def recorded(folder: Path) -> Path:
    """A repository with a changed and a new file, and its record in ``runs``."""
    root = repository(folder / "lab", {"train.py": b"print(1)\n", "old.py": b"old\n", "same.py": b"same\n"})
    write(root, {"train.py": b"print(2)\n", "lib/new.py": b"new\n"})
    (root / "old.py").unlink()
    take_code_record(root, folder / "runs", RUN)
    return root


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a repository and its record, which no test changes."""
    folder = tmp_path_factory.mktemp("original")
    recorded(folder)
    return folder


@pytest.fixture
def copied(original: Path, tmp_path: Path) -> Path:
    """The folder of the test, with a copy of that record in ``runs``."""
    shutil.copytree(original / "runs", tmp_path / "runs")
    return tmp_path


def change_record(folder: Path, **changes: Any) -> None:
    """Write something else into the record."""
    path = folder / "runs/code" / f"{RUN}.json"
    record = json.loads(path.read_bytes())
    entry = record["repositories"][0]
    for name, value in changes.items():
        (record if name in record else entry)[name] = value
    path.write_text(json.dumps(record))


def restored_problems(folder: Path) -> list[str]:
    return restore_code(folder / "runs", RUN, folder / "again").problems


def test_what_is_put_back_is_a_repository_on_the_same_branch(tmp_path: Path) -> None:
    root = recorded(tmp_path)
    git(root, "remote", "add", "origin", "https://example.com/lab.git")
    take_code_record(root, tmp_path / "runs", RUN)

    restored = restore_code(tmp_path / "runs", RUN, tmp_path / "again")
    again = restored.root

    assert (again, restored.problems) == (tmp_path / "again/lab", [])
    assert restored.commit == git(root, "rev-parse", "HEAD").decode().strip()
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


def test_a_commit_that_is_not_there_is_an_error_with_its_cure(original: Path, copied: Path) -> None:
    commit = git(original / "lab", "rev-parse", "HEAD").decode().strip()
    other = repository(copied / "other", {"a": b"a"})

    assert refusal(lambda: restore_code(copied / "runs", RUN, copied / "again", repository=other)) == (
        f"the commit {commit} of the record is not in {other}\n"
        "  name a clone that has it as `repository`, or take out the changed files: changed_only=True"
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


def test_a_sparse_checkout_of_a_partial_clone_has_a_cure(tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin", {"train.py": b"print(1)\n", "data/a.txt": b"a\n"})
    git(origin, "config", "uploadpack.allowFilter", "true")
    root = tmp_path / "lab"
    git(tmp_path, "clone", "-q", "--filter=blob:none", "--sparse", f"file://{origin}", "lab")
    write(root, {"train.py": b"print(2)\n"})
    record = take_code_record(root, tmp_path / "runs", RUN)

    assert (record["reason"], kept_in(record["repositories"][0])) == (None, {"train.py": ("stored", None)})
    assert (
        refusal(lambda: restore_code(tmp_path / "runs", RUN, tmp_path / "again")).splitlines()[1]
        == f"  fetch them: git -C {root} fetch --refetch --no-filter origin"
    )


def test_a_clone_without_its_submodule_has_a_cure(tmp_path: Path) -> None:
    root = with_submodule(tmp_path)
    take_code_record(root, tmp_path / "runs", RUN)
    git(tmp_path, "clone", "-q", str(root), "clone")
    clone = tmp_path / "clone"

    assert refusal(lambda: restore_code(tmp_path / "runs", RUN, tmp_path / "again", repository=clone)) == (
        f"the submodule vendor/lib of the record is not checked out in {clone}\n"
        f"  check it out: git -C {clone} submodule update --init --recursive"
    )


def test_a_folder_that_is_in_use_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path)

    assert (
        refusal(lambda: restore_code(tmp_path / "runs", RUN, tmp_path / "lab"))
        == f"{tmp_path}/lab is not empty\n  name a new folder"
    )


def test_a_run_without_a_record_is_refused(tmp_path: Path) -> None:
    assert (
        refusal(lambda: restore_code(tmp_path, RUN, tmp_path / "again"))
        == f"{tmp_path}/code/{RUN}.json is not there: the run has not recorded its code"
    )


def test_a_record_without_code_is_refused_with_its_reason(tmp_path: Path) -> None:
    take_code_record(tmp_path, tmp_path / "runs", RUN)

    assert (
        refusal(lambda: restore_code(tmp_path / "runs", RUN, tmp_path / "again"))
        == f"the code of run {RUN} was not recorded: not in a git repository"
    )


@pytest.mark.parametrize(
    ("version", "reader"), [(4, "a newer Train Manager"), (2, "the Train Manager that has written it")]
)
def test_a_record_of_another_version_is_refused(copied: Path, version: int, reader: str) -> None:
    change_record(copied, version=version)

    assert refusal(lambda: restore_code(copied / "runs", RUN, copied / "again")) == (
        f"{copied}/runs/code/{RUN}.json has version {version} of a code record, and this is version 3"
        f"\n  read it with {reader}"
    )


@pytest.mark.parametrize("text", ["[]", '{"schema": "other"}'])
def test_a_file_that_is_not_a_record_is_refused(copied: Path, text: str) -> None:
    (copied / "runs/code" / f"{RUN}.json").write_text(text)

    with pytest.raises(InputError, match="is not a code record"):
        restore_code(copied / "runs", RUN, copied / "again")


DAMAGED = "is not put back: its content in the record is damaged, or not there"


def objects_of(folder: Path) -> Path:
    """The objects of the store, each in a file, so that a test can change one."""
    objects = folder / "runs/code/git/objects"
    for pack in [*objects.glob("pack/*.pack")]:
        content = pack.read_bytes()
        for path in objects.glob(f"pack/{pack.stem}.*"):
            path.unlink()
        git(objects.parent, "unpack-objects", "-q", feed=content)
    return objects


@pytest.mark.parametrize("other", [b"print(3)\n", None])
def test_a_content_that_was_changed_or_is_gone_is_not_put_back(copied: Path, other: bytes | None) -> None:
    name = blob_of(b"print(2)\n")
    place = objects_of(copied) / name[:2] / name[2:]
    place.unlink()
    if other is not None:
        place.write_bytes(zlib.compress(b"blob %d\0" % len(other) + other))

    restored = restore_code(copied / "runs", RUN, copied / "again")

    assert restored.problems == [f"train.py {DAMAGED}"]
    assert sorted(tree(restored.root)) == ["lib/new.py", "same.py"]


def test_a_store_that_is_gone_is_an_error(copied: Path) -> None:
    store = copied / "runs/code/git"
    store.rename(copied / "elsewhere")

    with pytest.raises(CheckpointError) as caught:
        restore_code(copied / "runs", RUN, copied / "again")

    name = json.loads((copied / "runs/code" / f"{RUN}.json").read_bytes())["repositories"][0]["tree"]
    why = f"unable to normalize alternate object path: {store}/objects"
    assert str(caught.value) == f"the tree {name} of the record is damaged, or not in {store}: {why}"


@pytest.mark.parametrize("name", [b".git", b"..", b".GIT"])
def test_a_tree_whose_names_lead_elsewhere_is_not_put_back(copied: Path, name: bytes) -> None:
    store = copied / "runs/code/git"
    blob = git(store, "hash-object", "-w", "--stdin", feed=b"x").strip()
    inner = git(store, "mktree", feed=b"100644 blob " + blob + b"\thooks\n").strip()
    outer = git(store, "mktree", feed=b"040000 tree " + inner + b"\t" + name + b"\n").strip().decode()
    change_record(copied, tree=outer, files=[])

    with pytest.raises(CheckpointError, match=f"the tree {outer} of the record is damaged"):
        restore_code(copied / "runs", RUN, copied / "again")

    assert not list((copied / "again").rglob("hooks"))


@pytest.mark.parametrize("part", ["", "objects", "objects/pack"])
def test_a_store_with_a_link_is_not_read(copied: Path, part: str) -> None:
    store = copied / "runs/code/git"
    (store / part).rename(copied / "elsewhere")
    (store / part).symlink_to(copied / "elsewhere")

    assert (
        refusal(lambda: restore_code(copied / "runs", RUN, copied / "again"), CheckpointError)
        == f"{store} has a link, {store / part}, and nothing is read there"
    )


def test_a_store_that_names_other_objects_is_not_read(copied: Path) -> None:
    store = copied / "runs/code/git"
    (store / "objects/info/alternates").write_text("/somewhere\n")

    assert (
        refusal(lambda: restore_code(copied / "runs", RUN, copied / "again"), CheckpointError)
        == f"{store} names other folders of objects, in objects/info/alternates, and nothing is read there"
    )


def test_no_program_that_a_store_names_runs(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"a.txt": b"a"})
    runs = ["1" * 16, "2" * 16]
    records = []
    for run in runs:
        write(root, {"a.txt": run.encode(), ".gitattributes": b"* filter=x diff=x\n"})
        records.append((tmp_path / "runs", take_code_record(root, tmp_path / "runs", run)))
    store = tmp_path / "runs/code/git"
    for name in ("core.fsmonitor", "filter.x.smudge", "filter.x.process", "diff.x.textconv", "diff.external"):
        git(store, "config", name, f"touch {tmp_path}/canary; cat")
    (store / "info").mkdir(exist_ok=True)
    (store / "info/attributes").write_bytes(b"* filter=x diff=x\n")

    assert restore_code(tmp_path / "runs", runs[0], tmp_path / "again").problems == []
    assert [file.path for file in code_differences(*records).files] == ["a.txt"]
    take_code_record(root, tmp_path / "runs", RUN)
    assert not (tmp_path / "canary").exists()


def test_a_submodule_that_leads_out_is_refused(copied: Path) -> None:
    change_record(copied, inside="../../out")

    with pytest.raises(InputError, match="its name leads out of the folder"):
        restore_code(copied / "runs", RUN, copied / "again")


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


def test_the_reason_of_a_record_that_is_not_whole_is_a_problem(copied: Path) -> None:
    change_record(copied, reason="git did not answer within 10 s")

    assert restored_problems(copied) == ["not all code was recorded: git did not answer within 10 s"]


FILE = {"path": "a", "status": "added", "mode": "100644", "blob": "0" * 40, "size": 0}
DAMAGES: list[tuple[str, object, str]] = [
    ("repositories", 5, "repositories"),
    ("commit", "HEAD", "commit"),
    ("tree", "--exec=x", "tree"),
    ("path", "/somewhere/..", "path"),
    ("path", None, "path"),
    ("branch", 5, "branch"),
    ("remotes", {"origin": None}, "remotes"),
    ("format", "md5", "format"),
    ("files", None, "files"),
    ("files", ["a"], "path"),
    ("files", [{**FILE, "blob": "HEAD"}], "blob"),
    ("files", [{**FILE, "size": "x"}], "size"),
    ("left_out", [{"path": "a"}], "why"),
    ("inside", "a\0b", "inside"),
]


@pytest.mark.parametrize(("place", "value", "key"), DAMAGES)
def test_a_record_without_what_belongs_there_is_refused(copied: Path, place: str, value: object, key: str) -> None:
    change_record(copied, **{place: value})

    assert (
        refusal(lambda: restore_code(copied / "runs", RUN, copied / "again"), CheckpointError)
        == f"{copied}/runs/code/{RUN}.json is damaged: it has no usable {key!r}"
    )
    assert not (copied / "again").exists()


@pytest.mark.parametrize("name", ["/etc/hostname", "../../out", "link/train.py", ".git/config"])
def test_a_plain_copy_is_not_put_elsewhere(tmp_path: Path, name: str) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1\n"})
    (root / "link").symlink_to(tmp_path)
    git(root, "add", "link")
    git(root, "commit", "-q", "-m", "link")
    (root / ".git/index").write_bytes(b"damaged")
    take_code_record(root, tmp_path / "runs", RUN, loaded=[root / "train.py"])
    before = sorted(os.listdir(tmp_path))
    change_record(tmp_path, files=[{**FILE, "path": name, "blob": blob_of(b"1\n"), "size": 2}])

    problems = restored_problems(tmp_path)

    assert any(problem.startswith(f"{name} is not put back: ") for problem in problems)
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "again"])


def test_a_file_that_a_link_to_its_folder_hides_is_deleted(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"old/a.py": b"1\n"})
    (root / "old").rename(root / "new")
    (root / "old").symlink_to("new")
    take_code_record(root, tmp_path / "runs", RUN)

    assert restored_problems(tmp_path) == []
    assert tree(tmp_path / "again" / "lab") == tree(root)


def test_a_staged_file_that_a_link_to_its_folder_hides_is_not_put_in_place_of_the_link(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"1\n"})
    write(root, {"old/a.py": b"print(1)\n"})  # longer than the link, so that it would be entered after it
    git(root, "add", "old")
    (root / "old").rename(root / "new")
    (root / "old").symlink_to("new")
    take_code_record(root, tmp_path / "runs", RUN)

    assert restored_problems(tmp_path) == []
    assert tree(tmp_path / "again" / "lab") == tree(root)


def test_changed_files_are_taken_out_without_the_commit(tmp_path: Path) -> None:
    recorded(tmp_path).rename(tmp_path / "gone")

    restored = restore_code(tmp_path / "runs", RUN, tmp_path / "again", changed_only=True)

    assert restored.problems == []
    assert tree(restored.root) == {"train.py": ("file", b"print(2)\n"), "lib/new.py": ("file", b"new\n")}


def collect(*folders: Path) -> None:
    """Let git delete all that no branch leads to."""
    for folder in folders:
        git(folder, "reflog", "expire", "--expire=now", "--all")
        git(folder, "gc", "-q", "--prune=now")


def test_what_was_staged_amended_and_collected_is_still_in_the_store(tmp_path: Path) -> None:
    root = repository(tmp_path / "lab", {"train.py": b"print(1)\n", "same.py": b"same\n"})
    git(tmp_path, "clone", "-q", "--no-local", str(root), "clone")
    commit = git(root, "rev-parse", "HEAD").decode().strip()
    write(root, {"train.py": b"print(2)\n", "new.py": b"new\n"})
    git(root, "add", "-A")
    take_code_record(root, tmp_path / "runs", RUN)
    was = tree(root)
    write(root, {"train.py": b"print(3)\n"})
    (root / "new.py").unlink()
    git(root, "commit", "-q", "-a", "--amend", "-m", "other")
    collect(root, tmp_path / "runs/code/git")

    with pytest.raises(InputError, match=f"the commit {commit} of the record is not in"):
        restore_code(tmp_path / "runs", RUN, tmp_path / "again")
    changed = restore_code(tmp_path / "runs", RUN, tmp_path / "changed", changed_only=True)
    assert tree(changed.root) == {name: told for name, told in was.items() if name != "same.py"}
    whole = restore_code(tmp_path / "runs", RUN, tmp_path / "whole", repository=tmp_path / "clone")
    assert (tree(whole.root), whole.problems) == (was, [])


def test_a_store_that_was_copied_alone_has_all_changed_files_and_all_names(tmp_path: Path) -> None:
    root = recorded(tmp_path)
    was = tree(root)
    git(tmp_path, "clone", "-q", "--no-local", str(root), "clone")
    shutil.copytree(tmp_path / "runs/code", tmp_path / "copied/code")
    shutil.rmtree(root)
    shutil.rmtree(tmp_path / "runs")

    restored = restore_code(tmp_path / "copied", RUN, tmp_path / "again", repository=tmp_path / "clone")

    assert (tree(restored.root), restored.problems) == (was, [])
    store, ref = tmp_path / "copied/code/git", f"refs/runs/{RUN}"
    assert git(store, "ls-tree", "-r", "--name-only", ref).split() == [b"lib/new.py", b"same.py", b"train.py"]
    assert git(store, "show", f"{ref}:train.py") == b"print(2)\n"
