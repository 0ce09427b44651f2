"""What the tests of the examples share: a training is compared with its twin, the same training written by hand.

The model, the data and other parts of the task are imported by the twin from the example, and count for neither. What
is left is counted: the code lines of the manager (with its subclass and extensions), and those of the loop by hand.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import pytest
import torch
from torch import Tensor, nn

from train_manager import Extension, TrainManager

ROOT = Path(__file__).parents[2]

_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


class Record(Protocol):
    """Called by a twin with the losses of each batch; these lines do not count."""

    def __call__(self, *losses: Tensor) -> None: ...


class Trained(NamedTuple):
    """What a training has left: weights and buffers, the losses of its batches, and the lines that it has printed."""

    weights: dict[str, Tensor]
    losses: list[Tensor]
    lines: list[str]


# ---- the same weights and losses -------------------------------------------------------------------------------------


def by_hand(train: Callable[[Record], nn.Module]) -> Trained:
    """Train a twin."""
    losses: list[Tensor] = []
    torch.manual_seed(0)
    with redirect_stdout(io.StringIO()) as printed:
        model = train(lambda *new: losses.extend(loss.detach().clone() for loss in new))
    return Trained(model.state_dict(), losses, printed.getvalue().splitlines())


def by_manager(
    make: Callable[[], TrainManager], *optimizers: str, train: Callable[[TrainManager], object] = TrainManager.train
) -> Trained:
    """Train the manager of an example; the losses are ``loss``, or those of the named optimizers."""
    seen: list[Tensor] = []

    def note(loss: Tensor, losses: dict[str, Tensor]) -> None:
        found = [losses[name] for name in optimizers if name in losses] if optimizers else [loss]
        seen.extend(one.detach().clone() for one in found)

    torch.manual_seed(0)
    with redirect_stdout(io.StringIO()) as printed:
        tm = make()
        tm.add_extension(Extension.of(post_train_step_batch=note))
        train(tm)
    # Not how the training ended, which Log says at last, and the loop by hand does not.
    ending = ("done ", "look at it: ", "its files are in ")
    lines = [line for line in printed.getvalue().splitlines() if not line.startswith(ending)]
    return Trained(tm.model.state_dict(), seen, lines)


def fork_evaluation(twin: ModuleType, patch: pytest.MonkeyPatch) -> None:
    """Put the random state back after each evaluation of a twin that draws random numbers in it."""
    evaluate = twin.evaluate

    def in_fork(*arguments: Any) -> Any:
        with torch.random.fork_rng():
            return evaluate(*arguments)

    patch.setattr(twin, "evaluate", in_fork)


def assert_equal(one: Trained, other: Trained) -> None:
    """Compare two trainings bit for bit."""
    assert one.weights.keys() == other.weights.keys()
    assert [name for name in one.weights if not torch.equal(one.weights[name], other.weights[name])] == []
    assert len(one.losses) == len(other.losses) > 0
    assert torch.equal(torch.stack(one.losses), torch.stack(other.losses))
    assert one.lines == other.lines


def are_equal(one: Trained, other: Trained) -> bool:
    return all(torch.equal(weight, other.weights[name]) for name, weight in one.weights.items())


# ---- no more lines ---------------------------------------------------------------------------------------------------


def lines_of_example(name: str) -> int:
    """Return the code lines of an example, without imports, ``main`` and what its twin imports."""
    path, twin = ROOT / "examples" / f"{name}.py", ROOT / "tests" / "examples" / "twins" / f"{name}.py"
    parts = {part: node for node in _own_parts(path) for part in _names_defined(node)}
    imported = [node for node in ast.walk(ast.parse(twin.read_text())) if isinstance(node, ast.ImportFrom)]
    shared = {alias.name for node in imported if node.module == f"examples.{name}" for alias in node.names}
    found: set[str] = {"main"}
    while shared:  # and what these need themselves
        part = shared.pop()
        found.add(part)
        shared |= ({node.id for node in ast.walk(parts[part]) if isinstance(node, ast.Name)} & parts.keys()) - found
    return len({line for part, node in parts.items() if part not in found for line in _code_lines(path, node)})


def lines_of_twin(name: str) -> int:
    """Return the code lines of a twin, without imports and the lines that record losses for the test."""
    path = ROOT / "tests" / "examples" / "twins" / f"{name}.py"
    text = path.read_text().splitlines()
    lines = {line for node in _own_parts(path) for line in _code_lines(path, node)}
    return len([line for line in lines if not text[line - 1].strip().startswith("record(")])


def _own_parts(path: Path) -> Iterator[ast.stmt]:
    """Yield the statements of a file at its outermost level, without imports and ``if __name__ == "__main__"``."""
    for node in ast.parse(path.read_text()).body[1:]:  # the first is the docstring
        if not isinstance(node, ast.Import | ast.ImportFrom | ast.If):
            yield node


def _names_defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    assert isinstance(node, ast.Assign), ast.unparse(node)
    return [name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def _code_lines(path: Path, part: ast.stmt) -> set[int]:
    """Return the numbers of the lines of a statement that are not empty, comments or docstrings."""
    assert part.end_lineno is not None
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    code = {line for token in tokens if token.type not in _NO_CODE for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(part):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            code -= set(range(node.lineno, (node.end_lineno or 0) + 1))
    first = min(decorator.lineno for decorator in [part, *getattr(part, "decorator_list", [])])
    return code & set(range(first, part.end_lineno + 1))
