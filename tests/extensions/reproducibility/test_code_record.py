from __future__ import annotations

import json
import os
import shutil
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.runs.code.repositories import contents_of, git, kept_in, repository, tree
from tests.support.eventually import eventually
from tests.support.fork_server import Child, ForkServer
from tests.support.other_processes import children
from tests.support.programs import script
from train_manager import Extension, InputError, TrainManager
from train_manager.extensions import CodeRecord
from train_manager.extensions.reproducibility import code_record
from train_manager.runs.code.restore import restore_code
from train_manager.testing import tiny_manager

TOLD = "the code of this run is not recorded in full: "
HANGING = "#!/bin/sh\ntrap '' TERM INT HUP\nwhile :; do sleep 60; done\n"
TRAIN = """
import own
from train_manager.extensions import CodeRecord
from train_manager.testing import tiny_manager
tm = tiny_manager(CodeRecord(seconds={seconds}), train_dir={train_dir!r})
"""
WITHOUT_GITPYTHON = "import sys; sys.modules['git'] = None\n"


@pytest.fixture(autouse=True)
def nothing_was_warned_of_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_record, "_warned", set())


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a changed file and a new one."""
    made = repository(tmp_path_factory.mktemp("made") / "code", {"train.py": b"lr = 0.1\n", ".gitignore": b"runs\n"})
    (made / "train.py").write_text("lr = 0.2\n")
    (made / "new.py").write_text("x = 1\n")
    return made


@pytest.fixture
def code(made_once: Path, tmp_path: Path) -> Path:
    """A copy of this repository, which a test may change."""
    return Path(shutil.copytree(made_once, tmp_path / "code", ignore=shutil.ignore_patterns("hooks")))


def manager(code: Path, train_dir: Path, *others: Extension, epochs: int = 1, **options: Any) -> TrainManager:
    return tiny_manager(CodeRecord(folder=code, **options), *others, train_dir=train_dir, epochs=epochs)


def record_of(tm: TrainManager) -> dict[str, Any]:
    assert tm.train_dir is not None
    found: dict[str, Any] = json.loads((tm.train_dir / "code" / f"{tm.run_id}.json").read_text())
    return found


def files_of(tm: TrainManager) -> list[tuple[str, str]]:
    return [(path, how) for path, (how, _) in kept_in(record_of(tm)["repositories"][0]).items()]


# ---- what it records, and when ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_background", [True, False])
def test_the_code_of_a_training_is_there_when_its_run_has_ended(
    code: Path, tmp_path: Path, in_background: bool
) -> None:
    tm = manager(code, tmp_path / "runs", in_background=in_background)
    tm.train()

    assert record_of(tm)["reason"] is None
    assert files_of(tm) == [("new.py", "stored"), ("train.py", "stored")]
    assert tree(restore_code(tmp_path / "runs", tm.run_id, tmp_path / "again").root) == tree(code)


def test_it_is_taken_once_for_all_runs_of_a_training(code: Path, tmp_path: Path) -> None:
    tm = manager(code, tmp_path / "runs", epochs=2)
    tm.train_epochs(1)
    before = record_of(tm)
    (code / "train.py").write_text("lr = 0.3\n")  # too late: the first run has imported it
    tm.train_epochs(1)
    tm.eval()

    assert record_of(tm) == before


def test_another_training_has_a_record_of_its_own_and_the_same_code_is_stored_once(code: Path, tmp_path: Path) -> None:
    trainings = [manager(code, tmp_path / "runs") for _ in range(2)]
    for tm in trainings:
        tm.train()

    assert [files_of(tm) for tm in trainings] == [[("new.py", "stored"), ("train.py", "stored")]] * 2
    assert sorted(contents_of(tmp_path / "runs").values()) == [b"lr = 0.2\n", b"x = 1\n"]


def test_an_extension_that_serves_a_second_training_records_that_too(code: Path, tmp_path: Path) -> None:
    extension = CodeRecord(folder=code)
    trainings = [tiny_manager(extension, train_dir=tmp_path / name) for name in ("one", "two")]
    for tm in trainings:
        tm.train()

    assert [record_of(tm)["run"] for tm in trainings] == [tm.run_id for tm in trainings]


def test_a_training_that_fails_has_a_record(code: Path, tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("broken")

    tm = manager(code, tmp_path / "runs", Extension.of(post_train_step_batch=fail))
    with pytest.raises(RuntimeError, match="broken"):
        tm.train()

    assert files_of(tm) == [("new.py", "stored"), ("train.py", "stored")]


def test_a_train_dir_within_the_repository_is_not_recorded(code: Path) -> None:
    trainings = [manager(code, code / "results") for _ in range(2)]  # which nothing ignores
    for tm in trainings:
        tm.train()

    assert [how for path, how in files_of(trainings[1]) if path.startswith("results")] == ["left out"]


def test_another_repository_is_recorded_if_it_is_named(code: Path, tmp_path: Path) -> None:
    other = repository(tmp_path / "other", {"library.py": b"x = 1\n"})
    (other / "library.py").write_text("x = 2\n")
    tm = manager(code, tmp_path / "runs", others=[other])
    tm.train()

    assert [entry["path"] for entry in record_of(tm)["repositories"]] == [str(code), str(other)]


def test_the_repository_of_an_editable_package_is_recorded_by_the_name_of_the_package(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = repository(tmp_path / "other", {"library.py": b"x = 1\n"})
    info = tmp_path / "site" / "my_library-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: my_library\nVersion: 1\n")
    (info / "direct_url.json").write_text(json.dumps({"url": f"file://{other}", "dir_info": {"editable": True}}))
    monkeypatch.syspath_prepend(tmp_path / "site")
    tm = manager(code, tmp_path / "runs", others="My.Library")
    tm.train()

    assert [entry.get("package") for entry in record_of(tm)["repositories"]] == [None, "My.Library"]


def test_files_that_are_too_large_are_told_once_with_the_largest_names(code: Path, tmp_path: Path) -> None:
    for number in range(8):
        with (code / f"{number}.bin").open("wb") as file:
            file.truncate(1_000_000 + 1_000_000 * number)  # without blocks on the disk
    trainings = [manager(code, tmp_path / name, max_file_mb=0.5) for name in ("one", "two")]
    with pytest.warns(UserWarning, match=TOLD) as warned:
        trainings[0].train()
    trainings[1].train()  # warnings are errors here

    assert [str(one.message) for one in warned] == [
        f"{TOLD}8 files of 36 MB were left out, as too large: 7.bin (8 MB), 6.bin (7 MB), 5.bin (6 MB), 4.bin (5 MB), "
        "3.bin (4 MB) and 3 more; name them in .gitignore, or raise the limits max_file_mb and max_total_mb of "
        "CodeRecord"
    ]


def test_a_commit_that_no_remote_has_is_told_before_the_first_batch(code: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(code), "origin.git")
    git(code, "remote", "add", "origin", str(tmp_path / "origin.git"))
    git(code, "fetch", "-q", "origin")
    pushed = manager(code, tmp_path / "pushed")
    pushed.train()  # warnings are errors here
    git(code, "commit", "-q", "-a", "-m", "second")
    commit = git(code, "rev-parse", "HEAD").decode()[:10]
    tm = manager(code, tmp_path / "runs", in_background=False)
    with pytest.warns(UserWarning, match="^no remote") as warned:
        tm.open()
    tm.close()

    assert [str(one.message) for one in warned] == [
        f"no remote of {code} has its commit {commit}, without which nobody else can run this again: push it"
    ]
    assert [record_of(one)["repositories"][0]["pushed"] for one in (pushed, tm)] == [True, False]


def test_the_recording_thread_tells_it_of_the_line_that_trains(code: Path, tmp_path: Path) -> None:
    git(code, "remote", "add", "origin", "https://example.com/never-fetched.git")
    with pytest.warns(UserWarning, match=r"^no remote of ") as warned:
        manager(code, tmp_path / "runs", in_background=True).train()

    assert [one.filename for one in warned] == [__file__]


def test_a_warning_that_is_an_error_does_not_cost_the_record(code: Path, tmp_path: Path) -> None:
    git(code, "remote", "add", "origin", "https://example.com/never-fetched.git")
    tm = manager(code, tmp_path / "runs")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=r"^no remote of "):
            tm.train()

    assert record_of(tm)["reason"] is None


def test_the_cells_of_a_notebook_are_recorded_again_as_each_run_ends(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = SimpleNamespace(history_manager=SimpleNamespace(input_hist_raw=["", "tm.train_epochs(1)"]))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    tm = manager(code, tmp_path / "runs", epochs=2)
    tm.train_epochs(1)
    shell.history_manager.input_hist_raw.append("tm.train_epochs(1)  # more")
    tm.train_epochs(1)

    notebook = record_of(tm)["notebook"]
    assert notebook["cells"] == 2
    assert (tmp_path / "runs" / notebook["file"]).read_text().endswith("# %% 2\ntm.train_epochs(1)  # more\n")
    assert files_of(tm) == [("new.py", "stored"), ("train.py", "stored")]


# ---- what may go wrong -----------------------------------------------------------------------------------------------


def test_a_git_that_hangs_is_cut_off_and_the_run_continues(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_program(tmp_path / "bin" / "git", HANGING, monkeypatch)
    before, tm = children(), manager(code, tmp_path / "runs", seconds=0.2)

    with pytest.warns(UserWarning, match=f"^{TOLD}git did not answer within 0.2 s$"):
        tm.train()

    assert tm.epoch_num == 1
    assert "git did not answer within 0.2 s" in record_of(tm)["reason"]
    eventually(lambda: children() == before)


@pytest.mark.slow
def test_a_git_that_hangs_from_the_first_moment_is_cut_off_too(tmp_path: Path, fork_server: ForkServer) -> None:
    """As GitPython is imported, it asks git for its version, and would wait for ever."""
    program(tmp_path / "bin" / "git", HANGING)
    run = training(
        tmp_path, fork_server, then="tm.train()", seconds=0.2, path=f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    )

    assert f"{TOLD}git did not answer within 0.2 s" in run.errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "path", "reason"),
    [
        ("", "/nowhere", "git is not installed"),
        (WITHOUT_GITPYTHON, None, "GitPython is not installed: pip install GitPython"),
    ],
    ids=["without git", "without GitPython"],
)
def test_without_git_the_script_and_its_modules_are_recorded_and_a_warning_says_so(
    tmp_path: Path, fork_server: ForkServer, before: str, path: str | None, reason: str
) -> None:
    run = training(
        tmp_path, fork_server, before=before, then="tm.train(); tm.train_epochs(1); print(tm.run_id)", path=path
    )

    record = json.loads((tmp_path / "runs" / "code" / f"{run.output.split()[-1]}.json").read_text())
    assert record["reason"] == reason
    assert run.errors.count("UserWarning") == run.errors.count(reason) == 1
    assert [(path, how) for path, (how, _) in kept_in(record["repositories"][0]).items()] == [
        ("own.py", "stored"),
        ("train.py", "stored"),
    ]


def test_a_reason_is_told_once_per_process(tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    trainings = [manager(tmp_path / "bare", tmp_path / name) for name in ("one", "two")]
    with pytest.warns(UserWarning, match=f"^{TOLD}not in a git repository$"):
        trainings[0].train()
    trainings[1].train()  # warnings are errors here

    assert [record_of(tm)["reason"] for tm in trainings] == ["not in a git repository"] * 2


def test_a_record_that_cannot_be_written_does_not_end_the_training(code: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "code").write_text("in the way")
    tm = manager(code, tmp_path / "runs")

    with pytest.warns(UserWarning, match=f"^{TOLD}(File exists|Not a directory): .*code"):
        tm.train()

    assert tm.epoch_num == 1


def test_another_repository_that_is_not_there_is_refused_before_the_first_step(code: Path, tmp_path: Path) -> None:
    tm = manager(code, tmp_path / "runs", others="no_such_package")

    with pytest.raises(InputError) as caught:
        tm.train()

    assert str(caught.value) == (
        "others has 'no_such_package', which is neither a folder nor an installed package\n"
        '  give names of packages, or folders: others=["my_package", Path("../library")]'
    )
    assert tm.step_num == 0


# ---- beside the training ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_workers_that_are_forked_meanwhile_disturb_nothing(code: Path, tmp_path: Path) -> None:
    data = DataLoader(
        TensorDataset(torch.rand(8, 2), torch.zeros(8).long()), num_workers=2, multiprocessing_context="fork"
    )
    before = children()
    for number in range(2):
        tm = tiny_manager(CodeRecord(folder=code), train_dir=tmp_path / str(number), train_data=data, eval_data=None)
        tm.train()
        assert record_of(tm)["reason"] is None

    assert children() == before


@pytest.mark.slow
def test_a_run_that_is_never_closed_has_its_record_when_the_program_has_ended(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    repository(tmp_path / "project", {"own.py": b"", "train.py": b""})
    run = training(tmp_path, fork_server, then="tm.open(); print(tm.run_id)")

    record = json.loads((tmp_path / "runs" / "code" / f"{run.output.split()[-1]}.json").read_text())
    assert record["repositories"][0]["commit"] == git(tmp_path / "project", "rev-parse", "HEAD").decode().strip()


# ---- helpers ---------------------------------------------------------------------------------------------------------


def program(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    path.chmod(0o755)


def use_program(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program(path, text)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")


def training(
    folder: Path, server: ForkServer, *, before: str = "", then: str, seconds: float = 90, path: str | None = None
) -> Child:
    """Run a script with a module of its own, in a process of its own."""
    (folder / "project").mkdir(exist_ok=True)
    (folder / "project" / "own.py").write_text("x = 1\n")
    path_of_script = folder / "project" / "train.py"
    path_of_script.write_text(f"{before}{TRAIN.format(train_dir=str(folder / 'runs'), seconds=seconds)}{then}\n")
    run = server.run(script, str(path_of_script), PATH=path or os.environ["PATH"])
    assert run.code == 0, run.errors
    return run
