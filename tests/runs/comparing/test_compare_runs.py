from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR

from tests.runs.code.repositories import a_file
from tests.runs.record.sample_runs import entry, parameters, write_code, write_runs
from tests.runs.showing.stored import page_of
from train_manager.extensions import MetricStore, RunRecord
from train_manager.runs.code.facts import NO_REPOSITORY
from train_manager.runs.comparing.run_facts import RunFacts
from train_manager.runs.record.run_file import read_runs
from train_manager.runs.record.run_paths import named_run
from train_manager.telling.errors import InputError
from train_manager.telling.findings import Finding
from train_manager.testing import tiny_manager
from train_manager.tools import compare_runs


def test_all_that_differs_is_told_in_lines(tmp_path: Path) -> None:
    environment = {"python": "3.11.7", "packages": {"torch": "2.12.0"}, "threads": {"torch": 2}}
    write_runs(tmp_path / "a", entry())
    write_runs(tmp_path / "b", entry(parameters=parameters(lr=0.2, seed=1), environment=environment, seed=1, data={}))

    assert compare_runs([tmp_path / "a", tmp_path / "b"]).differences() == [
        "parameter optimizer.lr: 0.1, 0.2",
        "parameter seed: none, 1",
        "environment packages.torch: 2.13.0, 2.12.0",
        "environment threads.torch: 1, 2",
        "data train_data.kind: InMemory, none",
        "data train_data.length: 10, none",
        "data seed: 0, none",
    ]


def trained(folder: Path, optimizer: Any, **more: Any) -> Path:
    tiny_manager(RunRecord(), optimizer=optimizer, train_dir=folder, **more).train()
    return folder


def test_a_rate_in_a_lambda_is_compared(tmp_path: Path) -> None:
    runs = [trained(tmp_path / str(lr), lambda parameters, lr=lr: SGD(parameters, lr=lr)) for lr in (0.1, 0.3)]

    assert compare_runs(runs).differences() == ["parameter optimizer.lr: 0.1, 0.3"]


def test_a_length_in_a_schedule_of_a_lambda_is_compared(tmp_path: Path) -> None:
    runs = [
        trained(tmp_path / str(size), SGD, lr_schedule=lambda optimizer, size=size: StepLR(optimizer, size))
        for size in (3, 5)
    ]

    assert compare_runs(runs).differences() == ["parameter lr_schedule.step_size: 3, 5"]


def test_what_another_than_the_recorded_callable_has_made_is_a_row_of_its_own(tmp_path: Path) -> None:
    of_groups = {"$object": "torch.optim.sgd:SGD", "arguments": {"lr": {"$tuple": [0.1, 0.2]}}}
    write_runs(tmp_path / "a", entry(made={"optimizer": of_groups}))
    write_runs(tmp_path / "b", entry())

    assert compare_runs([tmp_path / "a", tmp_path / "b"]).differences() == [
        "parameter optimizer made: SGD, none",
        "parameter optimizer made.lr: (0.1, 0.2), none",
    ]


def test_code_is_compared_with_that_of_the_first_run(tmp_path: Path) -> None:
    changed = [a_file("train.py", "added")]
    for name, files in (("a", []), ("b", changed), ("c", [])):
        write_runs(tmp_path / name, entry())
        write_code(tmp_path / name, entry()["id"], files=files)

    compared = compare_runs([tmp_path / name for name in "abc"])

    assert [[str(file) for file in found.files] for found in compared.files if found] == [
        ["train.py: only in the second run"],
        [],
    ]
    assert compared.differences() == ["code: train.py: only in the second run"]


def test_code_whose_files_differ_is_not_told_to_be_the_same(tmp_path: Path) -> None:
    """Both runs have changed one file since the same commit, and not in the same way."""
    for name in "ab":
        write_runs(tmp_path / name, entry())
        write_code(tmp_path / name, entry()["id"], files=[a_file(f"{name}.py", "added")])

    compared = compare_runs([tmp_path / name for name in "ab"])

    section = compared.text().partition("\ncode")[2].partition("\nenvironment")[0]
    assert section.splitlines() == [
        " (3 the same)",
        "         a         b",
        "  files  -  2 differ",
        "",
        "a -> b: 2 files differ",
        "  a.py: only in the first run",
        "  b.py: only in the second run",
    ]


def test_the_shortest_ends_of_paths_tell_runs_apart(tmp_path: Path) -> None:
    for name in ("one/x", "two/x", "two/y"):
        write_runs(tmp_path / name, entry("aaaa1"), entry("bbbb2"))

    compared = compare_runs([f"{tmp_path}/one/x", f"{tmp_path}/two/x", f"{tmp_path}/two/y#aaaa", f"{tmp_path}/two/y"])

    assert [run.label for run in compared.runs] == ["one/x", "two/x", "y#aaaa", "y#bbbb"]


def test_a_damaged_record_is_a_note(tmp_path: Path) -> None:
    write_runs(tmp_path / "a", entry())
    write_code(tmp_path / "a", entry()["id"])
    (tmp_path / "a" / "code" / f"{entry()['id']}.json").write_text("[]")
    (tmp_path / "a" / "metrics.sqlite").write_text("not a database, but long enough to be looked at")
    write_runs(tmp_path / "b", entry())

    notes = compare_runs([tmp_path / "a", tmp_path / "b"]).notes

    assert notes[0] == f"a: {tmp_path}/a/code/{entry()['id']}.json is damaged: it is not a code record"
    assert notes[1] == (
        f"a: {tmp_path}/a/metrics.sqlite cannot be read: file is not a database (is it damaged, or of another program?)"
    )


@pytest.mark.parametrize(
    "more",
    [{"parameters": {"$object": 3}}, {"findings": [{"level": "error"}]}, {"seed": [1]}, {"calls": {"train": "x"}}],
    ids=str,
)
def test_an_entry_of_other_types_is_compared_as_far_as_it_can_be_read(more: dict[str, Any], tmp_path: Path) -> None:
    write_runs(tmp_path / "a", entry())
    write_runs(tmp_path / "b", entry(**more))

    compared = compare_runs([tmp_path / "a", tmp_path / "b"])

    assert compared.data["train_data.kind"] == ("InMemory", "InMemory")
    assert compared.text()


@pytest.mark.parametrize("number", [0, 11])
def test_up_to_ten_runs_are_compared(number: int, tmp_path: Path) -> None:
    write_runs(tmp_path, entry())

    with pytest.raises(InputError, match="cannot be compared"):
        compare_runs([tmp_path] * number)


def test_the_text_and_the_page_have_the_same_metrics(tmp_path: Path) -> None:
    write_runs(tmp_path / "a", entry())
    write_runs(tmp_path / "b", entry(metrics={"loss": 0.125}))

    compared = compare_runs([tmp_path / "a", tmp_path / "b"])

    assert "loss        0.5000  0.1250" in compared.text()
    assert "<td>0.5000</td><td>0.1250</td>" in page_of(tmp_path / "a", tmp_path / "b")


def test_options_of_a_command_are_compared_by_name(tmp_path: Path) -> None:
    for name, arguments in (("a", ["--lr", "0.1", "--out", "a"]), ("b", ["--out=b", "--fast"])):
        write_runs(tmp_path / name, entry(command={"arguments": ["python", "train.py", *arguments]}))

    assert compare_runs([tmp_path / "a", tmp_path / "b"]).differences() == [
        "environment command --lr: 0.1, none",
        "environment command --out: a, b",
        "environment command --fast: none, yes",
    ]


def test_an_interpreter_under_another_name_is_not_a_difference(tmp_path: Path) -> None:
    for name in ("python", "python3", "../bin/python"):
        command = {"interpreter": f"/venv/bin/{name}", "arguments": [name, "train.py"]}
        write_runs(tmp_path / Path(name).name / str(len(name)), entry(command=command))

    found = [f"{tmp_path}/python/6", f"{tmp_path}/python3/7", f"{tmp_path}/python/13"]
    assert compare_runs(found).differences() == []


def test_a_seed_that_torch_drew_is_not_a_difference(tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 6728042131072118), ("c", 6728042131072119)):
        write_runs(tmp_path / name, entry(environment={"seeds": {"torch": seed}}))

    assert compare_runs([tmp_path / "b", tmp_path / "c"]).differences() == []
    assert compare_runs([tmp_path / "a", tmp_path / "b"]).differences() == ["environment seed of torch: 3, none"]


def test_why_code_is_not_in_full_is_told_once(tmp_path: Path) -> None:
    for name in "abc":
        write_runs(tmp_path / name, entry())
        write_code(tmp_path / name, entry()["id"])
        path = tmp_path / name / "code" / f"{entry()['id']}.json"
        path.write_text(path.read_text().replace('"reason": null', '"reason": "git is not installed"'))

    compared = compare_runs([tmp_path / name for name in "abc"])

    assert compared.notes == ("all runs: the code is not in full: git is not installed",)
    assert [found.problems for found in compared.files if found] == [(), ()]


@pytest.mark.parametrize(
    ("repositories", "kept"),
    [
        ([], "the code was not recorded"),
        ([{"commit": None, "files": [{"path": "train.py"}]}], "only the files that ran were recorded"),
    ],
)
def test_a_folder_without_git_is_named(repositories: list[dict[str, object]], kept: str, tmp_path: Path) -> None:
    facts = RunFacts(named_run(write_runs(tmp_path, entry())), "run")
    facts.code = {"reason": NO_REPOSITORY, "repositories": repositories}

    assert facts.why_code_is_partial() == f"no git repository: {kept}"


def test_of_a_killed_run_the_steps_are_those_of_its_metrics(tmp_path: Path) -> None:
    tiny_manager(RunRecord(), MetricStore(), epochs=2, train_dir=tmp_path).train()
    (whole,) = read_runs(tmp_path)
    killed = {**whole, "outcome": "running", "ended": None, "progress": {"epochs": 0, "steps": 0}}
    write_runs(tmp_path, killed)

    compared = compare_runs([tmp_path])

    assert compared.runs[0].done == "2 epochs, 6 steps"
    assert compared.metrics["batch_size"] == ("16",)
    assert compared.metrics["lr"] == ("0.5",)
    [rate] = compared.curves["lr"]
    assert rate is not None
    assert (rate.steps.tolist(), rate.mean.tolist()) == ([1], [0.5])
    assert "batch_size" not in compared.curves


def test_the_kernel_of_a_notebook_is_not_a_difference(tmp_path: Path) -> None:
    for name in "ab":
        arguments = ["python", "-m", "ipykernel_launcher", "-f", f"/tmp/kernel-{name}.json"]
        write_runs(tmp_path / name, entry(command={"kind": "notebook", "arguments": arguments}))

    assert compare_runs([tmp_path / "a", tmp_path / "b"]).differences() == []


def test_what_checks_have_found_is_compared_and_is_no_difference(tmp_path: Path) -> None:
    found = Finding("batch leak", "error", "example 2 sees example 5", "body.mix")
    write_runs(tmp_path / "a", entry())
    write_runs(tmp_path / "b", entry(findings=[found.to_dict()]))
    compared = compare_runs([tmp_path / "a", tmp_path / "b"])

    assert [[*findings] for findings in compared.findings] == [[], [found]]
    assert compared.differences() == []


def test_findings_that_are_damaged_are_a_note(tmp_path: Path) -> None:
    write_runs(tmp_path / "a", entry(findings=[{"level": "error"}]))
    compared = compare_runs([tmp_path / "a"])

    assert [*compared.findings[0]] == []
    assert compared.notes[0].startswith(f"a: a record in {tmp_path / 'a'} is damaged: TypeError: ")
