"""The findings about a leak, and about norms that mix the batch on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from torch import nn

from train_manager.diagnosis.judge import Leak
from train_manager.telling.findings import Finding

CHECK: Final = "batch leak"

NORMS: Final = 4
"""The most norms that a note names."""

FORWARD: Final = "look in its forward for a view, a reduction, an index or a state that mixes examples"

RULES: Final = {
    "value": ("what the model returns for example {example}{of} depends on {others}", FORWARD),
    "mixed": ("what the model returns{of} depends in one place on examples of both halves of the batch", FORWARD),
    "reaches": (
        "the gradient of other examples' outputs reaches example {example}{of}",
        "look in it for a detached path, a backward of its own or a hook that mixes examples",
    ),
    "depends": (
        "the gradient{of} that some examples give depends on the others, though the outputs do not",
        "look in it for a backward of its own, a hook or a detached path that mixes examples",
    ),
    "sum": (
        "the gradients{of} of two halves of the batch do not add up to those of the whole batch",
        "look in it for a backward of its own or a hook that scales by all gradients together",
    ),
}
"""The text of the finding if a rule does not hold, and its cure."""


def finding_of(leak: Leak, source: int | None, name: str | None, model: nn.Module) -> Finding:
    """Return the finding about a leak in the named module; without a name in the model itself."""
    module = dict(model.named_modules())[name or ""]
    where = f"{name or 'the model itself'} ({type(module).__name__})"
    # The model itself cannot be allowed: then nothing would be checked.
    allowed = f"; if that is intended, pass allow=[{name!r}]" if name else ""
    numbers: dict[str, float | int | str] = {"way": "forward" if leak.is_forward else "backward", "change": leak.size}
    numbers |= {key: one for key, one in (("example", leak.example), ("depends on", source)) if one is not None}
    what, cure = RULES[leak.rule]
    of, others = f" in {leak.of!r}" if leak.of else "", "other examples" if source is None else f"example {source}"
    what = what.format(example=leak.example, of=of, others=others)
    return Finding(CHECK, "error", what, where, cure + allowed, numbers)


def note_of(norms: Mapping[str, nn.Module]) -> Finding:
    """Return the note about norms over the batch."""
    kinds = ", ".join(dict.fromkeys(type(norm).__name__ for norm in norms.values()))
    what = f"{kinds} mixes the examples of a batch on purpose in train mode; what is before and after was judged"
    first, rest = list(norms)[:NORMS], len(norms) - NORMS
    named = ", ".join(name or "the model itself" for name in first)
    return Finding(CHECK, "note", what, f"{named} and {rest} more" if rest > 0 else named)
