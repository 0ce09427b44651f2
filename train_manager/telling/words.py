"""What is meant by a name that is not there: a name like it, or another tool's word for what is there.

A class that has words of other tools gives them to the core as one value; only what is there is ever offered, and a
class without words offers names like the one that was written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

from train_manager.telling.errors import did_you_mean, near

CLOSE: Final = 0.85  # a name of one's own that is a letter away is meant rather than what a table says


class Provided(NamedTuple):
    """A fixture that an extension provides once it is added."""

    fixture: str
    extension: str
    stage: str

    @property
    def cure(self) -> str:
        """What to do if the extension is not added."""
        added = f"add the extension {self.extension} of train_manager.extensions"
        return f"{added}, which provides {self.fixture!r}"


class ForeignHook(NamedTuple):
    """The name of a hook in another tool.

    Attributes:
        tool: the tool.
        name: the name there.
        here: its counterpart; empty if there is none.
        decorator: what stands above the counterpart, with a space after it.
    """

    tool: str
    name: str
    here: str
    decorator: str = ""

    @property
    def cure(self) -> str:
        """``on_train_epoch_end is called post_train_step_epoch here``."""
        if not self.here:
            return f"{self.name} has no counterpart here"
        if self.here.endswith("="):
            return f"{self.name} is the argument {self.here} here"
        is_override = not self.here.startswith(("pre_", "post_")) and not self.here.endswith("state_dict")
        where = ", in a subclass of TrainManager" if is_override else ""
        return f"{self.name} is called {self.decorator}{self.here} here{where}"


@final
@dataclass(frozen=True, eq=False)
class Words:
    """What other tools call the things of a class; by default nothing.

    Attributes:
        fixtures: for a word, the fixtures meant, or what is read of them. The first that is alive is right.
        stages: for a word, the stages meant.
        summaries: for a fixture, what it comes to at the end of an outer stage, and the fixtures that have it.
        extensions: fixtures that extensions provide once they are added.
        hooks: the names of hooks in other tools.
        hook: the name of a hook, for examples.
        extension: the name of an extension, for examples.
        called_by: attributes that hold own methods, which are called by fixture names: ``self.<attribute>.method()``.
    """

    fixtures: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    summaries: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    extensions: Mapping[str, Provided] = field(default_factory=dict)
    hooks: tuple[ForeignHook, ...] = ()
    hook: str = "post_work"
    extension: str = "MyExtension"
    called_by: tuple[str, ...] = ()

    def fixtures_meant(self, name: str, alive: Collection[str]) -> list[str]:
        """Return what may be meant by a name that is not alive, best first.

        >>> Words({"preds": ("prediction",)}).fixtures_meant("preds", {"loss", "prediction"})
        ['prediction']
        """
        return [*dict.fromkeys((*near(name, alive, CLOSE), *self.words_for(name, alive), *near(name, alive)))]

    def words_for(self, name: str, alive: Collection[str]) -> list[str]:
        """Return what the table offers for a name, as far as it is alive."""
        return [meant for meant in self.fixtures.get(name, ()) if fixture_of(meant) in alive]

    def stages_meant(self, name: str, stages: Iterable[str]) -> list[str]:
        """Return the stages that may be meant by the name of none, best first."""
        stages = [*stages]
        meant = [stage for stage in self.stages.get(name, ()) if stage in stages]
        return [*dict.fromkeys((*near(name, stages, CLOSE), *meant, *near(name, stages)))]

    def summary_of(self, name: str, alive: Collection[str]) -> str:
        """Return what to ask for where the stage of a fixture has ended; empty if nothing is there."""
        what, names = self.summaries.get(name, ("", ()))
        return next((f"for {what}, ask for {other!r}" for other in names if other in alive), "")

    def extension_for(self, name: str) -> Provided | None:
        """Return the extension that would provide a fixture, or what is meant by it."""
        names = (name, *self.fixtures.get(name, ()))
        return next((self.extensions[meant] for meant in names if meant in self.extensions), None)

    def foreign_hooks(self, name: str) -> list[ForeignHook]:
        """Return the entries of a name, also in the letters of ``onEpochEnd``, and of Ignite's in small ones."""
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() if name[:1].islower() else name
        spellings = {name, snake, name.upper()} if "_" in snake else {name}
        return [known for known in self.hooks if known.name in spellings]


NO_WORDS: Final = Words()
"""Of a class that has none."""


def by_word(meant: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return for each word what may be meant by it, in the order of a table of what is meant and its words.

    >>> by_word({"model": "module net", "batch": "data net"})
    {'module': ('model',), 'net': ('model', 'batch'), 'data': ('batch',)}
    """
    pairs = [(word, name) for name, listed in meant.items() for word in listed.split()]
    return {word: tuple(name for other, name in pairs if other == word) for word, _ in pairs}


def fixture_of(meant: str) -> str:
    """Return the fixture that an expression is read of: ``train_manager`` of ``train_manager.optimizer``."""
    return re.split(r"[.\[]", meant)[0]


def suggested(meant: str) -> str:
    """Return the question for what may be meant, and the fixture to ask for if that is another.

    >>> suggested("prediction")
    "did you mean 'prediction'?"
    >>> suggested("train_manager.optimizer")
    "did you mean train_manager.optimizer? ask for 'train_manager'"
    """
    fixture = fixture_of(meant)
    return did_you_mean((meant,)) if fixture == meant else f"did you mean {meant}? ask for {fixture!r}"
