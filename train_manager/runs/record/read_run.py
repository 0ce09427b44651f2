"""The folder of a training, read by any program at any time: also while a run is open, or after it was killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from train_manager.checkpoints.checkpoint_folder import CheckpointFolder
from train_manager.files.atomic import quote_path
from train_manager.reporting.figures import for_notebook, panels_figure
from train_manager.reporting.history import History
from train_manager.reporting.loss_panels import loss_panels
from train_manager.reporting.values import html_table, plural
from train_manager.runs.code.record import read_code_record
from train_manager.runs.record.loss_curves import loss_curves
from train_manager.runs.record.run_file import Entry, outcome_of, read_runs, runs_and_problems
from train_manager.runs.store.reader import MetricReader
from train_manager.telling.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def read_run(train_dir: Path | str) -> RunFolder:
    """Return the records of a training in its ``train_dir``.

    >>> import tempfile
    >>> from train_manager.extensions import MetricStore
    >>> from train_manager.testing import tiny_manager
    >>> folder = tempfile.mkdtemp()
    >>> result = tiny_manager(MetricStore(), epochs=2, train_dir=folder).train()
    >>> found = read_run(folder)
    >>> found.history
    History(2 epochs, 3 evaluations; last epoch: loss 0.6762, valid loss 0.654)
    >>> len(found.metrics.to_pandas("loss", "train_step_batch"))
    6

    Raises:
        InputError: there is no such folder.
    """
    return RunFolder(Path(train_dir))


@final
class RunFolder:
    """A ``train_dir``, as ``read_run`` returns it. What is in it is read anew at each access.

    Args:
        path: the folder.

    Raises:
        InputError: there is no such folder.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            cure = "give the train_dir of a training"
            raise InputError(f"there is no folder {quote_path(path)}", name="train_dir", asked_by="read_run", cure=cure)
        self.path = path

    @property
    def entries(self) -> list[Entry]:
        """The entry of each run, the oldest first."""
        return read_runs(self.path)

    @property
    def metrics(self) -> MetricReader:
        """All metrics.

        Raises:
            InputError: there are none.
        """
        return MetricReader(self.path)

    @property
    def history(self) -> History:
        """The rows of epochs and evaluations, as ``tm.history`` had them."""
        history = History()
        history.load_state_dict(self.metrics.history())
        return history

    @property
    def checkpoints(self) -> list[Path]:
        """The folders of the checkpoints, the oldest first."""
        return CheckpointFolder(self.path / "checkpoints").checkpoints()

    def code(self, run_id: str) -> dict[str, Any]:
        """Return the code record of a run.

        Raises:
            InputError: there is none.
            CheckpointError: it is damaged, or of a newer version.
        """
        found = read_code_record(self.path, run_id)
        if found is None:
            what = f"the code of run {run_id!r} was not recorded in {quote_path(self.path)}"
            raise InputError(what, name="run_id", asked_by="code", cure="the ids are in `entries`")
        return found

    def loss_curves(self) -> Figure:
        """Return the figure that ``LossCurves`` draws."""
        return for_notebook(panels_figure(loss_panels(*loss_curves(self.metrics))))

    def __repr__(self) -> str:
        counts = f"{plural(len(self._rows()), 'run')}, {plural(len(self.checkpoints), 'checkpoint')}"
        return f"RunFolder({str(self.path)!r}: {counts})"

    def _repr_html_(self) -> str:
        head = ["run", "began", "outcome", "epochs", "steps"]
        return html_table(head, self._rows(), caption=str(self.path))

    def _rows(self) -> list[list[str]]:
        """Return a row of texts for each run that can be read."""
        entries, _ = runs_and_problems(self.path)
        return [
            [
                entry["id"],
                entry["began"],
                outcome_of(entry),
                *(str((entry.get("progress") or {}).get(name, "")) for name in ("epochs", "steps")),
            ]
            for entry in entries
        ]
