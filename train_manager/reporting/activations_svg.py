"""Statistics of activations as SVG files: one for each, and a sentence where there is nothing to see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from train_manager.metrics.layer_series import LayerSeries
from train_manager.reporting.layers_svg import layers_svg

SHARE: Final = (0.0, 1.0)
ENDS: Final = {"dead_units": SHARE, "saturated": SHARE}
NONE: Final = {"activation_spread": "no spread", "dead_units": "no dead unit", "saturated": "no saturated number"}


def activation_svgs(series: Mapping[str, LayerSeries]) -> dict[str, str]:
    """Return the picture of each statistic by its name; shares are drawn from 0 to 1."""
    found = {}
    for name, columns in series.items():
        statistic = name.partition(" ")[0]  # "dead_units (2)": layers that were found later
        none = f"{NONE[statistic]} in {len(columns.labels)} layers"
        found[name] = layers_svg({name: columns}, none, ENDS.get(statistic))
    return found
