"""Methods that look like hooks or overrides and are none; the list of names is in ``tests/advice``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from train_manager import Extensible, Extension, TrainManager, fixture, not_a_hook, staged
from train_manager.errors import HookError
from train_manager.testing import tiny_manager

At = Callable[[str], str]


class Training(Extensible):
    def train(self) -> None:
        with self.staged("train"), staged("train_batch"):
            pass


def having(base: type, *names: str) -> Any:
    """An object of a class that has methods of these names."""
    made = type("Mine", (base,), {name: lambda self: None for name in names})
    return made(model=torch.nn.Linear(1, 1)) if issubclass(base, TrainManager) else made()


def refusal(make: Callable[[], object]) -> str:
    with pytest.raises(HookError) as error:
        make()
    return str(error.value)


# ---- extensions ------------------------------------------------------------------------------------------------------


def test_the_message_says_what_a_name_of_another_tool_is_called_here(at: At) -> None:
    class Mine(Extension):
        def on_train_epoch_end(self) -> None: ...  # of Lightning

    assert refusal(lambda: tiny_manager(Mine())) == (
        "Mine.on_train_epoch_end looks like a hook of Lightning, but would never run\n"
        f"  asked at     {at('of Lightning')}\n"
        "  on_train_epoch_end is called post_train_step_epoch here (or @not_a_hook, if it is a method of your own)"
    )


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("on_exception", "on_exception is called @always post_run here"),
        ("on_save_checkpoint", "on_save_checkpoint is called state_dict here"),
        ("configure_optimizers", "configure_optimizers is the argument optimizer= here"),
        ("training_step", "training_step is called train_batch here, in a subclass of TrainManager"),
        ("on_sanity_check_end", "on_sanity_check_end has no counterpart here"),
        ("onEpochEnd", "on_epoch_end is called post_train_step_epoch here"),
        ("test_dataloader", "test_dataloader is the argument eval_data= here"),
        ("on_train_step_batch", "call it 'pre_train_step_batch' or 'post_train_step_batch'"),
        ("before_train_step_batch", "call it 'pre_train_step_batch'"),
        ("end_train_step_bach", "call it 'post_train_step_batch'"),
        ("on_click", "hooks are called pre_<stage>, post_<stage> or around_<stage>"),
        ("train_step_batch", "call it 'pre_train_step_batch' or 'post_train_step_batch'"),
        ("posttrain", "did you mean 'post_train'?"),
        ("pst_train_step_batch", "did you mean 'post_train_step_batch'?"),
    ],
)
def test_an_extension_with_a_lookalike_is_refused_with_the_cure(name: str, cure: str) -> None:
    assert refusal(lambda: tiny_manager(having(Extension, name))).splitlines()[-1].removeprefix("  ").startswith(cure)


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("on_train_batch_end", "call it 'post_train_batch'"),
        ("on_train_end", "call it 'post_train'"),
        ("on_epoch_end", "hooks are called pre_<stage>, post_<stage> or around_<stage>"),
    ],
)
def test_for_another_loop_the_cure_names_the_stages_of_that_loop(name: str, cure: str) -> None:
    assert f"\n  {cure} (or" in refusal(lambda: Training([having(Extension, name)]))


@pytest.mark.parametrize("name", ["pretrain", "helper", "setup", "teardown", "close", "_on_train_end", "ontology"])
def test_other_names_are_ordinary_methods(name: str) -> None:
    tiny_manager(having(Extension, name, "pre_train"))


def test_a_method_that_is_not_a_hook_is_left_alone() -> None:
    class Mine(Extension):
        def pre_train(self) -> None: ...

        @not_a_hook
        def on_train_epoch_end(self) -> None: ...

    class Derived(Mine):
        def on_train_epoch_end(self) -> None: ...

    tiny_manager(Mine(), Derived())


def test_a_method_with_the_name_of_a_hook_that_is_none_never_runs() -> None:
    class Mine(Extension):
        def pre_train(self) -> None: ...

        @not_a_hook
        def post_processed(self, batch: float) -> float:
            raise AssertionError

    tiny_manager(Mine()).train()


def test_a_method_that_the_class_itself_calls_is_refused_with_the_way_out() -> None:
    class Mine(Extension):
        def post_train_step_batch(self) -> None:
            self.on_gpu()

        def on_gpu(self) -> None: ...

    assert refusal(lambda: tiny_manager(Mine())).endswith("(or @not_a_hook, if it is a method of your own)")


def test_a_name_that_a_base_class_of_another_library_has_is_left_alone() -> None:
    class Callback:
        def on_train_end(self) -> None: ...

    class Both(Extension, Callback):
        def pre_train(self) -> None: ...

        def on_train_end(self) -> None: ...

    tiny_manager(Both())


def test_a_fixture_may_have_any_name() -> None:
    class Mine(Extension):
        @fixture("train_step_batch")
        def on_gpu(self) -> bool:
            return False

    tiny_manager(Mine())


def test_an_attribute_is_no_method() -> None:
    class Mine(Extension):
        on_train_end: Any = None

        def __init__(self) -> None:
            self.on_epoch_end = print

        def pre_train(self) -> None: ...

        @property
        def on_batch_end(self) -> int:
            return 1

    tiny_manager(Mine())


def test_a_function_under_the_name_of_another_tool_is_told_what_hooks_are_called() -> None:
    assert refusal(lambda: Extension.of(on_epoch_end=print)).endswith(
        "\n  hooks are called pre_<stage>, post_<stage> or around_<stage>, and each is given a function"
    )


# ---- loops -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("train_bach", "did you mean 'train_batch'?"),
        ("model_foward", "did you mean 'model_forward'?"),
        ("initialise_params", "did you mean 'initialize_params'?"),
        ("_los_forward", "did you mean 'loss_forward'?"),
        ("trainBatch", "did you mean 'train_batch'?"),
        ("training_step", "training_step is called train_batch here, in a subclass of TrainManager"),
        ("on_train_end", "on_train_end is called post_train here"),
        ("train_step_batch", "call it 'pre_train_step_batch' or 'post_train_step_batch'"),
    ],
)
def test_a_train_manager_with_a_lookalike_is_refused_with_the_cure(name: str, cure: str) -> None:
    assert f"\n  {cure} (or" in refusal(lambda: having(TrainManager, name))


def test_the_message_of_a_misspelt_override_says_that_it_is_none(at: At) -> None:
    class Mine(TrainManager):
        def train_bach(self) -> None: ...  # misspelt

    assert refusal(lambda: Mine(model=torch.nn.Linear(1, 1))) == (
        "Mine.train_bach overrides nothing\n"
        f"  asked at     {at('misspelt')}\n"
        "  did you mean 'train_batch'? (or @not_a_hook, if it is a method of your own)"
    )


@pytest.mark.parametrize("name", ["train_batch", "end_epoch", "train_batches", "_train_batch", "val_batch", "fit"])
def test_overrides_and_other_names_are_methods_of_a_train_manager(name: str) -> None:
    having(TrainManager, name)


def test_a_stage_of_its_own_may_be_called_like_the_method() -> None:
    class Mine(TrainManager):
        def warm_up(self) -> None:
            with self.staged("warm_up"):
                pass

    having(Mine, "warm_down")


@pytest.mark.parametrize("name", ["train_batch", "evaluate", "on_click", "training_step", "posttrain", "pretrain"])
def test_a_loop_of_ones_own_may_call_its_methods_as_it_likes(name: str) -> None:
    having(Training, name)


@pytest.mark.parametrize("name", ["on_train", "before_train_batch", "on_train_batch_end", "end_trai"])
def test_but_not_as_hooks_of_its_own_stages(name: str) -> None:
    assert f"Mine.{name} looks like a hook" in refusal(lambda: having(Training, name))


def test_a_plain_loop_knows_no_names_of_other_tools() -> None:
    having(Training, "on_epoch_end", "training_step")
    Training([having(Extension, "training_step", "pre_train")])


# ---- extensions that do nothing --------------------------------------------------------------------------------------


def test_an_extension_that_does_nothing_is_told_so() -> None:
    class Mine(Extension):
        def helper(self) -> None: ...

    with pytest.warns(
        UserWarning, match="Mine has no hook and no fixture, so it does nothing: hooks are called"
    ) as told:
        Training([Mine()])
    assert told[0].filename == __file__


@pytest.mark.parametrize("name", ["state_dict", "replace_parameters", "around_train"])
def test_one_that_does_something_else_is_not(name: str) -> None:
    Training([having(Extension, name)] if name != "around_train" else [Around()])


class Around(Extension):
    def around_train(self) -> Any:
        yield
