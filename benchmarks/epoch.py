"""What an epoch with an evaluation costs above the same in a plain script that knows the same tricks.

python -m benchmarks epoch
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.measure import interleaved, ratios, spread
from benchmarks.mlp import LEARNING_RATE, new_model
from benchmarks.section import Claim, Section, table
from train_manager import InMemory, TrainManager

BATCH: Final = 32
SCRIPT: Final = "plain script"
OURS: Final = "Train Manager"
PARTS: Final = f"{OURS}, copy=False"
LIMIT, GOAL = 1.25, 1.1
QUICK: dict[str, Any] = {"rounds": 1, "examples": 640, "epochs": 3}

TEXT: Final = """\
CPU time of an epoch of the MLP on {examples} examples in memory, in batches of {batch}, and of an evaluation on a
quarter as many; SGD is fused. The plain script takes slices of the tensors, reads no loss before the end of the epoch,
and sets gradients to None. InMemory takes slices too with `copy=False`, else it copies each batch. All end with the
same weights, bit for bit.

{table}
"""

Examples = tuple[Tensor, Tensor]


def section(rounds: int = 5, examples: int = 6400, epochs: int = 6) -> Section:
    """Measure."""
    torch.set_num_threads(1)
    train, valid = new_examples(examples), new_examples(examples // 4)
    runs: dict[str, Run] = {SCRIPT: script, OURS: ours, PARTS: partial(ours, copy=False)}
    expected = weights_after(script, train, valid, epochs)
    for name in (OURS, PARTS):
        assert expected.equal(weights_after(runs[name], train, valid, epochs)), f"the weights of {name} differ"
    cases = {name: seconds_of(run, train, valid, epochs) for name, run in runs.items()}
    measured = interleaved(cases, rounds)
    over = {name: ratios(measured[name], measured[SCRIPT]) for name in (OURS, PARTS)}
    rows = [[SCRIPT, spread(measured[SCRIPT]).times(1e3).shown(1), ""]]
    rows += [[name, spread(measured[name]).times(1e3).shown(1), ratio.shown(2)] for name, ratio in over.items()]
    text = TEXT.format(examples=examples, batch=BATCH, table=table(["one epoch", "CPU ms", "ratio"], rows))
    claims = [
        Claim(f"an epoch with an evaluation over a script, {name}", over[name].median, LIMIT, GOAL) for name in over
    ]
    return Section("An epoch", text, claims, on_page=False)


def new_examples(count: int) -> Examples:
    """So many examples, the same each time."""
    generator = torch.Generator().manual_seed(count)
    return torch.randn(count, 32, generator=generator), torch.randint(10, (count,), generator=generator)


def fused_sgd(parameters: Any) -> torch.optim.SGD:
    """The optimizer."""
    return torch.optim.SGD(parameters, lr=LEARNING_RATE, fused=True)


def script(model: nn.Sequential, train: Examples, valid: Examples, epochs: int) -> None:
    """The training by hand."""
    optimizer = fused_sgd(model.parameters())
    for _ in range(epochs):
        losses = []
        for inputs, targets in slices(train):
            loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
        assert torch.stack(losses).isfinite().all()
        model.eval()
        with torch.no_grad():
            sums = [F.cross_entropy(model(inputs), targets) * len(inputs) for inputs, targets in slices(valid)]
            (torch.stack(sums).sum() / len(valid[0])).item()
        model.train()


def slices(examples: Examples) -> list[Examples]:
    """The batches of one pass."""
    return list(zip(*(part.split(BATCH) for part in examples), strict=True))


def ours(model: nn.Sequential, train: Examples, valid: Examples, epochs: int, copy: bool = True) -> None:
    """The same with TrainManager as it comes; without ``copy``, on slices of the tensors."""
    tm = TrainManager(
        model=model,
        loss=F.cross_entropy,
        optimizer=fused_sgd,
        train_data=InMemory(*train, batch_size=BATCH, shuffle=False, copy=copy),
        eval_data={"valid": InMemory(*valid, batch_size=BATCH, shuffle=False, copy=copy)},
        eval_at="epoch",
        epochs=epochs,
    )
    tm.train()


Run = Callable[[nn.Sequential, Examples, Examples, int], None]


def weights_after(run: Run, train: Examples, valid: Examples, epochs: int) -> Tensor:
    """All weights after a run, in one row."""
    model = new_model()
    run(model, train, valid, epochs)
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def seconds_of(run: Run, train: Examples, valid: Examples, epochs: int) -> Callable[[], float]:
    """A case for ``interleaved``: CPU seconds of an epoch; what is done once in a run does not count."""

    def measured() -> float:
        began = process_time()
        run(new_model(), train, valid, epochs)
        middle = process_time()
        run(new_model(), train, valid, 2 * epochs)
        return (process_time() - middle - (middle - began)) / epochs

    return measured
