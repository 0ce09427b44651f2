"""Evaluation and prediction, from the outside in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any, cast

from torch import nn

from train_manager.data.cures import add_cure
from train_manager.data.random_state import preserve_random_state
from train_manager.loop.arguments import (
    require_eval_step,
)
from train_manager.loop.attributes import Model
from train_manager.loop.batch import Batch
from train_manager.loop.compiled import Compiled
from train_manager.loop.feed import eval_batches
from train_manager.loop.losses import Losses
from train_manager.loop.outputs import (
    join_predictions,
    refuse_metrics_of_places,
    require_prediction,
    require_scalar_loss,
    returned_value_error,
)
from train_manager.loop.ranks import eval_shares
from train_manager.loop.skip import skippable
from train_manager.loop.windows import (
    preserve_gradients,
)
from train_manager.metrics.averages import WeightedMean, mean_of
from train_manager.reporting.results import EvalResult


class Evaluation(Compiled[Model]):
    """The stages of an evaluation and of a prediction."""

    @skippable("run")
    def _eval_in_run(self, entry: str, data: Mapping[str, Iterable[Any]] | None) -> dict[str, EvalResult] | None:
        with self._in_run(entry):
            results = self._eval(self.eval_data if data is None else data)  # an extension may add a set as a run opens
            # Not eval_on_batch, whose result is of one batch; and not in a program that resumes and is still on its
            # way, as the loaded history has this evaluation already.
            if entry == "eval" and not self._program.has_calls_left:
                self._record_evaluation(results)
            return results

    def _evaluate(self) -> None:
        """Evaluate for the loop, which does it at most once per step."""
        run = self._progress.run
        # Before the hooks, as one of them may request the next evaluation.
        run.requests = run.requests.without("evaluate")
        if run.evaluated_at != self.step_num:
            self._record_evaluation(self._eval(self.eval_data))
            run.evaluated_at = self.step_num  # after it: an evaluation that has failed may be repeated

    @skippable("eval")
    def _eval(self, eval_data: Mapping[str, Iterable[Any]]) -> dict[str, EvalResult]:
        if not eval_data:
            return {}
        results: dict[str, EvalResult] = {}
        with self._evaluating(), self.staged("eval") as stage:
            for name, data in eval_data.items():
                result = self._eval_step_epoch(name, data)
                if result is not None:
                    results[name] = result
            self.fixtures["eval_results"] = results
            stage.keep("eval_results")
        self._progress.run.keep_results(stage.kept["eval_results"], self.step_num)
        return self._progress.run.results

    @skippable("eval_step_epoch")
    def _eval_step_epoch(self, name: str, data: Iterable[Any]) -> EvalResult:
        with self.staged("eval_step_epoch", {"datasource_name": name}) as stage:
            mean_loss, data_name = WeightedMean(), f"eval_data[{name!r}]"
            is_within, own = self._progress.feed.is_within(data), self._own_methods()
            batches = eval_batches(data, data_name, self.epoch_num, is_within=is_within)
            had_loss = [  # for each batch True or False; None if a hook has skipped it
                self._eval_step_batch(self._setup.on_device(batch), mean_loss, data_name, own, counts=counts)
                for batch, counts in eval_shares(batches, self.ranks, data, data_name)
            ]
            found = self.ranks.sum([*mean_loss.totals(), had_loss.count(False), had_loss.count(True)])
            total, weight, without, having = found
            has_none = without and not having  # an own eval_batch has set no loss in any batch
            self.fixtures["eval_result"] = {} if has_none else {"loss": mean_of(total, weight)}
            # The fixture dies with the stage; stage.kept has its value after the block, as the post hooks left it.
            stage.keep("eval_result")
        return cast(EvalResult, stage.kept["eval_result"])

    @skippable("eval_step_batch")
    def _eval_step_batch(
        self, batch: Any, mean_loss: WeightedMean, data_name: str, own: Set[str], *, counts: bool
    ) -> bool:
        """Evaluate a batch, perhaps in an own ``eval_batch``; return whether it has a loss."""
        with self.staged("eval_step_batch", {"batch": batch, "losses": Losses()}):
            self._unpack(data_name)  # after the pre hooks, which may have modified the batch
            if not counts:  # its examples count in another process
                self.fixtures.modify("true_batch_size", 0)
            if isinstance(self.model, nn.Module):
                # Terms that an own eval_batch adds beside forward() are kept by name, but are in no loss: the loss that
                # it sets in the fixtures is complete.
                self._collector.beside = self._losses if "eval_batch" in own else None
                evaluate: Callable[[], Any] = self._chosen.eval_batch if own else self._eval_forward
                try:
                    returned = evaluate()
                except Exception as error:
                    add_cure(error, self._store.computed)
                    raise
                finally:
                    self._collector.beside = None
                if returned is not None:
                    raise returned_value_error(returned, "eval_batch")
            else:
                self.fixtures["loss"] = require_scalar_loss(require_eval_step(self.model)(self.fixtures["batch"]))
            loss = self.fixtures.get("loss")
            if loss is not None:
                mean_loss.append(require_scalar_loss(loss), weight=self.fixtures["true_batch_size"])
        return loss is not None

    def _own_methods(self) -> Set[str]:
        """Return which of the methods are overridden that an evaluated batch calls before its inner stages."""
        return {name for name in ("eval_batch", "forward") if self._overrides(name, Batch)}

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Leave modes, random states and gradients as they were."""
        # An eval_batch may run a backward pass (attacks on the inputs): its gradients must not enter an open window.
        if self._compiling is not None:
            self._compiling.round = object()
        with self.mode(training=False), preserve_random_state(), preserve_gradients(self._setup.parameters()):
            with self._collector:
                yield

    def _record_evaluation(self, results: Mapping[str, EvalResult] | None) -> None:
        """Add an evaluation to the history."""
        place = self._begin_row()
        if self.fixtures["standalone_eval"]:
            place["standalone"] = True
        self.history.add_evaluation(results or {}, place)
        names = [name for result in (results or {}).values() for name in result]
        refuse_metrics_of_places("eval_result", names, self._registry.hooks)

    def _begin_row(self) -> dict[str, Any]:
        """Return the epoch, the step and the phase, with which each row of the history begins."""
        phase = self.fixtures["phase_name"]
        place = {"epoch": self.epoch_num, "step": self.step_num}
        return place if phase is None else {**place, "phase": phase}

    # ---- prediction --------------------------------------------------------------------------------------------------

    @skippable("run")
    def _predict_in_run(self, data: Iterable[Any]) -> Any:
        with self._in_run("predict"):
            return self._predict(data)

    @skippable("predict")
    def _predict(self, data: Iterable[Any]) -> Any:
        # Each call has data of its own, whose batches may be made of other parts than those of the call before.
        self._progress.run.structures.pop("data", None)
        with self._evaluating(), self.staged("predict") as stage:
            batches = eval_batches(data, "data", self.epoch_num, is_within=self._progress.feed.is_within(data))
            predictions = [self._predict_step_batch(self._setup.on_device(batch)) for batch in batches]
            self.fixtures["predictions"] = join_predictions([one for one in predictions if one is not None])
            stage.keep("predictions")
        return stage.kept["predictions"]

    @skippable("predict_step_batch")
    def _predict_step_batch(self, batch: Any) -> Any:
        with self.staged("predict_step_batch", {"batch": batch}) as stage:
            self.fixtures["inputs"] = self._inputs_and_targets("data")["inputs"]
            try:
                prediction = self._predict_forward()
            except Exception as error:
                add_cure(error, self._store.computed)
                raise
            self.fixtures["prediction"] = require_prediction(prediction, self.model, type(self), "eval_model_forward")
            stage.keep("prediction")  # stage.kept has it after the block, as the post hooks have left it
        return stage.kept["prediction"]
