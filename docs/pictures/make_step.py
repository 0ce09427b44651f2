"""Make docs/pictures/step-light.svg and step-dark.svg: one training step, drawn from what ``explain`` tells of it.

The stages of a batch are a lane from left to right, a fixture is a bar from its birth to the end of its stage, and the
hooks of three extensions stand where they run, with a dot on each fixture that they name.

python docs/pictures/make_step.py            writes the pictures
python docs/pictures/make_step.py --check    exits with 1 if they are out of date
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from train_manager import Extension, modifies
from train_manager.testing import tiny_manager

FOLDER: Final = Path(__file__).parent
STEP: Final = "train_step_batch"
LANE: Final = {  # the stages that are drawn, by what a reader calls them
    "train_model_forward": "forward",
    "train_loss_forward": "loss",
    "train_backward": "backward",
    "train_optimizer_step": "step",
}
BARS: Final = ("model", "batch", "inputs", "targets", "prediction", "loss", "backward_loss", "optimizer")

WIDTH, HEIGHT = 960, 508
LEFT, RIGHT = 24, 936  # of the stage train_step_batch
BOX, GAP = 150, 54  # the width of an inner stage, and the room for hooks between two
CARDS, CARD, TOP, BAR_TOP, BAR_STEP = 16, 74, 126, 224, 30
SIZE = 14  # of the letters; a letter of a monospaced font is 0.6 of its size wide

THEMES: Final = {
    "light": {
        "page": "#ffffff",
        "text": "#1f2328",
        "quiet": "#59636e",
        "lane": "#f1f4f8",
        "box": "#dbe3ec",
        "bars": "#57606a #2f6fdb #2f6fdb #2f6fdb #0f8b8d #c2410c #8a63d2 #8a63d2",
        "hooks": "#b4237a",
        "card": "#fdeef6",
        "on_bar": "#ffffff",
    },
    "dark": {
        "page": "#0d1117",
        "text": "#e6edf3",
        "quiet": "#9198a1",
        "lane": "#161b22",
        "box": "#2b3440",
        "bars": "#9198a1 #5b94f0 #5b94f0 #5b94f0 #3fb7b0 #f0883e #ab8bea #ab8bea",
        "hooks": "#f778ba",
        "card": "#2d1a26",
        "on_bar": "#0d1117",
    },
}


class Noise(Extension):
    @modifies("batch")
    def pre_train_step_batch(self, batch: Any) -> Any: ...


class GradientNorm(Extension):
    def post_train_backward(self, model: Any) -> None: ...


class WorstExamples(Extension):
    def post_train_step_batch(self, inputs: Tensor, loss: Tensor) -> None: ...


@dataclass(frozen=True)
class Hook:
    """A hook, with its place in the lane and the fixtures that it names."""

    extension: str
    name: str
    reads: list[str]
    modifies: list[str]
    x: float


def main() -> None:
    """Write both pictures, or compare them with what is there."""
    made = {FOLDER / f"step-{theme}.svg": picture(colors) for theme, colors in THEMES.items()}
    if "--check" in sys.argv:
        old = [file.name for file, text in made.items() if not file.exists() or file.read_text() != text]
        if old:
            sys.exit(f"{', '.join(old)}: out of date; run python docs/pictures/{Path(__file__).name}")
    for file, text in made.items():
        file.write_text(text)


def picture(colors: dict[str, str]) -> str:
    """Return the picture as SVG."""
    stages = stages_of_a_step()
    parts = [*lane(colors), *bars(stages, colors), *hooks(stages, colors)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="{SIZE}">\n'
        "<title>One training step: its stages, the life of its fixtures, and the hooks of three extensions</title>\n"
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="{colors["page"]}"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


# ---- what explain() tells ----------------------------------------------------------------------------------------


def stages_of_a_step() -> dict[str, Any]:
    """Return what ``explain`` tells of the run and of the stages of a training step, by their names."""
    tm = tiny_manager(Noise(), GradientNorm(), WorstExamples())
    tree = json.loads(tm.explain(format="json"))
    step = ["run", "train", "train_step_epoch", STEP]
    return {stage["stage"]: stage for stage in tree if stage["path"] == ["run"] or stage["path"][:4] == step}


def lives(fixture: str, stages: dict[str, Any]) -> Iterator[tuple[float, float]]:
    """Yield from where to where a fixture lives: more than once, if several stages define it."""
    for owner in [name for name, stage in stages.items() if fixture in stage["defines"]]:
        left, right = box(owner)
        inner = next((name for name in LANE if fixture in stages[name]["modifies"]), None)
        if owner == STEP and inner is not None:  # defined from inside the inner stage
            left = box(inner)[1] - 18
        elif owner == STEP and fixture != "batch":  # unpacked after the pre hooks
            left += GAP
        yield left, right


def hooks_of(stages: dict[str, Any]) -> Iterator[Hook]:
    """Yield the hooks of the three extensions."""
    for name, stage in stages.items():
        for point in ("pre", "post"):
            for hook in stage["hooks"][point]:
                extension, method = hook["hook"].split(".")
                if extension in ("Noise", "GradientNorm", "WorstExamples"):
                    reads = [name for name in hook["reads"] if name not in hook["modifies"]]
                    yield Hook(extension, method, reads, hook["modifies"], x_of(name, point))


# ---- where it stands ---------------------------------------------------------------------------------------------


def box(stage: str) -> tuple[float, float]:
    """Return the left and right edge of a stage; the run continues beyond the picture."""
    if stage == "run":
        return -9, WIDTH + 9
    if stage == STEP:
        return LEFT, RIGHT
    left = LEFT + GAP * 1.6 + list(LANE).index(stage) * (BOX + GAP)
    return left, left + BOX


def x_of(stage: str, point: str) -> float:
    """Return where the hooks before or after a stage stand."""
    left, right = box(stage)
    inside = stage == STEP
    return left + (GAP / 2 if inside else -GAP / 2) if point == "pre" else right + (-GAP / 2 if inside else GAP / 2)


# ---- drawing -----------------------------------------------------------------------------------------------------


def lane(colors: dict[str, str]) -> Iterator[str]:
    """Draw the stage of the batch with the stages in it."""
    yield rectangle(LEFT, TOP, RIGHT, BAR_TOP - 20, colors["lane"])
    yield text(LEFT + GAP, TOP + 20, STEP, colors["quiet"])
    for stage, called in LANE.items():
        left, right = box(stage)
        yield rectangle(left, TOP + 32, right, BAR_TOP - 32, colors["box"])
        yield text((left + right) / 2, TOP + 54, called, colors["text"], anchor="middle", weight="bold")


def bars(stages: dict[str, Any], colors: dict[str, str]) -> Iterator[str]:
    """Draw each fixture from its birth to the end of its stage."""
    for row, (name, color) in enumerate(zip(BARS, colors["bars"].split(), strict=True)):
        y = BAR_TOP + row * BAR_STEP
        for left, right in lives(name, stages):
            yield rectangle(left, y, right, y + 22, color, rounded=4)
            yield text(LEFT + GAP if name in ("model", "batch") else left + 9, y + 16, name, colors["on_bar"])
    caption = "A fixture lives from where it is defined to the end of its stage."
    yield text(WIDTH / 2, HEIGHT - 18, caption, colors["quiet"], anchor="middle")


def hooks(stages: dict[str, Any], colors: dict[str, str]) -> Iterator[str]:
    """Draw each hook as a card above its place, with a line down to the fixtures that it names."""
    free = float(RIGHT)  # where the card to the right begins
    for hook in sorted(hooks_of(stages), key=lambda hook: -hook.x):
        does = f"modifies {', '.join(hook.modifies)}" if hook.modifies else f"reads {', '.join(hook.reads)}"
        centers = [BAR_TOP + BARS.index(name) * BAR_STEP + 11 for name in (*hook.reads, *hook.modifies)]
        wide = max(len(hook.name), len(does)) * SIZE * 0.6 + 24
        left = min(max(LEFT, hook.x - wide / 2), free - wide)
        free = left - 12
        yield (
            f'<path d="M{hook.x:g} {CARDS + CARD} V{max(centers):g}" stroke="{colors["hooks"]}" stroke-width="2" '
            'stroke-dasharray="2 4" stroke-linecap="round"/>'
        )
        yield rectangle(left, CARDS, left + wide, CARDS + CARD, colors["card"], stroke=colors["hooks"])
        yield text(left + 12, CARDS + 22, hook.extension, colors["hooks"], weight="bold")
        yield text(left + 12, CARDS + 42, hook.name, colors["text"])
        yield text(left + 12, CARDS + 61, does, colors["quiet"])
        for center in centers:
            yield (
                f'<circle cx="{hook.x:g}" cy="{center}" r="5.5" fill="{colors["hooks"]}" '
                f'stroke="{colors["page"]}" stroke-width="2"/>'
            )


def rectangle(
    left: float, top: float, right: float, bottom: float, fill: str, *, rounded: int = 6, stroke: str = "none"
) -> str:
    """Return a rectangle with round corners."""
    return (
        f'<rect x="{left:g}" y="{top:g}" width="{right - left:g}" height="{bottom - top:g}" rx="{rounded}" '
        f'fill="{fill}" stroke="{stroke}"/>'
    )


def text(x: float, y: float, words: str, fill: str, *, anchor: str = "start", weight: str = "normal") -> str:
    """Return a line of text; ``y`` is its baseline."""
    return f'<text x="{x:g}" y="{y:g}" fill="{fill}" text-anchor="{anchor}" font-weight="{weight}">{words}</text>'


if __name__ == "__main__":
    main()
