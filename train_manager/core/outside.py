"""Extensions of other packages, found by name through the entry-point group ``train_manager.extensions``."""

from __future__ import annotations

from typing import Final

from train_manager.core.errors import ExtensionNotFound, did_you_mean, near
from train_manager.core.extension import Extension, checked

GROUP: Final = "train_manager.extensions"


def load(name: str) -> Extension:
    """Make the extension that an installed package offers under this name.

    A package offers one in its metadata, here in a ``pyproject.toml``::

        [project.entry-points."train_manager.extensions"]
        grad_noise = "grad_noise:GradNoise"

    Raises:
        ExtensionNotFound: no installed package offers it.
        HookError: what it offers is no extension.
    """
    from importlib.metadata import entry_points  # 20 ms, and few need it

    offered = {point.name: point for point in entry_points(group=GROUP)}
    if name not in offered:
        nearest = near(name, offered)
        there = ", ".join(sorted(offered)) or "none"
        raise ExtensionNotFound(
            f"no installed package offers an extension {name!r}",
            name=name,
            nearest=nearest,
            cure=did_you_mean(nearest) or f"offered are: {there}",
        )
    found = offered[name].load()
    return checked(found() if callable(found) else found)
