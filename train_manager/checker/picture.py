"""The stages of a class as a picture: boxes inside boxes, with the hooks in the order in which they run.

The file has no script and no font of its own, and is light or dark as the page that shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, final
from xml.sax.saxutils import escape

StageBox = Mapping[str, Any]
"""A stage at one position, as ``explain(format="json")`` describes it."""

LINE, PAD, INSET = 20, 8, 16  # pixels: height of a line, space around the lines of a box, space between boxes
LETTER: Final = 7.3  # pixels: the width of a letter of the monospaced font
MOST_LETTERS: Final = 150  # of a line; a longer text is cut, and its tooltip has it all
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b07d00", "#56b4e9")  # Okabe and Ito; a darker yellow
STYLE: Final = """\
text { font: 12px ui-monospace, "DejaVu Sans Mono", monospace; fill: #222; white-space: pre }
.stage { font-weight: bold } .quiet { fill: #667 } .paper { fill: #fff } .box { fill: #46f1; stroke: #8886 }
@media (prefers-color-scheme: dark) {
  text { fill: #ddd } .quiet { fill: #99a } .paper { fill: #16181c } .box { fill: #7af1 }
}
"""


@final
class Picture(str):
    """The text of an SVG file, which a notebook shows as the picture."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)


def picture(title: str, places: Sequence[StageBox], unknown: Iterable[str] = ()) -> Picture:
    """Return the picture of a stage tree.

    Args:
        title: above the boxes.
        places: the stages at their positions, each after the one around it, as ``explain(format="json")`` has them.
        unknown: descriptions of code that could not be followed; they stand below the boxes.
    """
    boxes = _Boxes(places)
    for place in boxes.inside(()):
        boxes.draw(place, INSET)
    for what in unknown:
        boxes.line(f"unknown: {what}", INSET - PAD)
    # Only now is it known how wide the longest line is: all boxes end at the same distance from it.
    width, height = max([boxes.right, INSET + LETTER * len(title)]) + INSET, boxes.y + PAD
    size = f'width="{width:.0f}" height="{height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width:.0f} {height:.0f}">'
    name = f'<text class="stage" x="{INSET}" y="{LINE}">{escape(title)}</text>'
    frames = (_frame(*frame, boxes.right) for frame in boxes.frames)
    parts = [head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", f'<rect class="paper" {size}/>', name]
    return Picture("\n".join([*parts, *frames, *boxes.lines, "</svg>", ""]))


@final
class _Boxes:
    """The boxes and lines that are drawn so far."""

    def __init__(self, places: Sequence[StageBox]) -> None:
        self._places = places
        self._drawn: set[str] = set()  # stages: a second position has only the name
        self._colours: dict[str, str] = {}  # of extensions, by name, in the order in which they are drawn
        self.y = 1.5 * LINE  # the top of the next line
        self.right = 0.0  # the end of the longest line
        self.frames: list[tuple[float, float, float, int]] = []  # left, top, bottom and depth of each box
        self.lines: list[str] = []  # the SVG elements of the texts

    def inside(self, path: Sequence[str]) -> list[StageBox]:
        """Return the stages that open inside a position."""
        return [place for place in self._places if place["path"][:-1] == list(path)]

    def draw(self, place: StageBox, x: float) -> None:
        """Draw a stage and the stages inside it; at a second position of the stage, only its name."""
        stage, top, number = place["stage"], self.y, len(self.frames)
        # The box comes before the boxes inside it, so that these are painted over it; its bottom is known at the end.
        self.frames.append((x, top, top, len(place["path"]) - 1))
        self.y += PAD
        is_drawn = stage in self._drawn
        self._drawn.add(stage)
        self._name(stage, "as above" if is_drawn else place["note"], x)
        if not is_drawn:
            self._draw_inside(place, x)
        self.y += PAD
        self.frames[number] = (x, top, self.y, len(place["path"]) - 1)

    def line(self, text: str, x: float, style: str = "", rest: str = "", shown: str = "", tooltip: str = "") -> None:
        """Draw a line of text.

        Args:
            text: the beginning of the line.
            x: the left of the box.
            style: its class.
            rest: an element that continues after it.
            shown: the text of that element.
            tooltip: a text that appears while the mouse is over the line.
        """
        title = f"<title>{escape(tooltip)}</title>" if tooltip else ""
        left = f'x="{x + PAD:.0f}" y="{self.y + 14:.0f}"'
        self.lines.append(f'<text class="{style}" {left}>{title}{escape(_short(text))}{rest}</text>')
        self.right = max(self.right, x + 2 * PAD + LETTER * len(f"{_short(text)}  {shown}"))
        self.y += LINE

    def _draw_inside(self, place: StageBox, x: float) -> None:
        """Draw the fixtures of a stage, then its hooks and inner stages, in the order in which they run."""
        for label, names in (("defines", place["defines"]), ("lazy", place["lazy"])):
            if names:
                self.line(f"{label} {', '.join(names)}", x, "quiet")
        for kind in ("around", "pre"):
            self._hooks(kind, place["hooks"][kind], x)
        for inner in self.inside(place["path"]):
            self.y += PAD / 2
            self.draw(inner, x + INSET)
            self.y += PAD / 2
        self._hooks("post", place["hooks"]["post"], x)

    def _name(self, stage: str, note: str, x: float) -> None:
        self.line(stage, x, "stage", f'<tspan class="quiet" font-weight="normal">  {escape(note)}</tspan>', note)

    def _hooks(self, kind: str, hooks: Iterable[StageBox], x: float) -> None:
        for number, hook in enumerate(hooks, 1):
            colour = self._colours.setdefault(hook["extension"], COLOURS[len(self._colours) % len(COLOURS)])
            self.lines.append(f'<circle cx="{x + PAD + 4:.0f}" cy="{self.y + 10:.0f}" r="4" fill="{colour}"/>')
            does = "; ".join(_does(hook))
            rest = f'<tspan class="quiet">  {escape(_short(does))}</tspan>'
            tooltip = "\n".join(filter(None, [does, *hook["because"], hook["defined_at"]]))
            self.line(f"{kind:6} {number}. {hook['hook']}", x + 14, "", rest, _short(does), tooltip)


def _does(hook: StageBox) -> Iterator[str]:
    """Yield ``reads model``, ``provides norm`` and ``modifies loss`` of a hook."""
    for label in ("reads", "provides", "modifies"):
        if hook[label]:
            yield f"{label} {', '.join(hook[label])}"


def _short(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"


def _frame(left: float, top: float, bottom: float, depth: int, right: float) -> str:
    """Return a box; its right edge is as far inside of the one around it as its left edge."""
    width = right + INSET - left - INSET * depth
    return f'<rect class="box" rx="6" x="{left}" y="{top:.0f}" width="{width:.0f}" height="{bottom - top:.0f}"/>'
