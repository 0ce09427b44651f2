"""Names that may be meant by a name that is not there: a name like it, or the counterpart of another tool's word.

A class that has words of other tools gives them to the core as one value, ``Words``. Only names that are there are
offered; a class without words offers names like the one that was written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

from train_manager.telling.errors import did_you_mean, near

CLOSE: Final = 0.85  # the likeness from which a name, a letter away, is preferred to an entry of a table


class Provided(NamedTuple):
    """A fixture that an extension provides once it is added."""

    fixture: str
    extension: str
    stage: str

    @property
    def cure(self) -> str:
        """The advice to add the extension."""
        added = f"add the extension {self.extension} of train_manager.extensions"
        return f"{added}, which provides {self.fixture!r}"


class ForeignHook(NamedTuple):
    """The name of a hook in another tool."""

    tool: str
    name: str  # in that tool
    here: str  # the counterpart: a hook, a method, or an argument with "=" at its end; empty if there is none
    decorator: str = ""  # of the counterpart, with a space after it: "@always "

    @property
    def cure(self) -> str:
        """``on_train_epoch_end is called post_train_step_epoch here``."""
        if not self.here:
            return f"{self.name} has no counterpart here"
        if self.here.endswith("="):
            return f"{self.name} is the argument {self.here} here"
        # All other counterparts are methods of a TrainManager.
        is_override = not self.here.startswith(("pre_", "post_")) and not self.here.endswith("state_dict")
        where = ", in a subclass of TrainManager" if is_override else ""
        return f"{self.name} is called {self.decorator}{self.here} here{where}"


@final
@dataclass(frozen=True, eq=False)
class Words:
    """The words of other tools for the fixtures, stages and hooks of a class; by default none."""

    # For a word, the fixtures that are meant, or expressions that are read of them. The first that is alive is right.
    fixtures: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # for a word, the stages that are meant
    # For a fixture that has ended: "its mean", say, and the fixtures that hold it at the end of an outer stage.
    summaries: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    extensions: Mapping[str, Provided] = field(default_factory=dict)  # by a fixture that the extension provides
    hooks: tuple[ForeignHook, ...] = ()
    hook: str = "post_work"  # the name of a hook, for examples in errors
    extension: str = "MyExtension"  # the name of an extension, for examples in errors

    def fixtures_meant(self, name: str, alive: Collection[str]) -> list[str]:
        """Return the fixtures that may be meant by a name that is not alive, best first.

        >>> Words({"preds": ("prediction",)}).fixtures_meant("preds", {"loss", "prediction"})
        ['prediction']
        """
        return [*dict.fromkeys((*near(name, alive, CLOSE), *self.words_for(name, alive), *near(name, alive)))]

    def words_for(self, name: str, alive: Collection[str]) -> list[str]:
        """Return the entries of the table for a name, as far as their fixtures are alive."""
        return [meant for meant in self.fixtures.get(name, ()) if fixture_of(meant) in alive]

    def stages_meant(self, name: str, stages: Iterable[str]) -> list[str]:
        """Return the stages that may be meant by a name which is not a stage, best first."""
        stages = [*stages]
        meant = [stage for stage in self.stages.get(name, ()) if stage in stages]
        return [*dict.fromkeys((*near(name, stages, CLOSE), *meant, *near(name, stages)))]

    def summary_of(self, name: str, alive: Collection[str]) -> str:
        """Return the advice to ask for the summary of a fixture that has ended; empty if no summary is alive."""
        what, names = self.summaries.get(name, ("", ()))
        return next((f"for {what}, ask for {other!r}" for other in names if other in alive), "")

    def extension_for(self, name: str) -> Provided | None:
        """Return the extension that would provide a fixture of this name, or a fixture that is meant by it."""
        names = (name, *self.fixtures.get(name, ()))
        return next((self.extensions[meant] for meant in names if meant in self.extensions), None)

    def foreign_hooks(self, name: str) -> list[ForeignHook]:
        """Return the entries for the name of a hook, also if it is written as ``onEpochEnd``."""
        # Ignite's events are in capitals, but its handlers are often named after them in small letters.
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() if name[:1].islower() else name
        spellings = {name, snake, name.upper()} if "_" in snake else {name}
        return [known for known in self.hooks if known.name in spellings]


NO_WORDS: Final = Words()
"""The words of a class that has none."""


def by_word(meant: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Turn a table of names, each with its words, around: return the names that may be meant by each word.

    >>> by_word({"model": "module net", "batch": "data net"})
    {'module': ('model',), 'net': ('model', 'batch'), 'data': ('batch',)}
    """
    pairs = [(word, name) for name, listed in meant.items() for word in listed.split()]
    return {word: tuple(name for other, name in pairs if other == word) for word, _ in pairs}


def fixture_of(meant: str) -> str:
    """Return the fixture that an expression is read of: ``train_manager`` of ``train_manager.optimizer``."""
    return re.split(r"[.\[]", meant)[0]


def suggestion(meant: str) -> str:
    """Return the question whether a name is meant, with the fixture to ask for if it is read of one.

    >>> suggestion("prediction")
    "did you mean 'prediction'?"
    >>> suggestion("train_manager.optimizer")
    "did you mean train_manager.optimizer? ask for 'train_manager'"
    """
    fixture = fixture_of(meant)
    return did_you_mean((meant,)) if fixture == meant else f"did you mean {meant}? ask for {fixture!r}"
