"""Methods that look like hooks or overrides and are none; the list of names is in ``tests/advice``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from train_manager import Extensible, Extension, TrainManager, fixture, not_a_hook, staged
from train_manager.errors import CheckError, HookError
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


def mistake(extensible: Extensible) -> str:
    with pytest.raises(CheckError) as error:
        extensible.check()
    (found,) = error.value.mistakes
    assert isinstance(found, HookError)
    return str(found)


# ---- extensions ------------------------------------------------------------------------------------------------------


def test_the_message_says_what_a_name_of_another_tool_is_called_here(at: At) -> None:
    class Mine(Extension):
        def on_train_epoch_end(self) -> None: ...  # of Lightning

    assert mistake(tiny_manager(Mine())) == (
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
def test_an_extension_with_a_lookalike_is_a_mistake_with_the_cure(name: str, cure: str) -> None:
    assert mistake(tiny_manager(having(Extension, name))).splitlines()[-1].removeprefix("  ").startswith(cure)


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("on_train_batch_end", "call it 'post_train_batch'"),
        ("on_train_end", "call it 'post_train'"),
        ("on_epoch_end", "hooks are called pre_<stage>, post_<stage> or around_<stage>"),
    ],
)
def test_for_another_loop_the_cure_names_the_stages_of_that_loop(name: str, cure: str) -> None:
    assert f"\n  {cure} (or" in mistake(Training([having(Extension, name)]))


@pytest.mark.parametrize("name", ["pretrain", "helper", "setup", "teardown", "close", "_on_train_end", "ontology"])
def test_other_names_are_ordinary_methods(name: str) -> None:
    tiny_manager(having(Extension, name, "pre_train")).check()


def test_a_method_that_is_not_a_hook_is_left_alone() -> None:
    class Mine(Extension):
        def pre_train(self) -> None: ...

        @not_a_hook
        def on_train_epoch_end(self) -> None: ...

    class Derived(Mine):
        def on_train_epoch_end(self) -> None: ...

    tiny_manager(Mine(), Derived()).check()


def test_a_method_with_the_name_of_a_hook_that_is_none_never_runs() -> None:
    class Mine(Extension):
        def pre_train(self) -> None: ...

        @not_a_hook
        def post_processed(self, batch: float) -> float:
            raise AssertionError

    tiny_manager(Mine()).train()


@pytest.mark.parametrize("name", ["on_gpu", "plot_epoch"])
def test_a_method_that_another_one_of_its_class_calls_is_left_alone(name: str) -> None:
    def post_train_step_epoch(self: Any) -> None:
        [self.on_gpu() for _ in range(2)]
        self.plot_epoch()

    methods = {"post_train_step_epoch": post_train_step_epoch, name: lambda self: None}

    tiny_manager(type("Mine", (Extension,), methods)()).check()


def test_a_method_that_only_calls_itself_is_refused_with_the_way_out() -> None:
    class Mine(Extension):
        def on_gpu(self) -> None:
            self.on_gpu()

    assert mistake(tiny_manager(Mine())).endswith("(or @not_a_hook, if it is a method of your own)")


def test_a_name_that_a_base_class_of_another_library_has_is_left_alone() -> None:
    class Callback:
        def on_train_end(self) -> None: ...

    class Both(Extension, Callback):
        def pre_train(self) -> None: ...

        def on_train_end(self) -> None: ...

    tiny_manager(Both()).check()


def test_a_fixture_may_have_any_name() -> None:
    class Mine(Extension):
        @fixture("train_step_batch")
        def on_gpu(self) -> bool:
            return False

    tiny_manager(Mine()).check()


def test_an_attribute_is_no_method() -> None:
    class Mine(Extension):
        on_train_end: Any = None

        def __init__(self) -> None:
            self.on_epoch_end = print

        def pre_train(self) -> None: ...

        @property
        def on_batch_end(self) -> int:
            return 1

    tiny_manager(Mine()).check()


def test_a_function_under_the_name_of_another_tool_is_told_what_hooks_are_called() -> None:
    with pytest.raises(HookError) as error:
        Extension.of(on_epoch_end=print)
    assert str(error.value).endswith(
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
def test_a_train_manager_with_a_lookalike_is_a_mistake_with_the_cure(name: str, cure: str) -> None:
    assert f"\n  {cure} (or" in mistake(having(TrainManager, name))


def test_the_message_of_a_misspelt_override_says_that_it_is_none(at: At) -> None:
    class Mine(TrainManager):
        def train_bach(self) -> None: ...  # misspelt

    assert mistake(Mine(model=torch.nn.Linear(1, 1))) == (
        "Mine.train_bach overrides nothing\n"
        f"  asked at     {at('misspelt')}\n"
        "  did you mean 'train_batch'? (or @not_a_hook, if it is a method of your own)"
    )


@pytest.mark.parametrize("name", ["train_batch", "end_epoch", "train_batches", "_train_batch", "val_batch", "fit"])
def test_overrides_and_other_names_are_methods_of_a_train_manager(name: str) -> None:
    having(TrainManager, name).check()


def test_a_stage_of_its_own_may_be_called_like_the_method() -> None:
    class Mine(TrainManager):
        def warm_up(self) -> None:
            with self.staged("warm_up"):
                pass

    having(Mine, "warm_down").check()


@pytest.mark.parametrize("name", ["train_batch", "evaluate", "on_click", "training_step", "posttrain", "pretrain"])
def test_a_loop_of_ones_own_may_call_its_methods_as_it_likes(name: str) -> None:
    having(Training, name).check()


@pytest.mark.parametrize("name", ["on_train", "before_train_batch", "on_train_batch_end", "end_trai"])
def test_but_not_as_hooks_of_its_own_stages(name: str) -> None:
    assert f"Mine.{name} looks like a hook" in mistake(having(Training, name))


def test_a_plain_loop_knows_no_names_of_other_tools() -> None:
    having(Training, "on_epoch_end", "training_step").check()
    Training([having(Extension, "training_step", "pre_train")]).check()


# ---- properties ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decorator", [property, functools.cached_property, functools.singledispatchmethod])
def test_what_computes_a_callable_under_the_name_of_a_hook_is_a_mistake(decorator: Any) -> None:
    class Watcher(Extension):
        @decorator  # type: ignore[untyped-decorator]
        def pre_train(self) -> Callable[[], None]:
            raise AssertionError("was looked at")

    if decorator is functools.cached_property:
        Watcher.__dict__["pre_train"].__set_name__(Watcher, "pre_train")
    found = mistake(Training([Watcher()]))
    assert found.splitlines()[0] == (
        f"Watcher.pre_train has the name of a hook, but is a {decorator.__name__}, which cannot be called as one"
    )
    assert found.endswith("write a method, `def pre_train(self, ...)`; or take another name")


def test_class_methods_and_static_methods_are_hooks() -> None:
    class Watcher(Extension):
        @classmethod
        def pre_train(cls) -> None: ...

        @staticmethod
        def post_train() -> None: ...

    assert Training([Watcher()]).check() == []


def test_a_property_of_a_loop_is_a_mistake_only_if_it_has_the_name_of_one_of_its_stages() -> None:
    class Loop(Training):
        @property
        def pre_trained(self) -> bool:
            raise AssertionError("was looked at")

    class Hooked(Loop):
        post_train = property(lambda self: print)

    Loop().check()
    assert mistake(Hooked()).startswith("Hooked.post_train has the name of a hook, but is a property")


# ---- when they are told ----------------------------------------------------------------------------------------------


class Foreign(Extension):
    def on_train_epoch_end(self) -> None: ...


def test_all_lookalikes_come_in_one_error_with_the_mistakes_in_hooks() -> None:
    class Mine(Foreign):
        def post_train_step_batch(self, los: float) -> None: ...

    tm = tiny_manager(Mine(), Foreign())
    with pytest.raises(CheckError) as error:
        tm.train()

    assert [(found.asked_by, found.name) for found in error.value.mistakes] == [
        ("Mine.post_train_step_batch", "los"),
        ("Mine.on_train_epoch_end", "on_train_epoch_end"),
        ("Foreign.on_train_epoch_end", "on_train_epoch_end"),
    ]
    assert tm.step_num == 0


def test_an_extension_without_hooks_is_told_as_the_first_stage_opens() -> None:
    class Watcher(Extension):
        def on_train(self) -> None: ...

    with pytest.raises(CheckError, match=r"1\. Watcher\.on_train looks like a hook, but would never run"):
        Training([Watcher()]).train()


def test_an_extension_that_joins_an_open_run_is_told_and_does_not_join() -> None:
    class Adds(Extension):
        def pre_train_step_batch(self, train_manager: TrainManager) -> None:
            train_manager.add_extension(Foreign())

    tm = tiny_manager(Adds())
    with pytest.raises(CheckError, match="as an extension was added"):
        tm.train()
    assert [*tm.extensions] == ["adds"]


# ---- extensions that do nothing --------------------------------------------------------------------------------------


def test_an_extension_that_does_nothing_is_told_so() -> None:
    class Mine(Extension):
        def helper(self) -> None: ...

    with pytest.warns(
        UserWarning, match="Mine has no hook and no fixture, so it does nothing: hooks are called"
    ) as told:
        Training([Mine()]).train()
    assert told[0].filename == __file__


class Around(Extension):
    def around_train(self) -> Any:
        yield


@pytest.mark.parametrize("name", ["state_dict", "replace_parameters", "around_train"])
def test_one_that_does_something_else_is_not(name: str) -> None:
    Training([type("Mine", (Extension,), {name: lambda self: {}})() if name != "around_train" else Around()]).check()
