"""Runs: how they open and end, their counters, their random states and their folder."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD

from tests.support.host_reads import HostReads
from tests.support.training import At, Batch, Values, make_batches, shuffled, skip_batch, skip_stage, stop_at, weights
from train_manager import Extension, InputError, TrainManager, provides
from train_manager.errors import CheckError
from train_manager.testing import Recorder, tiny_manager

# ---- counters ---------------------------------------------------------------------------------------------------


def test_counters_have_moved_in_the_post_hooks_of_the_stage_that_they_count() -> None:
    steps = Values("post_train_step_batch", "step_num")
    updates = Values("post_train_optimizer_step", "update_num")
    epochs = Values("post_train_step_epoch", "epoch_num")
    tiny_manager(steps, updates, epochs, epochs=2).train()

    assert (steps.seen, updates.seen, epochs.seen) == ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6], [1, 2])


def test_counters_say_what_is_completed_before_that() -> None:
    steps = Values("pre_train_step_batch", "step_num")
    updates = Values("pre_train_optimizer_step", "update_num")
    epochs = Values("pre_train_step_epoch", "epoch_num")
    tiny_manager(steps, updates, epochs, epochs=2).train()

    assert (steps.seen, updates.seen, epochs.seen) == ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [0, 1])


def test_a_skipped_batch_is_not_counted() -> None:
    tm = tiny_manager(At("post_train_model_forward", lambda step_num: skip_batch() if step_num == 1 else None))
    tm.train()

    assert (tm.epoch_num, tm.step_num, tm.update_num) == (1, 1, 1)


def test_an_update_that_is_skipped_is_not_counted_but_its_step_is() -> None:
    tm = tiny_manager(At("pre_train_optimizer_step", lambda step_num: skip_stage() if step_num % 2 == 0 else None))
    tm.train()

    assert (tm.step_num, tm.update_num) == (3, 1)


def test_a_second_train_trains_nothing_more_and_warns() -> None:
    tm = tiny_manager(epochs=2)
    tm.train()
    before = weights(tm.model)
    message = r"train\(\) has nothing to do: 2 of 2 epochs are done \(raise `epochs`, or call train_epochs\(n\)\)"
    with pytest.warns(UserWarning, match=message) as caught:
        tm.train()

    assert torch.equal(weights(tm.model), before)
    assert caught[0].filename == __file__


def test_train_continues_to_epochs_once_they_are_raised() -> None:
    tm = tiny_manager(epochs=1)
    tm.train()
    tm.epochs = 3
    tm.train()

    assert (tm.epoch_num, tm.step_num) == (3, 9)


def test_the_counters_of_a_checkpoint_are_the_fixtures_after_it() -> None:
    def load(train_manager: TrainManager) -> None:
        train_manager.epoch_num, train_manager.step_num, train_manager.update_num = 5, 15, 14

    counters = Values("pre_train", "epoch_num", "step_num", "update_num")
    tiny_manager(At("pre_load_checkpoint", load), counters, epochs=6).train()

    assert counters.seen == [(5, 15, 14)]


def test_no_epochs_only_evaluate() -> None:
    recorder = Recorder()
    tm = tiny_manager(recorder)
    tm.train_epochs(0)

    assert ("eval" in recorder.stages, "train_step_epoch" in recorder.stages) == (True, False)


def test_a_run_that_is_held_open_is_joined() -> None:
    recorder = Recorder()
    tm = tiny_manager(recorder)
    with tm.run():
        tm.train()
        tm.eval()
        tm.train_epochs(1)

    assert (recorder.stages.count("run"), recorder.stages.count("train")) == (1, 2)


def test_a_run_within_a_run_joins_it() -> None:
    recorder = Recorder()
    tm = tiny_manager(recorder)
    with tm.run(), tm.run():
        assert tm.fixtures.path == ("run",)
    assert recorder.stages == ["run", "load_checkpoint"]


def test_a_run_of_its_own_is_opened_for_each_otherwise() -> None:
    recorder = Recorder()
    tm = tiny_manager(recorder)
    tm.train()
    tm.eval()

    assert recorder.stages.count("run") == 2


# ---- random states ----------------------------------------------------------------------------------------------


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_a_seed_seeds_as_the_first_run_opens() -> None:
    drawn: list[object] = []
    for _ in range(2):
        draw()
        tiny_manager(At("pre_run", lambda: drawn.append(draw())), seed=5, eval_data=None).train()

    assert drawn[0] == drawn[1]


def test_a_seed_seeds_once() -> None:
    drawn: list[object] = []
    tm = tiny_manager(At("pre_run", lambda: drawn.append(draw())), seed=5, epochs=2)
    tm.train_epochs(1)
    tm.train_epochs(1)

    assert drawn[0] != drawn[1]


def test_making_a_manager_with_a_seed_draws_and_seeds_nothing() -> None:
    random.seed(1)
    expected = random.getstate()
    tiny_manager(seed=5)

    assert random.getstate() == expected


def test_without_a_seed_the_random_states_are_not_touched() -> None:
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = draw()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    tiny_manager().train()

    assert draw() == expected


def test_evaluation_leaves_the_random_states_as_it_found_them() -> None:
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = draw()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    tiny_manager(At("pre_eval_step_batch", lambda: (draw(), None)[1]), eval_data=shuffled()).eval()

    assert draw() == expected


# ---- the folder -------------------------------------------------------------------------------------------------


class Writer(Extension):
    def post_run(self, train_dir: Path) -> None:
        (train_dir / "done").touch()


def test_the_folder_is_made_when_a_run_opens(tmp_path: Path) -> None:
    tm = tiny_manager(Writer(), train_dir=tmp_path / "runs" / "first")
    assert not (tmp_path / "runs").exists()

    tm.train()
    assert (tmp_path / "runs" / "first" / "done").exists()


def test_a_folder_may_be_given_as_text(tmp_path: Path) -> None:
    assert tiny_manager(train_dir=str(tmp_path)).train_dir == tmp_path


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_manager().train()

    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_there_is_no_such_fixture() -> None:
    tm = tiny_manager()
    with tm.run():
        assert "train_dir" not in tm.fixtures


def test_an_extension_that_needs_a_folder_is_refused_by_name() -> None:
    tm = tiny_manager(Writer())
    with pytest.raises(InputError) as caught:
        tm.train()

    first, asked_at, cure = str(caught.value).splitlines()
    assert first == "Writer.post_run (extension 'writer') needs a train_dir, but there is none"
    assert asked_at.startswith("  asked at     tests/loop/test_run_state.py:")
    assert cure == (
        '  pass train_dir="runs/first", or leave that extension out: '
        "default_extensions(files=False) has none that needs it"
    )


def test_an_extension_that_can_do_without_a_folder_is_not_refused() -> None:
    class Optional(Extension):
        def post_run(self, train_dir: Path | None = None) -> None:
            assert train_dir is None

    tiny_manager(Optional()).train()


# ---- the rest ---------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_not_loaded_until_a_hook_says_so() -> None:
    loaded = Values("post_run", "epoch_num")
    states: list[Any] = []

    class Loader(Extension):
        def pre_load_checkpoint(self, fixtures: Any, checkpoint_loaded: object) -> None:
            states.append(checkpoint_loaded)
            fixtures.modify("checkpoint_loaded", "a/path")

        def post_load_checkpoint(self, checkpoint_loaded: object) -> None:
            states.append(checkpoint_loaded)

    tm = tiny_manager(Loader(), loaded)
    tm.train()
    tm.eval()

    assert states == [False, "a/path"] * 2


def test_a_mistake_in_an_extension_that_is_added_during_a_run_says_when_it_was_found() -> None:
    tm = tiny_manager()
    with tm.run(), pytest.raises(CheckError) as error:
        tm.add_extension(post_train_stp_batch=lambda: None)
    first = str(error.value).splitlines()[0]
    assert first.endswith(", found as an extension was added or removed")


def test_an_extension_stays_if_another_one_asks_for_what_it_provides() -> None:
    class Answers(Extension):
        @provides("answer")
        def pre_train_step_epoch(self) -> int:
            return 42

    class Removes(Extension):
        def post_train_step_batch(self, train_manager: TrainManager) -> None:
            with pytest.raises(CheckError, match="wants 'answer', which is never alive"):
                train_manager.remove_extension("answers")

    seen: list[int] = []
    tm = tiny_manager(Answers(), Removes())
    tm.add_extension(post_train_step_epoch=lambda answer: seen.append(answer))
    tm.train()

    assert seen == [42]


def test_a_train_dir_that_is_a_file_is_refused_as_the_run_opens(tmp_path: Path) -> None:
    tm = tiny_manager()
    tm.train_dir = tmp_path / "file"
    tm.train_dir.touch()
    with pytest.raises(InputError, match="but a file is in the way"):
        tm.train()


def test_a_run_that_is_held_open_can_have_other_stages() -> None:
    seen: list[int] = []
    tm = tiny_manager(Extension.of(post_gan=lambda epoch_num: seen.append(epoch_num)))
    with tm.run():
        tm.train_epochs(1)
        with tm.staged("gan"):
            pass
    assert seen == [1]


def test_a_misspelt_stage_is_found_when_a_run_is_held_open_too() -> None:
    tm = tiny_manager(Extension.of(post_train_step_bach=lambda: None))
    with pytest.raises(CheckError, match="did you mean 'post_train_step_batch'"), tm.run():
        pass


def test_a_hook_of_a_stage_that_never_opened_is_warned_of_when_a_held_run_ends() -> None:
    tm = tiny_manager(Extension.of(post_gan=lambda: None))
    with pytest.warns(UserWarning, match=r"Hooks\.post_gan .* never ran: no stage 'gan' has opened"), tm.run():
        pass


# ---- where a call begins and ends ----------------------------------------------------------------------------------


class Unsized:
    """Four batches, without a length."""

    def __iter__(self) -> Iterator[Batch]:
        yield from make_batches(4)


def ends(tm: TrainManager, call: Callable[[], object]) -> list[int | None]:
    """Return ``end_step`` as each step of a call reads it."""
    seen: list[int | None] = []
    tm.add_extension(pre_train_step_batch=lambda end_step: seen.append(end_step), name="ends")
    call()
    tm.remove_extension("ends")
    return seen


def test_the_end_is_known_from_the_start_if_the_length_is() -> None:
    tm = tiny_manager(epochs=2)

    assert ends(tm, tm.train) == [6] * 6
    assert (tm.start_step, tm.end_step) == (0, 6)


def test_the_end_is_known_from_the_start_with_steps_per_epoch() -> None:
    tm = tiny_manager(train_data=Unsized(), steps_per_epoch=2, epochs=2)

    assert ends(tm, tm.train) == [4] * 4


def test_the_end_is_known_from_the_start_in_train_steps() -> None:
    tm = tiny_manager(train_data=Unsized())

    assert ends(tm, lambda: tm.train_steps(5)) == [5] * 5


def test_the_coming_epochs_are_expected_to_be_as_long_as_the_last_one() -> None:
    tm = tiny_manager(train_data=Unsized(), epochs=3)

    assert ends(tm, tm.train) == [None] * 4 + [12] * 8


def test_skipped_batches_make_the_end_come_sooner() -> None:
    small = At("pre_train_step_batch", lambda batch: skip_batch() if len(batch[0]) == 16 else None)
    tm = tiny_manager(small, epochs=2)
    tm.train()

    assert (tm.step_num, tm.end_step) == (2, 2)


def test_an_epoch_that_continues_counts_with_what_is_left_of_it() -> None:
    tm = tiny_manager()
    tm.train_steps(2)

    assert ends(tm, lambda: tm.train_epochs(2)) == [6, 6, 6, 6]


def test_a_run_that_was_stopped_has_ended_there() -> None:
    tm = tiny_manager(stop_at("post_train_step_batch"), epochs=2)
    tm.train()

    assert tm.end_step == 1


def test_progress_is_the_same_in_the_pre_and_the_post_hooks_of_a_step() -> None:
    seen: list[tuple[int, int | None, bool]] = []

    class Look(Extension):
        def pre_train_step_batch(self, train_manager: TrainManager) -> None:
            self.look(train_manager)

        def post_train_step_batch(self, train_manager: TrainManager) -> None:
            self.look(train_manager)

        def look(self, train_manager: TrainManager) -> None:
            progress = train_manager.progress
            seen.append((progress.done, progress.total, progress.is_last))

    tm = tiny_manager()
    tm.train()
    tm.add_extension(Look())
    tm.train_steps(3)

    assert seen[::2] == seen[1::2] == [(1, 3, False), (2, 3, False), (3, 3, True)]


def test_each_call_has_another_run_number_in_progress() -> None:
    tm = tiny_manager()
    runs = []
    with tm.run():
        for _ in range(2):
            tm.train_epochs(1)
            runs.append(tm.progress.run)

    assert runs[0] != runs[1]


# ---- examples ----------------------------------------------------------------------------------------------------


def test_examples_that_were_trained_on_are_counted() -> None:
    seen = Values("post_train_step_batch", "samples_seen")
    tm = tiny_manager(seen, epochs=2)
    tm.train()

    assert seen.seen == [16, 32, 40, 56, 72, 80]
    assert tm.samples_seen == 80


def test_examples_that_were_skipped_or_evaluated_are_not_counted() -> None:
    tm = tiny_manager(At("post_train_model_forward", lambda inputs: skip_batch() if len(inputs) == 8 else None))
    tm.train()
    tm.eval()

    assert tm.samples_seen == 32


def test_a_batch_size_in_a_tensor_is_counted_in_a_tensor_that_is_converted_where_it_is_read() -> None:
    class Sized(TrainManager):
        def get_true_batch_size(self, inputs: Tensor) -> Any:
            return torch.tensor(len(inputs))

    tm = Sized(model=nn.Linear(2, 2), loss=F.cross_entropy, optimizer=SGD, train_data=make_batches(3))
    with HostReads() as reads:
        tm.train_steps(3)
    before = reads.count

    assert repr(tm.samples_seen) == "12"
    assert repr(tm.state_dict()["counts"]["samples_seen"]) == "12"
    assert before == 0


# ---- how long a step takes ---------------------------------------------------------------------------------------


def test_the_median_step_time_is_known_after_one_step() -> None:
    tm = tiny_manager()
    tm.train_steps(1)

    assert tm.median_step_seconds > 0
