"""Models that mix the examples of a batch, by the kind of mistake."""

from __future__ import annotations

from tests.diagnosis.cases import Case
from tests.diagnosis.models.leaking.axes import AXES
from tests.diagnosis.models.leaking.reductions import REDUCTIONS

LEAKING_FAMILIES: dict[str, tuple[Case, ...]] = {
    "axes": AXES,
    "reductions": REDUCTIONS,
}
LEAKING: tuple[Case, ...] = tuple(case for family in LEAKING_FAMILIES.values() for case in family)
