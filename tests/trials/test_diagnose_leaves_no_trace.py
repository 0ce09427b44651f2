"""How `diagnose` is asked, and that it leaves no trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.support.equal_states import assert_same
from tests.support.refusals import refusal
from tests.support.training import At
from tests.trials.diagnosed import Model, X, Y, asked, list_findings, noisy, not_looked_at, result_of
from train_manager import (
    Extension,
    InputError,
    diagnose,
    modifies,
)
from train_manager.errors import ExtensionNotFound, StageError
from train_manager.extensions import default_extensions
from train_manager.testing import tiny_manager

# ---- how it is asked -------------------------------------------------------------------------------------------------


def test_an_unknown_check_is_refused_with_the_one_that_is_meant() -> None:
    assert refusal(lambda: diagnose(tiny_manager(), ["overfitt"])) == (
        "diagnose has no check 'overfitt'\n"
        "  did you mean 'overfit'? there are 'batch leak', 'loss leak', 'parameters', 'overfit', "
        "'initial loss', 'input'"
    )


@pytest.mark.parametrize("checks", [3, 0, [3]])
def test_what_is_no_name_of_a_check_is_refused(checks: Any) -> None:
    number = checks[0] if isinstance(checks, list) else checks
    assert refusal(lambda: diagnose(tiny_manager(), checks)) == (
        f"diagnose has no check {number}\n"
        "  there are 'batch leak', 'loss leak', 'parameters', 'overfit', 'initial loss', 'input'"
    )


def test_a_model_in_place_of_a_manager_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        diagnose(nn.Linear(2, 2))  # type: ignore[arg-type]
    assert str(caught.value) == (
        "diagnose takes a TrainManager, but was given a Linear\n"
        "  tm = TrainManager(model=model, ...), then diagnose(tm); check_batch_leak(model, batch) takes a model"
    )


def test_an_open_run_is_refused() -> None:
    tm = tiny_manager()
    with tm.run(), pytest.raises(StageError) as caught:
        diagnose(tm)
    assert str(caught.value) == (
        "diagnose cannot be called while a run is open\n  open stages  run\n  call it before the run, or after it"
    )


@pytest.mark.parametrize("keep", [["mixed_precision"], "mixed_precision"])
def test_an_extension_to_keep_that_is_not_there_is_refused(keep: Any) -> None:
    with pytest.raises(ExtensionNotFound, match="has no extension 'mixed_precision'"):
        diagnose(tiny_manager(), keep=keep)


def test_each_check_is_told_as_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    diagnose(tiny_manager(), ["initial loss", "parameters"])

    assert capsys.readouterr() == ("", "diagnose: parameters (1 of 2)\ndiagnose: initial loss (2 of 2)\n")


def test_extensions_pause_unless_they_are_kept() -> None:
    seen: list[str] = []
    watching = {
        "kept": At("post_train_step_batch", lambda: seen.append("kept")),
        "other": At("post_train_step_batch", lambda: seen.append("other")),
    }
    diagnose(tiny_manager(extensions=watching), ["initial loss"], keep=["kept"], quiet=True)

    assert set(seen) == {"kept"}


# ---- that it leaves no trace -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "seed"), [(0, None), (4, 3)], ids=["at the start", "within an epoch"])
def test_a_training_after_it_is_to_the_bit_the_training_without_it(steps: int, seed: int | None) -> None:
    results: list[dict[str, Any]] = []
    for looks in (False, True):
        tm = noisy(seed=seed)
        if steps:
            tm.train_steps(steps)
        if looks:
            diagnose(tm, quiet=True)
        tm.train()
        results.append(result_of(tm))

    assert_same(results[0], results[1])


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_it_leaves_nothing_behind_after_an_error(error: type[BaseException]) -> None:
    def fail(epoch_num: int) -> None:
        calls.append(epoch_num)
        if len(calls) == 4:
            raise error

    calls: list[int] = []
    tm = noisy()
    tm.train_steps(4)
    before = result_of(tm)
    tm.add_extension(At("post_train_step_batch", fail), "fails")
    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            diagnose(tm, ["overfit"], keep=["fails"], quiet=True)
    else:
        found = diagnose(tm, ["overfit"], keep=["fails"], quiet=True)
        assert not_looked_at(found) == ["overfit: it failed with ZeroDivisionError: "]
    tm.remove_extension("fails")

    assert len(calls) == 4
    assert_same(result_of(tm), before)


def test_a_training_after_it_tells_of_its_parameters_as_without_it() -> None:
    tm = tiny_manager(model=Model(hidden=Tensor.detach), eval_data=None)
    diagnose(tm, ["parameters"], quiet=True)

    assert tm.findings == []
    with pytest.warns(UserWarning, match="have no gradient"):
        tm.train_steps(10)


def test_no_folder_and_no_file_is_left(tmp_path: Path) -> None:
    tm = tiny_manager(extensions=default_extensions(), train_dir=tmp_path / "runs" / "digits")
    diagnose(tm, ["initial loss"], quiet=True)

    assert list(tmp_path.iterdir()) == []


def test_the_batches_are_as_they_were_if_the_model_writes_into_them() -> None:
    class Writes(Model):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs.add_(1))

    x = X.clone()
    asked("overfit", Writes(), train_data=[(x, Y)])

    assert torch.equal(x, X)


def test_no_warning_of_its_steps_is_shown() -> None:
    model = Model()
    model.requires_grad_(False)
    found = asked("parameters", model)  # warnings are errors here

    assert not found.is_clean


class Halves(Extension):
    """Give the model the inputs that it was made for."""

    @modifies("inputs")
    def pre_train_model_forward(self, inputs: Tensor) -> Tensor:
        return inputs[:, :2]


def test_a_paused_extension_that_modifies_the_inputs_is_named_where_a_check_could_not_look() -> None:
    wide = [(torch.rand(16, 4), torch.arange(16) % 2)]
    tm = tiny_manager(Halves(), train_data=wide, eval_data=None)

    found = diagnose(tm, ["initial loss", "overfit"], quiet=True)
    assert list_findings(found) == ["note: paused while the checks looked, and modifies what is trained on @ halves"]
    assert found[0].cure == "if the training needs it: diagnose(tm, keep=['halves'])"
    assert diagnose(tm, ["initial loss"], keep=["halves"], quiet=True).is_clean


def test_a_paused_extension_is_not_named_if_all_is_clean() -> None:
    class Same(Extension):
        @modifies("inputs")
        def pre_train_model_forward(self, inputs: Tensor) -> Tensor:
            return inputs

    assert len(diagnose(tiny_manager(Same()), ["initial loss"], quiet=True)) == 0
