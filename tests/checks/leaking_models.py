"""Models that mix the examples of a batch, by the kind of mistake."""

from __future__ import annotations

from tests.checks.cases import Case
from tests.checks.models.leaking.axes import AXES
from tests.checks.models.leaking.backward import BACKWARD
from tests.checks.models.leaking.control_flow import CONTROL_FLOW
from tests.checks.models.leaking.indices import INDICES
from tests.checks.models.leaking.masks import MASKS
from tests.checks.models.leaking.reductions import REDUCTIONS
from tests.checks.models.leaking.sorting import SORTING
from tests.checks.models.leaking.state import STATE

LEAKING_FAMILIES: dict[str, tuple[Case, ...]] = {
    "axes": AXES,
    "reductions and norms": REDUCTIONS,
    "sorting and top-k": SORTING,
    "indices and packing": INDICES,
    "masks and lengths": MASKS,
    "writes and state": STATE,
    "detached paths and control flow": CONTROL_FLOW,
    "backwards and hooks": BACKWARD,
}
LEAKING: tuple[Case, ...] = tuple(case for family in LEAKING_FAMILIES.values() for case in family)
