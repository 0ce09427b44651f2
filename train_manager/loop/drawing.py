"""The base of extensions that draw: a notebook shows their pictures, and a script saves them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from train_manager.core.extension import Extension
from train_manager.files.atomic import quote_path, replace_file
from train_manager.reporting.figures import render_figure
from train_manager.telling.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Drawing(Extension):
    """Show pictures in a notebook, and save them in a script; ``_pictures`` returns figures by descriptions."""

    def _pictures(self) -> Mapping[str, Figure]:
        return {}

    def save(self, path: Path | str) -> None:
        """Write the picture so far as ``norms.svg``, or the page that a notebook shows as ``norms.html``.

        Raises:
            InputError: ``path`` ends otherwise, or in ``.svg`` for other than one picture.
        """
        path, figures = Path(path), [*self._pictures().values()]
        if path.suffix == ".html":
            content = f'<!doctype html><meta charset="utf-8">\n{self._repr_html_()}\n'.encode()
        elif path.suffix == ".svg" and len(figures) == 1:
            content = render_figure(figures[0], "svg")
        else:
            what = f"{type(self).__name__} cannot write {quote_path(path)}"
            raise InputError(what, name="path", cure=f"give {str(path.with_suffix('.html'))!r}")
        replace_file(path, content)

    def _repr_html_(self) -> str:
        """Return the pictures that a notebook shows."""
        return "".join(_html_of(figure, about) for about, figure in self._pictures().items())


def _html_of(figure: Figure, about: str) -> str:
    # As an image: the styles of an inline SVG would apply to the whole page of the notebook.
    file = b64encode(render_figure(figure, "svg")).decode()
    return f'<img alt="{escape(about)}" style="max-width: 100%" src="data:image/svg+xml;base64,{file}">'
