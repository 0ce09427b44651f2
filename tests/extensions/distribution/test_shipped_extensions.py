"""What the shipped extensions do on 2 ranks: all ranks train, and rank 0 alone writes and prints.

Each rank has a ``train_dir`` of its own here, unless a test says otherwise: so a file of rank 1 would be seen.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from tests.support.fork_server import ForkServer
from tests.support.rank_trainings import manager, whole
from tests.support.ranks import ends_of, on_ranks, start_ranks
from train_manager import Extension, TrainManager
from train_manager.extensions import (
    CodeRecord,
    Distributed,
    GradientNorms,
    Live,
    Log,
    LossCurves,
    Metrics,
    MetricStore,
    MLflow,
    PredictionGallery,
    Profile,
    ProgressBar,
    Report,
    RunRecord,
    TensorBoard,
    Throughput,
    UpdateRatios,
    WandB,
    WeightHistograms,
    default_extensions,
)
from train_manager.extensions.visualization import live
from train_manager.runs.record.read_run import read_run
from train_manager.runs.record.run_file import read_runs
from train_manager.runs.store.delivery import Sent
from train_manager.runs.store.reader import MetricReader
from train_manager.runs.store.sinks import Sink

pytestmark = pytest.mark.slow
WHOLE = pytest.mark.whole


class Rank(NamedTuple):
    """What a rank has come to."""

    value: Any
    printed: str
    errors: str
    files: list[str]  # in its train_dir


def trained_on_ranks(server: ForkServer, folder: Path, function: Callable[..., Any], *args: Any) -> list[Rank]:
    children = start_ranks(server, 2, function, *args, folder=folder)
    found = []
    for rank, (child, end) in enumerate(zip(children, ends_of(children, folder), strict=True)):
        assert not end.text, f"rank {rank} has failed\n{end.text}\n{end.output}"
        own = folder / f"of-rank-{rank}"
        files = sorted(str(path.relative_to(own)) for path in own.rglob("*") if path.is_file())
        assert files or not rank or not own.exists()  # rank 1 does not make the folder either
        # Versions of torch warn of their own functions, and gloo writes how many peers it has.
        errors = re.sub(r".*FutureWarning.*\n.*\n|.*\[Gloo\].*\n", "", child.errors)
        found.append(Rank(end.value, end.output, errors, files))
    return found


def own_dir() -> Path:
    return Path(f"of-rank-{os.environ['RANK']}")


# ---- one line for each extension -------------------------------------------------------------------------------------


class SentToFile:
    """A sink that notes how many rows it was sent."""

    def __init__(self, train_dir: Path) -> None:
        self.path = train_dir / "sent.txt"

    def send(self, rows: Sequence[object]) -> None:
        with self.path.open("a") as file:
            file.write(f"{len(rows)}\n")

    def close(self, ending: object) -> None: ...


class ToFile(Sink):
    tool = "file"
    package = "json"

    def connect(self, sent: Sent) -> SentToFile:
        return SentToFile(sent.train_dir)


class Shipped(NamedTuple):
    """What is there after a training on ranks."""

    make: Callable[[], list[Extension]]
    files: Sequence[str] = ()  # in the train_dir of rank 0, as patterns
    printed: str = ""  # by rank 0, as a pattern
    keeps: Callable[[TrainManager], Any] | None = None  # what rank 0 has in memory, and rank 1 has not


STORE = r"metrics\.sqlite"
SHIPPED: dict[str, Shipped] = {
    "ProgressBar": Shipped(lambda: [ProgressBar(force=True, interval=0, file=sys.stdout)], printed=r"epochs: 100%"),
    "Log": Shipped(lambda: [Log()], printed=r"\n1/2 .* best\n2/2 .* best\ndone after epoch 2/2 .*\n\Z"),
    "Log(every=2)": Shipped(
        lambda: [Log(every=2)], printed=r"step 2, epoch 1, batch 2 of 6, loss 1\.\d+, [\d.]+ examples/s\n"
    ),
    "LossCurves": Shipped(
        lambda: [LossCurves()],
        [r"plots/loss_curves\.svg"],
        keeps=lambda tm: tm.extension(LossCurves).training["batch"].x,
    ),
    "MetricStore": Shipped(lambda: [MetricStore()], [STORE]),
    "RunRecord": Shipped(lambda: [RunRecord()], [r"run-\w+\.json"]),
    "CodeRecord": Shipped(lambda: [CodeRecord(folder=".")], [r"code/\w+\.json"]),
    "Report": Shipped(lambda: [MetricStore(), Report()], [STORE, r"report\.html"]),
    "a sink": Shipped(lambda: [MetricStore(), ToFile()], [STORE, r"sent\.txt"]),
    "Profile": Shipped(
        lambda: [Profile(first=2, steps=1)],
        [r"profile/steps_2-2\.json", r"profile/steps_3-3\.prof"],
        keeps=lambda tm: tm.extension(Profile).hooks,
    ),
    "Throughput": Shipped(
        lambda: [MetricStore(), Throughput(seconds=1e-6)], [STORE], keeps=lambda tm: tm.extension(Throughput).curves
    ),
    "PredictionGallery": Shipped(
        lambda: [MetricStore(), PredictionGallery(mistakes=2, others=2)],
        [STORE, *[r"plots/gallery-\w+-[0-9a-f]{8}-\d+\.png"] * 6],
        keeps=lambda tm: tm.extension(PredictionGallery).examples,
    ),
    "Metrics(table=True)": Shipped(lambda: [Metrics("accuracy", table=True)], printed=r"\Ametric .*\n.*\naccuracy "),
    "GradientNorms": Shipped(lambda: [MetricStore(), GradientNorms()], [STORE]),
    "UpdateRatios": Shipped(lambda: [MetricStore(), UpdateRatios(every=2)], [STORE]),
    "WeightHistograms": Shipped(lambda: [MetricStore(), WeightHistograms(gradients=True, every=2)], [STORE]),
}


def train_with(name: str, strategy: str) -> dict[str, Any]:
    shipped = SHIPPED[name]
    tm = manager(Distributed(strategy), *shipped.make(), train_dir=own_dir(), epochs=2)
    tm.train()
    return {"weights": whole(tm).tolist(), "kept": bool(shipped.keeps and shipped.keeps(tm))}


@pytest.mark.parametrize("strategy", ["ddp", pytest.param("fsdp", marks=WHOLE)])
@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name == "Throughput" else WHOLE) for name in SHIPPED])
def test_rank_0_alone_writes_and_prints(fork_server: ForkServer, tmp_path: Path, name: str, strategy: str) -> None:
    shipped = SHIPPED[name]

    first, second = trained_on_ranks(fork_server, tmp_path, train_with, name, strategy)

    assert len(first.files) == len(shipped.files)
    for file, pattern in zip(first.files, sorted(shipped.files), strict=True):
        assert re.fullmatch(pattern, file)
    assert re.search(shipped.printed, first.printed)
    assert bool(first.printed) == bool(shipped.printed)
    assert (second.files, second.printed, second.errors) == ([], "", "")
    assert first.value["kept"] == (shipped.keeps is not None)
    assert not second.value["kept"]
    assert first.value["weights"] == second.value["weights"]


def test_all_sinks_are_of_rank_0() -> None:
    assert [sink.ranks for sink in (TensorBoard, MLflow, WandB)] == [0, 0, 0]


# ---- the default extensions ------------------------------------------------------------------------------------------


class Notes(Extension):
    """Writes in each way, on each rank."""

    def __init__(self) -> None:
        self.counted: list[int] = []

    def post_train_step_batch(self, writer: Any, step_num: int, train_manager: TrainManager) -> None:
        writer.scalar("rank", train_manager.ranks.place.rank)
        writer.scalars({"step": torch.tensor(float(step_num))})
        _, counts = writer.histogram("values", torch.arange(10.0), bins=5)
        self.counted = counts.tolist()

    def post_run(self, writer: Any, train_dir: Path, train_manager: TrainManager) -> None:
        writer.array("two", [1.0, 2.0], ["a", "b"])
        writer.text("said", "by a rank")
        writer.image("picture", torch.zeros(2, 2))
        if not train_manager.ranks.place.rank:
            Path(train_dir, "notes.txt").write_text("of rank 0")
        writer.file("notes", train_dir / "notes.txt")


def train_with_defaults(shared: bool) -> list[int]:
    extensions, notes = default_extensions(), Notes()
    train_dir = Path("of-rank-0") if shared else own_dir()
    manager(Distributed(), *extensions.values(), notes, train_dir=train_dir, epochs=2).train()
    return notes.counted


def test_default_extensions_leave_one_run_one_record_and_one_table(fork_server: ForkServer, tmp_path: Path) -> None:
    first, second = trained_on_ranks(fork_server, tmp_path, train_with_defaults, True)

    folder = tmp_path / "of-rank-0"
    (entry,) = read_runs(folder)
    reader = MetricReader(folder)
    assert [part.run for part in reader.runs()] == [entry["id"]]
    assert [path.name for path in (folder / "code").glob("*.json")] == [f"{entry['id']}.json"]
    assert re.findall(r"^(start|\d/\d) ", first.printed, flags=re.MULTILINE) == ["start", "1/2", "2/2"]
    assert (second.printed, second.errors) == ("", "")
    assert (first.value, second.value) == ([2] * 5, [2] * 5)  # a hook with `writer` has run on both
    (of_rank,) = reader.scalars("rank").values()
    assert (of_rank.steps, of_rank.values) == ([*range(1, 13)], [0.0] * 12)
    assert [len(reader.scalars("step")), len(reader.texts("said")), len(reader.files("notes"))] == [1, 1, 1]


@WHOLE
def test_a_hook_with_writer_writes_on_rank_0_alone(fork_server: ForkServer, tmp_path: Path) -> None:
    first, second = trained_on_ranks(fork_server, tmp_path, train_with_defaults, False)

    assert {"metrics.sqlite", "notes.txt", "plots/picture-12.png"} < {*first.files}
    assert second.files == []


# ---- labels ----------------------------------------------------------------------------------------------------------


class Shown:
    """An output below a cell of a notebook."""

    def __init__(self) -> None:
        self.pictures: list[str] = []

    def show(self, text: str, html: str) -> None:
        self.pictures.append(html)


def train_and_draw(distributed: bool) -> dict[str, Any]:
    vars(live)["is_notebook"] = lambda: True
    in_notebook, output, curves = Live(0.0), Shown(), LossCurves()
    vars(in_notebook)["_output"] = output
    extensions: list[Extension] = [MetricStore(), RunRecord(), Report(), curves, in_notebook]
    tm = manager(*extensions, *([Distributed()] if distributed else []), train_dir=Path("run"), epochs=2)
    tm.train()
    again = LossCurves()
    again.load_state_dict(curves.state_dict())
    return {
        "live": output.pictures[-1] if output.pictures else "",
        "curves": curves.training["epoch"].y,
        "examples": curves.training["example"].x,
        "loaded": [axes.get_ylabel() for axes in again.figure().axes],
        "history": [row["loss"] for row in tm.history.epochs],
    }


@WHOLE
def test_losses_of_batches_are_labelled_as_those_of_rank_0(fork_server: ForkServer, tmp_path: Path) -> None:
    first, second = trained_on_ranks(fork_server, tmp_path, train_and_draw, True)

    folder, label = tmp_path / "run", "batch loss (rows of rank 0)"
    assert (folder / "plots/loss_curves.svg").read_text().count(f">{label}</text>") == 2  # by batch and by example
    assert f">{label}</text>" in first.value["live"]
    assert second.value["live"] == ""
    assert "training (rows of rank 0)" in (folder / "report.html").read_text()
    assert [axes.get_ylabel() for axes in read_run(folder).loss_curves().axes] == ["epoch loss", label, label]
    assert first.value["loaded"] == ["epoch loss", label, label]
    (ranks,) = MetricReader(folder).scalars("ranks").values()
    assert (ranks.steps, ranks.values) == ([1], [2.0])
    # Epochs and counts are of all rows.
    assert first.value["curves"] == first.value["history"]
    assert first.value["examples"] == [12, 24, 36, 48, 60, 61, 73, 85, 97, 109, 121, 122]


@WHOLE
def test_in_one_process_no_label_speaks_of_ranks(fork_server: ForkServer, tmp_path: Path) -> None:
    fork_server.run(train_and_draw, False, cwd=tmp_path)

    folder = tmp_path / "run"
    assert "of rank 0" not in (folder / "plots/loss_curves.svg").read_text() + (folder / "report.html").read_text()
    assert MetricReader(folder).scalars("ranks") == {}
    assert "ranks" not in next(folder.glob("run-*.json")).read_text()


# ---- numbers of layers ----------------------------------------------------------------------------------------------


def train_and_watch(strategy: str | None) -> dict[str, Any]:
    norms, ratios, weights = GradientNorms(), UpdateRatios(every=2), WeightHistograms(gradients=True, every=2)
    distributed = [] if strategy is None else [Distributed(strategy)]
    extensions = [MetricStore(), norms, ratios, weights, *distributed]
    manager(*extensions, train_dir=Path("run"), epochs=2).train()
    series = {**norms.series, **ratios.series}
    return {name: [torch.as_tensor(row.mean).tolist() for row in columns.rows] for name, columns in series.items()} | {
        name: counts for name, (_, counts) in weights.histograms.items()
    }


@WHOLE
@pytest.mark.parametrize("strategy", ["ddp", "after", "fsdp"])
def test_numbers_of_layers_are_those_of_one_process(fork_server: ForkServer, tmp_path: Path, strategy: str) -> None:
    (tmp_path / "alone").mkdir()
    alone = on_ranks(fork_server, 1, train_and_watch, None, folder=tmp_path / "alone")[0]

    for found in on_ranks(fork_server, 2, train_and_watch, strategy, folder=tmp_path):
        assert list(found) == ["gradient_norms", "update_ratios", *list(alone)[2:]]
        for name in ("gradient_norms", "update_ratios"):
            assert len(found[name]) == {"gradient_norms": 12, "update_ratios": 6}[name]
            for row, as_alone in zip(found[name], alone[name], strict=True):
                assert row == pytest.approx(as_alone, abs=1e-5)
        for name in list(alone)[2:]:
            assert sum(found[name]) == sum(alone[name])
