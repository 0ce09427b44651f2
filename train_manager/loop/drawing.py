"""The base of extensions that draw: a notebook shows their pictures, and a script saves them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from train_manager.core.extension import Extension
from train_manager.files.atomic import quote_path, replace_file
from train_manager.reporting.embedded import embed_svg
from train_manager.telling.errors import InputError


class Drawing(Extension):
    """Show pictures in a notebook, and save them in a script; ``_pictures`` returns SVG files by descriptions."""

    def _pictures(self) -> Mapping[str, str]:
        return {}

    def save(self, path: Path | str) -> None:
        """Write the picture so far as ``norms.svg``, or the page that a notebook shows as ``norms.html``.

        Raises:
            InputError: ``path`` ends otherwise, or in ``.svg`` for other than one picture.
        """
        path, pictures = Path(path), [*self._pictures().values()]
        if path.suffix == ".html":
            pictures = [f'<!doctype html><meta charset="utf-8">\n{self._repr_html_()}\n']
        elif path.suffix != ".svg" or len(pictures) != 1:
            what = f"{type(self).__name__} cannot write {quote_path(path)}"
            raise InputError(what, name="path", cure=f"give {str(path.with_suffix('.html'))!r}")
        replace_file(path, pictures[0].encode())

    def _repr_html_(self) -> str:
        """Return the pictures that a notebook shows."""
        return "".join(embed_svg(text, about) for about, text in self._pictures().items())
