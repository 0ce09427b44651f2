"""What checks find in a training: where it is kept, when it is told, and what continues with a checkpoint."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.resuming import Resume, round_trip
from tests.support.training import At
from train_manager.extensions import Checkpoints
from train_manager.telling.findings import Finding
from train_manager.testing import tiny_manager

LEAK = Finding("batch leak", "error", "example 2 sees example 5", "body.mix", "split the batch", {"apart": 0.25})


def test_an_error_is_kept_and_warned_of_with_its_place_and_its_cure() -> None:
    tm = tiny_manager()

    with pytest.warns(UserWarning, match="example 2 sees") as caught:
        tm.add_finding(LEAK)

    assert tm.findings == [LEAK]
    assert [str(one.message) for one in caught] == ["example 2 sees example 5: body.mix (split the batch)"]
    assert caught[0].filename == __file__


def test_a_finding_of_no_place_and_without_a_cure_is_told_alone() -> None:
    with pytest.warns(UserWarning, match=r"^all labels are 0$"):
        tiny_manager().add_finding(Finding("input", "warning", "all labels are 0"))


def test_a_note_is_kept_and_not_warned_of() -> None:
    tm = tiny_manager()
    tm.add_finding(replace(LEAK, level="note"))

    assert [one.level for one in tm.findings] == ["note"]


@pytest.mark.filterwarnings("ignore:example 2 sees")
def test_a_known_finding_is_left_out_whatever_its_numbers_are() -> None:
    tm = tiny_manager()
    tm.add_finding(LEAK)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tm.add_finding(replace(LEAK, numbers={"apart": 0.5}))

    assert tm.findings == [LEAK]


@pytest.mark.filterwarnings("ignore:example 2 sees")
def test_a_finding_of_another_place_is_another_one() -> None:
    tm = tiny_manager()
    tm.add_finding(LEAK)
    tm.add_finding(replace(LEAK, where="head"))

    assert [one.where for one in tm.findings] == ["body.mix", "head"]


@pytest.mark.filterwarnings("ignore:example 2 sees")
def test_what_is_found_in_a_phase_stays_after_it_and_what_was_found_before_is_known_in_it() -> None:
    tm = tiny_manager()
    tm.add_finding(replace(LEAK, where="before"))
    with tm.run(), tm.phase("head"):
        tm.add_finding(LEAK)
        inside = list(tm.findings)

    assert [one.where for one in inside] == ["before", "body.mix"]
    assert tm.findings == inside


@pytest.mark.filterwarnings("ignore:example 2 sees")
def test_a_copy_of_a_manager_finds_for_itself() -> None:
    tm = tiny_manager()
    tm.add_finding(LEAK)
    other = copy.deepcopy(tm)
    other.add_finding(replace(LEAK, where="head"))

    assert (len(tm.findings), len(other.findings)) == (1, 2)


@pytest.mark.filterwarnings("ignore:example 2 sees")
def test_a_resumed_training_has_the_findings_and_does_not_tell_them_again(tmp_path: Path) -> None:
    find = At("post_train_step_batch", lambda train_manager: train_manager.add_finding(LEAK))
    tiny_manager(find, Checkpoints(), train_dir=tmp_path).train()
    again = tiny_manager(find, Checkpoints(resume=True), epochs=2, train_dir=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again.train()

    assert (again.findings, again.step_num) == ([LEAK], 6)


@pytest.mark.filterwarnings("ignore:example 2 sees")
def test_a_finding_of_before_the_load_stays() -> None:
    other = replace(LEAK, where="head")
    state = tiny_manager().state_dict() | {"findings": [LEAK.to_dict()]}
    tm = tiny_manager(Resume(round_trip(state)))
    tm.add_finding(other)
    tm.train()

    assert tm.findings == [other, LEAK]
