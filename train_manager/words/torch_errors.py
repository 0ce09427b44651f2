"""Messages of torch about a mistake, and the line of code that cures it.

A cure may have groups of its pattern (``\\1``). A cure such as ``{devices}`` is a name, for which ``data/cures.py``
writes a text from the values that torch has refused.
"""

from __future__ import annotations

from typing import Final

CURES: Final = (
    # the batch, and what the model returns
    (r"must be Tensor, not|has no attribute '(?:size|shape|dim|dtype|device|to)'", "{no_tensor}"),
    (r"on the same device|not on the expected device", "{devices}"),
    (
        r"missing the required \"forward\" function",
        "it has submodules only: override train_batch, and eval_batch, which sets self.fixtures['loss'] "
        "(or give eval_data=None); for predictions, override model_forward(self, model, inputs)",
    ),
    (
        r"got mixed torch\.Tensor and DTensor",
        "a submodule that was called by itself has only shards of its parameters: name it in "
        'Distributed("fsdp", shard=[...]), or call the model; a method other than forward needs '
        "register_fsdp_forward_method(model, ...) in a hook pre_train",
    ),
    (r"out of memory", "train on smaller batches, and gather several: batch_size=..., Accumulate(4)"),
    # the inputs
    (r"cannot be multiplied \(\d+x(\d+) and (\d+)x", r"a layer for \2 features is given \1: nn.Linear(\1, ...)"),
    (r"mat1 and mat2 must have the same dtype|^Input type \(", "{types}"),
    (r"'indices' to have one of the following scalar types", "indices must be whole numbers: inputs.long()"),
    (
        r"weight of size .* to have (\d+) channels, but got (\d+)",
        r"a convolution of \1 channels is given \2: nn.Conv2d(\2, ...), or inputs.unsqueeze(1) if they have none",
    ),
    (r"expected (?:2D or 3D|[45]D) input \(got", "the first dimension must be the batch; a single row is x[None]"),
    (r"Expected more than 1 value per channel when training", "BatchNorm needs two examples: drop_last=True"),
    # the targets
    (
        r"softmax.* not implemented for '(?:Long|Int)'",
        "the loss is called as loss(prediction, targets): take them in this order",
    ),
    (r"target dtype to be Long|scalar type Long", "labels must be whole numbers: targets.long()"),
    (r"multi-target not supported", "labels must be of shape (batch,): targets.squeeze(1)"),
    (r"target with class probabilities", "one-hot targets must be probabilities: targets.float()"),
    (
        r"cast to the desired output type Long|Found dtype Long",
        "these targets must not be whole numbers: targets.float()",
    ),
    (
        r"Target (-?\d+) is out of bounds",
        r"labels must be from 0 to the number of outputs - 1, but one is \1: nn.Linear(..., number of classes)",
    ),
    (r"to match target batch_size", "{batch_sizes}"),
    (r"arget size .* input size|size of tensor a .* must match", "{shapes}"),
    # the backward
    (
        r"backward through the graph a second time",
        "several updates of one graph: self.update(loss, ..., retain_graph=True) for all but the last",
    ),
    (
        r"modified by an inplace operation",
        "weights were stepped before a later backward: call self.backward(...) for all losses, then self.step(...)",
    ),
)
"""Patterns in the text of errors, each with its cure; the first pattern that is found counts."""
