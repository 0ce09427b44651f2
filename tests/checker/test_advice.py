"""What the check advises for a wrong fixture or stage: the nearest hook, the stage meant, and what is there instead."""

from __future__ import annotations

from typing import Any

import pytest

from tests.checker.checking import At, Loop, ask, mistake
from train_manager import Extensible, Extension, fixture, provides
from train_manager.core.store import Options
from train_manager.errors import CheckError, StageError
from train_manager.extensions import Avg
from train_manager.telling.words import Words
from train_manager.testing import tiny_manager


class Both(Extensible):
    """A training whose steps and whose evaluation have a loss; the stage of the evaluation comes first in the ABC."""

    def train(self) -> None:
        with self.staged("run"):
            with self.staged("epoch"):
                with self.staged("audit"):
                    with self.staged("audit_batch"):
                        self.fixtures["loss"] = 1.0
                with self.staged("train_batch", {"batch": 1}):
                    with self.staged("forward"):
                        self.fixtures.define("loss", 1.0, stage="train_batch")
                    with self.staged("backward"):
                        pass


def hook(name: str, *parameters: str) -> Extension:
    namespace: dict[str, Any] = {}
    exec(f"def {name}(self, {', '.join(parameters)}): ...", namespace)
    made: Extension = type("Written", (Extension,), {name: namespace[name]})()
    return made


def cure(name: str, parameter: str, extensible: type[Extensible] = Both) -> str:
    return str(mistake(hook(name, parameter), extensible)).splitlines()[-1].strip()


def cure_in_training(name: str, parameter: str, *extensions: Extension) -> str:
    with pytest.raises(CheckError) as caught:
        tiny_manager(hook(name, parameter), *extensions).check()
    return str(caught.value).splitlines()[-1].strip()


# ---- the nearest hook ----------------------------------------------------------------------------------------------


def test_of_two_inner_stages_the_nearer_one_is_named() -> None:
    assert cure("post_epoch", "loss") == "use post_train_batch"
    assert cure("post_audit", "loss") == "use post_audit_batch"


def test_a_pre_hook_is_led_to_the_pre_hook_of_the_inner_stage() -> None:
    assert cure("pre_epoch", "batch") == "use pre_train_batch"
    assert cure("pre_epoch", "loss") == "use post_train_batch"


def test_a_hook_that_asks_too_early_is_led_to_the_first_hook_inside_and_to_the_end() -> None:
    assert cure("pre_train_batch", "loss") == "it is defined later: use pre_backward or post_train_batch"


def test_a_post_hook_that_asks_too_early_is_led_to_the_end_of_the_stage_around() -> None:
    class Later(Extensible):
        def work(self) -> None:
            with self.staged("work"):
                with self.staged("part"):
                    pass
                self.fixtures["result"] = 1

    assert cure("post_part", "result", Later) == "it is defined later: use post_work"


def test_the_stage_of_the_other_branch_is_the_nearest() -> None:
    assert cure("post_audit_batch", "batch") == "use post_train_batch"


def test_a_misspelt_name_that_is_alive_elsewhere_comes_with_its_hook() -> None:
    assert cure("post_epoch", "bacth") == "did you mean 'batch'? use post_train_batch"


def test_a_provider_is_led_to_the_nearest_stage() -> None:
    class Doubled(Extension):
        @fixture("epoch")
        def doubled(self, loss: float) -> float:
            return 2 * loss

    assert str(mistake(Doubled(), Both)).endswith('provide it there: @fixture("train_batch")')


# ---- a mean --------------------------------------------------------------------------------------------------------


def test_a_loss_that_has_ended_has_a_mean_in_an_evaluation() -> None:
    assert cure_in_training("post_eval_step_epoch", "loss") == (
        "use post_eval_step_batch; for its mean, ask for 'eval_result'"
    )


def test_a_loss_that_has_ended_can_have_a_mean_in_an_epoch() -> None:
    assert cure_in_training("post_train_step_epoch", "loss") == (
        'use post_train_step_batch; for its mean, add the extension Avg("loss") of train_manager.extensions, '
        "which provides 'avg_loss'"
    )


def test_where_the_mean_is_there_it_is_named() -> None:
    assert cure_in_training("post_train_step_epoch", "loss", Avg("loss")) == (
        "use post_train_step_batch; for its mean, ask for 'avg_loss'"
    )


# ---- stages --------------------------------------------------------------------------------------------------------


def test_a_misspelt_stage_of_provides_gets_the_one_meant(at: At) -> None:
    class Mean(Extension):
        @provides("mean", stage="epohc")  # misspelt owner
        def post_train_batch(self) -> float:
            return 1.0

    found = mistake(Mean(), Both)
    assert isinstance(found, StageError)
    assert str(found) == (
        "Mean.post_train_batch provides a fixture of stage 'epohc', which is never open around 'train_batch'\n"
        f"  asked at     {at('misspelt owner')}\n"
        "  did you mean 'epoch'?"
    )


def test_a_stage_whose_words_stand_in_another_order_is_meant() -> None:
    assert cure_in_training("post_train_batch_step", "loss") == "did you mean 'post_train_step_batch'?"


def test_the_wrong_fixtures_of_a_hook_of_a_misspelt_stage_are_told_too(at: At) -> None:
    class Watcher(Extension):
        def post_stepp(self, los: float) -> None: ...  # both are wrong

    with pytest.raises(CheckError) as caught:
        Loop([Watcher()]).check()
    stage, parameter = map(str, caught.value.mistakes)
    assert stage.endswith("\n  did you mean 'post_step'?")
    assert parameter == (
        "Watcher.post_stepp wants 'los', which is never alive at post_step\n"
        f"  asked at     {at('both are wrong')}\n"
        "  alive        batch, epoch_num, loss\n"
        "  did you mean 'loss'?"
    )


def test_the_right_fixtures_of_a_hook_of_a_misspelt_stage_are_no_mistake() -> None:
    assert str(mistake(hook("post_stepp", "loss"))).endswith("did you mean 'post_step'?")


# ---- words of other tools ------------------------------------------------------------------------------------------


class Predicts(Extensible):
    """A loop of one's own with words of other tools."""

    _options = Options(words=Words(fixtures={"preds": ("prediction",), "metrics": ("eval_results",)}))

    def work(self) -> None:
        with self.staged("work", {"prediction": 1}):
            self.helper()

    def helper(self) -> None:
        self.call_by_name(self.score)

    def score(self, preds: int = 0) -> int:
        return preds


class Scores(Predicts):
    def score(self, preds: int) -> int:  # type: ignore[override]
        return preds


def test_a_word_of_the_table_is_offered_where_its_fixture_is_alive() -> None:
    assert cure("post_work", "preds", Predicts) == "did you mean 'prediction'?"


def test_it_is_not_offered_where_its_fixture_does_not_exist() -> None:
    assert (
        cure("post_work", "metrics", Predicts) == "nothing defines it; give the parameter a default if it may be absent"
    )


def test_a_method_that_is_called_by_name_gets_the_same_advice() -> None:
    with pytest.raises(CheckError) as caught:
        Scores().check()
    assert str(caught.value).endswith("did you mean 'prediction'?")


def test_a_misspelt_name_that_is_always_there_is_found() -> None:
    assert cure("post_step", "fixturs", Loop) == "did you mean 'fixtures'?"


def test_a_stage_of_another_word_is_not_meant_where_its_stage_does_not_exist() -> None:
    assert "the stages are run, eval, step, forward" in str(mistake(ask("iteration")))
