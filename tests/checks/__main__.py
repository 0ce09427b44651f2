"""Writes the table of docs/explanation/batch-leaks.md: what is found on the same models, here and by others.

python -m tests.checks
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import torch

from benchmarks.section import table
from tests.checks.cases import Case
from tests.checks.clean_models import CLEAN
from tests.checks.leaking_models import LEAKING_FAMILIES
from tests.checks.peers import PEERS, Answer
from tests.checks.rolled import rolled
from train_manager.checks.batch_leak import check_batch_leak

PAGE: Final = Path(__file__).parents[2] / "docs" / "explanation" / "batch-leaks.md"
OURS: Final = "`check_batch_leak`"
Check = Callable[[Case, str], Answer]


def ours(case: Case, mode: str) -> Answer:
    """Return whether a leak is found; on a leaking model also by the right module."""
    torch.manual_seed(0)
    model = case.make().train(mode == "train")
    found = check_batch_leak(model, case.batch(), **case.options)
    errors = [one for one in found if one.level == "error"]
    if not errors:
        return False if found.is_clean else None
    return errors[0].where.rpartition(" (")[0] == (case.culprit or "the model itself")


def of_a_peer(name: str) -> Check:
    def check(case: Case, mode: str) -> Answer:
        torch.manual_seed(0)
        model = case.make().train(mode == "train")
        try:
            return PEERS[name](case, model, case.batch())
        except Exception:  # it does not take the model
            return None

    return check


CHECKS: Final[dict[str, Check]] = {OURS: ours, **{name: of_a_peer(name) for name in PEERS}}


def cells(cases: Iterable[Case], *, leaks: bool) -> list[str]:
    """Return what each check says of models, in all their modes: right answers of all, and those not taken."""
    pairs = [(case, mode) for case in cases for mode in case.modes]
    shown = []
    for check in CHECKS.values():
        counts = Counter(check(case, mode) for case, mode in pairs)
        untaken = f", {counts[None]} not taken" if counts[None] else ""
        shown.append(f"{counts[leaks]} of {len(pairs)}{untaken}")
    return shown


def main() -> None:
    warnings.simplefilter("ignore")
    leaking = [case for cases in LEAKING_FAMILIES.values() for case in cases]
    rows = [
        ["models with a leak", *cells(leaking, leaks=True)],
        ["clean models that roll their input", *cells(map(rolled, CLEAN), leaks=True)],
        ["clean models that pass", *cells(CLEAN, leaks=False)],
    ]
    made = table(["models, in train and eval mode", *CHECKS], rows)
    text = PAGE.read_text()
    text = re.sub(
        r"(<!-- table -->\n\n).*?(\n\n<!-- end -->)", lambda found: f"{found[1]}{made}{found[2]}", text, flags=re.S
    )
    PAGE.write_text(text)
    print(made)


if __name__ == "__main__":
    main()
