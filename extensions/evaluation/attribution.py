"""Attribution: the share of each number of the input in a prediction, by integrated gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from train_manager.core.extension import Extension
from train_manager.rebuilding.recorded import recorded
from train_manager.telling.errors import InputError
from train_manager.validation import require_count

if TYPE_CHECKING:
    from train_manager.runs.store.writer import MetricWriter


@recorded
class Attribution(Extension):
    """Show how much each number of the input adds to the prediction, for the first examples of each evaluation set.

    >>> from train_manager.testing import tiny_manager
    >>> attribution = Attribution(examples=4)
    >>> result = tiny_manager(attribution, epochs=2).train()
    >>> attribution.shares["valid"].shape
    torch.Size([4, 2])

    The shares are integrated gradients (Sundararajan et al. 2017, arXiv 1703.01365), made by captum, of the logit of
    the class that the model says. The shares of an example add up to its logit less the logit of the baseline; ``gaps``
    has the difference that is missing, which more ``steps`` make smaller. The extension needs captum:
    ``pip install "train-manager[attribution]"``.

    Where several processes train together, these are the first examples that rank 0 evaluates.

    *Runs at:* the start and the end of ``eval_step_epoch``, and the end of ``eval_step_batch``.

    *Asks for:* ``model``, ``inputs``, ``prediction`` and ``datasource_name``; ``writer`` if there is one.

    *Leaves behind:* in ``metrics.sqlite`` the array ``attribution/valid``, the mean of the shares' sizes; of images the
    picture ``attribution/valid``, brighter where a share is larger.

    Args:
        examples: how many of each set.
        baseline: the number that all inputs have in the example to compare with.
        steps: the number of points between the baseline and the example at which the gradient is computed.

    Attributes:
        shares: of each set, in its last evaluation in this process, a tensor of the shape of the inputs.
        gaps: of each set, how far the sum of an example's shares is from the difference that they explain.

    Raises:
        InputError: ``examples`` or ``steps`` is not a whole number of at least 1; in a run, several processes train
            with strategy "fsdp"; in an evaluation, the inputs are not a tensor of numbers, or the prediction has no
            column for each class.
        ImportError: as the extension is made: captum is not installed.
    """

    ranks = 0
    needs_whole_model = True  # it calls the model by itself, which strategy "fsdp" of Distributed refuses

    def __init__(self, examples: int = 8, baseline: float = 0.0, steps: int = 50) -> None:
        try:
            # Imported as the extension is made: captum is optional, and its absence must show before hours of training.
            from captum.attr import IntegratedGradients
        except ImportError as error:
            what = f'Attribution needs captum ({error}): pip install "train-manager[attribution]"'
            raise ImportError(what) from error
        self._method = IntegratedGradients
        self.examples = require_count(examples, "examples", at_least=1)
        self.baseline, self.steps = float(baseline), require_count(steps, "steps", at_least=1)
        self.shares: dict[str, Tensor] = {}
        self.gaps: dict[str, Tensor] = {}

    def pre_eval_step_epoch(self, datasource_name: str) -> None:
        # The entries are those of the evaluation before, which this one replaces.
        self.shares.pop(datasource_name, None)
        self.gaps.pop(datasource_name, None)

    def post_eval_step_batch(
        self,
        model: nn.Module,
        inputs: Any,
        prediction: Any,
        datasource_name: str,
        writer: MetricWriter | None = None,
    ) -> None:
        # The first examples of each set are explained, over as many batches as they take: the same ones in
        # every evaluation, if the set is not shuffled.
        left = self.examples - len(self.shares.get(datasource_name, ()))
        if not left:
            return
        if not (isinstance(inputs, Tensor) and inputs.is_floating_point()):
            kind = inputs.dtype if isinstance(inputs, Tensor) else type(inputs).__name__
            raise _unlike(f"inputs that are a tensor of floats, but they are {kind}")
        if not (isinstance(prediction, Tensor) and prediction.dim() == 2):
            raise _unlike("a prediction with a column for each class")
        some = inputs[:left].detach()
        with torch.enable_grad():  # an evaluation runs under no_grad, and integrated gradients are made of gradients
            shares, gaps = self._method(model).attribute(
                some,
                # The baseline: where the path of integration begins.
                torch.full_like(some, self.baseline),
                # The class that the model says for each example, not the true one.
                target=prediction[: len(some)].argmax(1),
                n_steps=self.steps,
                # captum runs examples x steps inputs at once; in chunks of a batch they need the memory of a batch.
                internal_batch_size=max(len(inputs), len(some)),
                return_convergence_delta=True,
            )
        for kept, new in ((self.shares, shares), (self.gaps, gaps)):
            kept[datasource_name] = torch.cat(
                [*([kept[datasource_name]] if datasource_name in kept else []), new.detach()]
            )

    def post_eval_step_epoch(self, datasource_name: str, writer: MetricWriter | None = None) -> None:
        if writer is not None and datasource_name in self.shares:
            _write(writer, f"attribution/{datasource_name}", self.shares[datasource_name])


def _write(writer: MetricWriter, name: str, shares: Tensor) -> None:
    """Write shares: those of images side by side, others as the mean of their sizes over the examples."""
    if shares.dim() == 4:
        sizes = shares.abs().sum(1)  # over the colours: one number for each pixel
        # Each image is scaled to its own largest share; clamp_min keeps an image without any share from 0 / 0.
        largest = sizes.amax((1, 2), keepdim=True).clamp_min(torch.finfo(sizes.dtype).tiny)
        writer.image(name, torch.cat(list(sizes / largest), dim=1))
    else:
        writer.array(name, shares.abs().mean(0).reshape(-1))


def _unlike(needs: str) -> InputError:
    cure = "leave Attribution out, or call captum with a function of your model's inputs"
    return InputError(f"Attribution needs {needs}", name="inputs", asked_by="Attribution", cure=cure)
