from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runs.code.repositories import a_file
from tests.runs.record.sample_runs import entry, parameters, write_code, write_runs
from tests.runs.showing.stored import EVIL, ConfusesDigits, Writes, page_of, trained
from tests.support.refusals import refusal
from train_manager import Extension, InputError
from train_manager.extensions import EarlyStopping
from train_manager.runs.showing.page import run_to_show
from train_manager.runs.store.writer import MetricWriter
from train_manager.telling.findings import Finding
from train_manager.tools import write_report

VOID = {"meta", "input", "img"}


class Page(HTMLParser):
    """The elements of a page and its text; it fails if they are not closed in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.seen if tag == name]


def data_of(text: str) -> dict[str, Any]:
    """What the script of a page draws."""
    [found] = re.findall(r'<script type="application/json" id="plot-data">(.*?)</script>', text)
    data: dict[str, Any] = json.loads(found)
    return data


def facts_of(text: str) -> dict[str, str]:
    """What the summary of a page says."""
    return dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text))


@pytest.mark.parametrize(
    ("name", "sha256"),
    [
        ("uPlot.iife.min.js", "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"),
        ("uPlot.min.css", "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04"),
        ("uPlot.LICENSE.txt", "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd"),
    ],
)
def test_the_drawing_library_is_what_was_published_as_uplot_1_6_32(name: str, sha256: str) -> None:
    content = files("train_manager.runs.showing").joinpath(name).read_bytes()

    assert hashlib.sha256(content).hexdigest() == sha256


def test_a_page_is_whole_and_may_run_and_load_only_what_is_in_it(tmp_path: Path) -> None:
    text = page_of(trained(tmp_path / "run"))
    page = Page(text)
    [script] = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    [style] = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (script, style)]

    assert page.tags("meta")[2]["content"] == (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    assert not page.tags("link") + page.tags("iframe") + page.tags("a")
    assert "Copyright (c) 2022 Leon Sorokin" in script
    assert len(text) < 150_000


def test_names_and_texts_of_users_are_never_elements(tmp_path: Path) -> None:
    evil = entry(
        outcome="failed",
        error={"type": "ValueError", "message": EVIL, "stage": None},
        parameters=parameters(lr=EVIL),
        data={EVIL: EVIL},
        metrics={EVIL: 0.5},
    )
    folder = trained(tmp_path / "run", Writes({EVIL: 1.0}))
    plain = Page(page_of(folder))

    page = Page(page_of(write_runs(folder, evil)))

    assert len(page.tags("script")) == len(plain.tags("script")) == 2
    assert "alert(1)" in "".join(page.words)


def test_the_summary_has_a_short_outcome_and_its_message_in_a_line_below(tmp_path: Path) -> None:
    message = "EarlyStopping: valid/f1 was no better for 5 evaluations"
    text = page_of(write_runs(tmp_path / "digits", entry(outcome="stopped", reason=message)))

    assert facts_of(text)["outcome"] == "early stop"
    assert text.index("</dl>") < text.index(f'<p class="soft">stopped: {message}</p>')


def test_notes_stand_below_the_summary(tmp_path: Path) -> None:
    folder = write_runs(tmp_path / "digits", entry())
    write_code(folder, entry()["id"])
    path = folder / "code" / f"{entry()['id']}.json"
    path.write_text(path.read_text().replace('"reason": null', '"reason": "git is not installed"'))
    text = page_of(folder)

    assert text.index("</dl>") < text.index("Note: the code is not in full: git is not installed")


def test_the_summary_tells_outcome_metrics_seed_and_time(tmp_path: Path) -> None:
    folder = write_runs(tmp_path / "digits", entry())
    write_code(folder, "ab12cd34ef56ab78", files=[a_file("train.py")])

    facts = facts_of(page_of(folder))

    assert facts == {
        "outcome": "completed",
        "done": "2 epochs, 20 steps",
        "epoch loss": "0.5000",
        "valid/loss": "0.2500",
        "commit": "18afa3f+",
        "seed": "0",
        "began": facts["began"],
        "took": "1 min 15 s",
        "run": "ab12cd34ef56ab78",
        "folder": str(folder),
    }


def test_the_best_metric_stands_below_the_last_one(tmp_path: Path) -> None:
    text = page_of(trained(tmp_path / "run"))

    assert re.search(r"<dt>valid/loss</dt><dd>0.6540</dd><dd class=\"soft\">best 0.6540 at 6</dd>", text)


def test_the_summary_tells_what_was_trained_and_which_number_decides(tmp_path: Path) -> None:
    text = page_of(trained(tmp_path / "run", EarlyStopping("valid/loss")))

    shown = re.findall(r'<dt>(best epoch|model|optimizer)</dt><dd>(.*?)</dd><dd class="soft">(.*?)</dd>', text)
    assert shown == [
        ("best epoch", "2", "lowest valid/loss: 0.6540, monitored by EarlyStopping"),
        ("model", "Sequential", "42 parameters, all trained"),
        ("optimizer", "SGD", "lr 0.5"),
    ]


def test_the_best_evaluation_is_marked_on_the_curve_of_the_monitored_metric_only(tmp_path: Path) -> None:
    [plot, *_] = data_of(page_of(trained(tmp_path / "run")))["plots"]

    assert [(curve["name"], curve["best"]) for curve in plot["curves"]] == [("training", None), ("valid", 6)]


def test_the_loss_of_a_batch_and_of_an_epoch_have_two_names(tmp_path: Path) -> None:
    text = page_of(trained(tmp_path / "run"))

    assert "<dt>epoch loss</dt>" in text
    assert [curve["value"] for curve in data_of(text)["plots"][0]["curves"]] == ["batch loss", ""]


def test_a_store_that_has_no_tables_yet_is_no_error(tmp_path: Path) -> None:
    folder = write_runs(tmp_path / "run", entry())
    (folder / "metrics.sqlite").touch()

    assert "No metrics were recorded." in page_of(folder)


def test_a_folder_without_a_run_file_has_a_page(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run")
    next(folder.glob("run-*.json")).unlink()

    text = page_of(folder)

    assert "Note: run: there is no run-&lt;id&gt;.json, so only metrics are shown" in text
    assert [plot["name"] for plot in data_of(text)["plots"]] == ["loss", "lr"]


def test_several_runs_are_side_by_side_with_what_differs(tmp_path: Path) -> None:
    slow, fast = trained(tmp_path / "slow", epochs=1), trained(tmp_path / "fast", epochs=2)

    text = page_of(slow, fast)

    data = data_of(text)
    assert data["runs"] == ["slow", "fast"]
    assert [(curve["run"], curve["name"]) for curve in data["plots"][0]["curves"]] == [
        (0, "training"),
        (0, "valid"),
        (1, "training"),
        (1, "valid"),
    ]
    assert '<tr><th scope="row">epochs</th><td>1</td><td>2</td></tr>' in text


def test_tables_have_heads_of_columns_and_rows(tmp_path: Path) -> None:
    page = Page(page_of(trained(tmp_path / "run", ConfusesDigits())))

    assert {attributes.get("scope") for attributes in page.tags("th")} == {"col", "row"}


def test_a_long_value_can_be_opened(tmp_path: Path) -> None:
    folder = write_runs(tmp_path / "run", entry(data={"names": "x" * 1200}))

    assert f"<details><summary>{'x' * 80}… (1,200 characters)</summary>{'x' * 1200}</details>" in page_of(folder)


def test_classes_pictures_and_texts_are_shown(tmp_path: Path) -> None:
    text = page_of(trained(tmp_path / "run", ConfusesDigits()))

    rows = re.findall(r'<tr><th scope="row">(\w+)</th><td>(\d+)</td><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td>', text)
    assert rows == [("zero", "10", "80.00 %", "100.00 %", "one (2)"), ("one", "0", "-", "0.00 %", "")]
    assert data_of(text)["maps"][0]["values"] == [[0.8, 0.2], [0.0, 0.0]]
    [picture] = Page(text).tags("img")
    assert str(picture["src"]).startswith("data:image/png;base64,")
    assert re.search(r"<h3>notes at step 6</h3>\s*<pre>well</pre>", text)


def test_pictures_and_texts_of_several_runs_are_told_apart(tmp_path: Path) -> None:
    text = page_of(*(trained(tmp_path / name, ConfusesDigits(), epochs=1) for name in ("slow", "fast")))

    assert [picture["alt"] for picture in Page(text).tags("img")] == ["hard examples of slow", "hard examples of fast"]
    assert re.findall(r"<h3>(notes .*)</h3>", text) == ["notes of slow at step 3", "notes of fast at step 3"]


def test_the_metrics_of_one_run_stand_in_its_summary_only(tmp_path: Path) -> None:
    one, two = trained(tmp_path / "one"), trained(tmp_path / "two")

    assert ['<h2 id="metrics">' in page_of(*runs) for runs in ([one], [one, two])] == [False, True]


class Large(Extension):
    """Writes 20 metrics and two numbers of each of 200 layers for 3,100 steps."""

    def post_train_step_batch(self, writer: MetricWriter, step_num: int) -> None:
        if step_num == 1:
            generator = torch.Generator().manual_seed(0)
            values = torch.rand(3100, 220, generator=generator)
            for step, row in enumerate(values.tolist()):
                writer.scalars({f"own{n}": row[n] for n in range(20)}, step=step)
                writer.array("norms", values[step, 20:], step=step)


@pytest.mark.slow
@pytest.mark.whole
def test_a_page_of_many_steps_and_layers_has_less_than_two_megabytes(tmp_path: Path) -> None:
    text = page_of(trained(tmp_path / "run", Large(), epochs=1))  # a longer one has as many stretches and columns

    data = data_of(text)
    assert 1000 < len(data["plots"][1]["curves"][0]["x"]) <= 1500
    assert len(data["maps"][0]["values"]) == 200
    assert len(text) < 2_000_000


def test_a_report_needs_neither_torch_nor_matplotlib(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run", Writes(layers=2), ConfusesDigits())
    program = (
        "import sys; from train_manager import cli; assert cli.main(['report', sys.argv[1]]) == 0; "
        "print({'torch', 'matplotlib'} & sys.modules.keys())"
    )

    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == [f"written to {folder}/report.html", "set()"]


def test_a_page_is_written_where_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = trained(tmp_path / "one"), trained(tmp_path / "other")
    monkeypatch.chdir(tmp_path)

    assert write_report(one) == one / "report.html"
    assert write_report([one, other]) == Path("report.html")
    assert write_report([one], tmp_path / "new" / "page.html") == tmp_path / "new" / "page.html"
    assert (tmp_path / "new" / "page.html").read_text().startswith("<!DOCTYPE html>")


def test_a_folder_that_is_of_no_run_is_refused(tmp_path: Path) -> None:
    assert refusal(lambda: run_to_show(tmp_path)) == (
        f"{tmp_path} has neither run-<id>.json nor metrics.sqlite, so there is nothing to report\n"
        "  RunRecord and MetricStore, two of the default extensions, write them"
    )


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    run = write_runs(tmp_path / "run", entry())

    with pytest.raises(InputError) as raised:
        write_report(run, tmp_path / "file" / "page.html")

    told = f"{tmp_path}/file/page.html cannot be written: File exists\n  name another file: --html FILE"
    assert str(raised.value) == told.replace("File exists", "Not a directory") or str(raised.value) == told


def test_what_checks_have_found_is_a_table_in_the_summary(tmp_path: Path) -> None:
    found = Finding("batch leak", "error", "example 2 sees <example 5>", "body.mix", "split the batch")
    page = Page(page_of(write_runs(tmp_path / "run", entry(findings=[found.to_dict()]))))
    words = " ".join("".join(page.words).split())

    assert "findings of run" in [tag.get("aria-label") for tag in page.tags("div")]
    assert "batch leakerror: example 2 sees <example 5>body.mixsplit the batch" in words
