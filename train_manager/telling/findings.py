"""The findings of checks of a training, in one form for all checks, and how far each check could look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self, final, overload

from train_manager.telling.errors import TrainManagerError
from train_manager.telling.wrapping import line_width, wrap_text

Level = Literal["error", "warning", "note"]
"""How bad it is: the training is wrong; it may be; something that is so on purpose, but worth knowing."""


class FoundError(TrainManagerError, AssertionError):
    """Raised by ``Findings.require_none``: a check has found a mistake, or could not look.

    Attributes:
        findings: the findings of all checks.
    """

    def __init__(self, findings: Findings) -> None:
        super().__init__(f"the checks are not clean\n{findings}")
        self.findings = findings


@final
@dataclass(frozen=True)
class Finding:
    """Something that a check has found.

    >>> print(Finding("inputs", "error", "the labels are texts", "targets", "give it numbers", code="text-labels"))
    error: the labels are texts [text-labels]
      where  targets
      do     give it numbers

    Attributes:
        check: the check.
        level: how bad it is.
        what: what was found, in a sentence.
        where: the module, the parameter or the line; empty if it is of no place.
        cure: what to do about it.
        numbers: what was measured.
        code: its name for programs, which does not change with its text; of an error, the class.
    """

    check: str
    level: Level
    what: str
    where: str = ""
    cure: str = ""
    numbers: Mapping[str, float | int | str] = field(default_factory=dict, hash=False)
    code: str = ""

    def __str__(self) -> str:
        rows = [f"  {label:<6} {text}" for label, text in (("where", self.where), ("do", self.cure)) if text]
        return "\n".join([f"{self.level}: {self.what}{self.code and f' [{self.code}]'}", *rows])

    @property
    def identity(self) -> tuple[str, str, str]:
        """The fields by which two findings are the same, whatever their numbers."""
        return self.check, self.what, self.where

    @property
    def in_a_line(self) -> str:
        """The finding in one line, for a warning."""
        place = f": {self.where}" if self.where else ""
        return f"{self.what}{place} ({self.cure})" if self.cure else f"{self.what}{place}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as data that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the finding that ``to_dict`` was called on."""
        return cls(**data)


@final
@dataclass(frozen=True)
class Coverage:
    """How far a check has looked.

    Attributes:
        check: the check.
        text: what was compared, or why the check could not look.
        could_look: whether the check has looked at all. One that has not is never called clean.
        answer: the answer if nothing was found; "nothing to compare" if nothing can be wrong.
    """

    check: str
    text: str
    could_look: bool = True
    answer: str = "clean"


@final
class Findings(Sequence[Finding]):
    """The findings of checks, and how far each check has looked.

    >>> findings = Findings(covered=[Coverage("batch leak", "12 of 12 changes ran, train mode")])
    >>> print(findings)
    batch leak  clean: 12 of 12 changes ran, train mode
    >>> findings.require_none()

    Args:
        found: the findings.
        covered: how far each check has looked; a check with findings has an entry too.
    """

    def __init__(self, found: Iterable[Finding] = (), covered: Iterable[Coverage] = ()) -> None:
        self._found = tuple(found)
        self.covered = tuple(covered)

    @classmethod
    def not_looked(cls, check: str, reason: str) -> Self:
        """Return the findings of a check that could not look: none, with the reason."""
        return cls(covered=[Coverage(check, reason, could_look=False)])

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Finding]: ...
    def __getitem__(self, index: int | slice) -> Finding | Sequence[Finding]:
        return self._found[index]

    def __len__(self) -> int:
        return len(self._found)

    def __add__(self, other: Findings) -> Findings:
        return Findings([*self, *other], [*self.covered, *other.covered])

    @property
    def is_clean(self) -> bool:
        """Whether each check could look, and none has found an error or a warning."""
        return all(one.level == "note" for one in self) and all(one.could_look for one in self.covered)

    def require_none(self) -> None:
        """Fail if there is an error or a warning, or if a check could not look; notes are passed over.

        Raises:
            FoundError: there is one; it has the whole table.
        """
        if not self.is_clean:
            raise FoundError(self)

    def to_dict(self) -> dict[str, Any]:
        """Return them as data that JSON can hold."""
        found, covered = ([asdict(one) for one in of] for of in (self, self.covered))
        return {"is_clean": self.is_clean, "findings": found, "covered": covered}

    def __str__(self) -> str:
        # Checks with findings come first; each check has one block of lines.
        checks = list(dict.fromkeys(one.check for one in (*self, *self.covered)))
        width = max(map(len, checks), default=0) + 2
        return "\n".join(line for check in checks for line in self._lines(check, width))

    def __repr__(self) -> str:
        return f"<Findings: {len(self)} of {len(self.covered)} checks>"

    def _lines(self, check: str, width: int) -> Iterator[str]:
        """Yield the lines of one check in the table; a line that is too long continues below its own beginning."""
        lines = [line for one in self if one.check == check for line in str(one).splitlines()]
        # A check of several objects has an entry for each: entries with the same answer share a line.
        covered: dict[str, list[str]] = {}
        for one in (one for one in self.covered if one.check == check):
            answer = "looked at" if lines else one.answer
            covered.setdefault(answer if one.could_look else "could not look", []).append(one.text)
        head = f"{check:<{width}}"
        for line in [*lines, *(f"{answer}: {', '.join(dict.fromkeys(texts))}" for answer, texts in covered.items())]:
            below = " " * (width + (9 if line.startswith("  ") else 2))  # 9: behind the labels `where` and `do`
            yield from wrap_text("", head + line, below, line_width())
            head = " " * width  # the name of the check is only before its first line
