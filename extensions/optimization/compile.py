"""A batch as one graph of ``torch.compile``, or as two, where no hook looks inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from train_manager.core.extension import Extension
from train_manager.loop.compiling import Mode
from train_manager.rebuilding.recorded import recorded

if TYPE_CHECKING:
    from train_manager.manager import TrainManager


@recorded
class Compile(Extension):
    """Train on a batch as one graph: forward pass, loss, gradients and the step of SGD, Adam or AdamW.

    >>> from train_manager.testing import tiny_manager
    >>> tm = tiny_manager(Compile())
    >>> "one graph" in str(tm.explain(all=True))
    True

    ``ClipGradients`` clips inside the graph. The batch is cut into two graphs before the step if another hook looks at
    the gradients (``GradientNorms``) or runs before the step (``WarmUp``). It runs eagerly, as without ``Compile``, if
    a hook looks further inside, or if a part of it is not known: another optimizer, several of them, a method of your
    own. ``explain()`` says which it is, and what bounds it.

    Evaluations have graphs of their own, of forward pass and loss in eval mode, unless a hook stands between the two or
    a method of your own runs there; ``predict`` has graphs of the model. Metrics are computed outside. The graph and
    the eager batch take turns until ten times of each are known; then the faster runs, and a line says so.

    The results are not those of an eager training bit for bit: the sums are the same, but are rounded elsewhere. The
    optimizer keeps its state, and the model its names, so that a checkpoint loads into a training without ``Compile``.

    A graph is made for each shape of batch that comes a third time, which takes from seconds to a minute; at most 20
    are kept of training, of evaluations and of ``predict``, and batches of other shapes run eagerly, such as a smaller
    last batch. The line that says how long it took also says after how many batches it has paid. If torch cannot make a
    graph, a line says why, and the training goes on eagerly.

    After the batch, ``loss`` and ``prediction`` have no graph: ``loss.backward()`` in a hook raises.

    *Runs at:* around ``run``.

    *Asks for:* nothing.

    *Leaves behind:* a line of text.

    Args:
        file: where to print it; None is ``sys.stderr`` at that time.
        graph_made: called with "train" or "eval" after the first batch of each graph; "eval" is also for ``predict``.
    """

    sole = True
    compiles = True  # explain() says how a batch runs

    def __init__(self, file: TextIO | None = None, *, graph_made: Callable[[Mode], Any] | None = None) -> None:
        self.file = file
        self.graph_made = graph_made

    def around_run(self, train_manager: TrainManager) -> Iterator[None]:
        with train_manager._with_graphs(self.file, self.graph_made):
            yield
