"""A TrainManager in a few words, as text and as HTML; reads no number from a device, and no batch."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import nn

from train_manager.data.batch import batches_text
from train_manager.model.combined_optimizer import CombinedOptimizer
from train_manager.telling.showing import cut, safe_repr, short

Facts = dict[str, str | dict[str, str]]
"""The components of a training, and how far it is, in words; a dict for evaluation sets and extensions."""


def facts(attributes: Mapping[str, Any], extensions: Mapping[str, object]) -> Facts:
    """Return the facts that a ``repr`` shows.

    Args:
        attributes: the ``__dict__`` of a TrainManager.
        extensions: its extensions by name.
    """
    setup = attributes.get("_setup")  # attributes may be missing: a constructor that fails half-way is printed too
    found: dict[str, str | dict[str, str] | None] = {
        **({} if setup is None else _facts_of_setup(setup)),
        "train_dir": _describe(attributes.get("train_dir"), str),
        "progress": _describe(attributes if "history" in attributes else None, _progress),
        "extensions": {name: safe_repr(one) for name, one in extensions.items()},
    }
    return {name: fact for name, fact in found.items() if fact}


def _facts_of_setup(setup: Any) -> Facts:
    found = {
        "model": _describe(setup.model, model_text),
        "loss": _describe(setup.loss, short),
        "optimizer": _describe(setup.optimizer, optimizer_text),
        "train_data": _describe(setup.train_data, batches_text),
    }
    sets = setup.eval_data if isinstance(setup.eval_data, Mapping) else {}
    return {**found, "eval_data": {name: _describe(data, batches_text) for name, data in sets.items()}}


def _describe(value: Any, tell: Callable[[Any], str | None]) -> str:
    """Return a fact in words."""
    try:
        return "" if value is None else tell(value) or ""
    except Exception as error:  # a repr that raises would hide all other facts
        return f"<{type(error).__name__}>"


def _progress(attributes: Mapping[str, Any]) -> str:
    """Return ``epoch 3 of 5, step 60``; without the 5 if the training continued after it, as ``train_epochs`` does."""
    done, epochs, step_num = (
        attributes["_progress"].epoch_num,
        attributes["_setup"].epochs,
        attributes["_counts"].step_num,
    )
    return f"epoch {done}{f' of {epochs}' if done <= epochs else ''}, step {step_num}"


def model_text(model: Any) -> str:
    """Return ``Sequential(12,345 parameters on cpu)``."""
    kind = type(model).__name__
    if not isinstance(model, nn.Module):
        return kind
    try:
        parameters = list(model.parameters())
        count = sum(parameter.numel() for parameter in parameters)
    except (ValueError, RuntimeError):  # a lazy module gets its shapes with its first batch
        return f"{kind}(parameters not initialized)"
    except Exception as error:  # a parameters() of the module's own has failed; a repr must not raise
        return f"{kind}(its parameters raise {type(error).__name__})"
    devices = dict.fromkeys(str(parameter.device) for parameter in parameters)
    return f"{kind}({count:,} parameters{' on ' if devices else ''}{' and '.join(devices)})"


def optimizer_text(optimizer: Any) -> str | None:
    """Return ``AdamW(lr=0.001)``; several optimizers by name."""
    if optimizer is None:
        return None
    if isinstance(optimizer, dict):
        return cut(f"{{{', '.join(f'{name!r}: {optimizer_text(one)}' for name, one in optimizer.items())}}}")
    if isinstance(optimizer, CombinedOptimizer):
        return cut(" and ".join(f"{optimizer_text(part)}" for part in optimizer.parts))
    rates = dict.fromkeys(group.get("lr") for group in getattr(optimizer, "param_groups", ()))
    shown = [short(rate) for rate in rates if isinstance(rate, float | int)]  # a tensor may be on a GPU
    return f"{type(optimizer).__name__}({'lr=' if shown else ''}{', '.join(shown)})"


def as_text(kind: str, given: Facts) -> str:
    """Return at most three lines: what is trained, on what, and how far it is."""
    lines = [("model", "loss", "optimizer"), ("train_data", "eval_data", "train_dir"), ("progress", "extensions")]
    texts = [", ".join(_items(given, names)) for names in lines]
    between = ",\n" + " " * (len(kind) + 1)
    return f"{kind}({between.join(filter(None, texts))})"


def _items(given: Facts, names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        fact = given.get(name, "")
        text = f"[{', '.join(fact)}]" if isinstance(fact, dict) else fact
        if text:
            yield text if name == "progress" else f"{name}={cut(text)}"


def as_html(kind: str, given: Facts) -> str:
    """Return a small table, without colours of its own, so that light and dark pages can show it."""
    rows = "".join(
        f'<tr><th style="text-align: left; vertical-align: top">{html.escape(name)}</th>'
        f'<td style="text-align: left; white-space: pre-line">{html.escape(_lines(fact))}</td></tr>'
        for name, fact in given.items()
    )
    caption = f'<caption style="text-align: left; font-weight: bold">{html.escape(kind)}</caption>'
    return f'<table style="color: inherit">{caption}<tbody>{rows}</tbody></table>'


def _lines(fact: str | dict[str, str]) -> str:
    return "\n".join(f"{name}: {text}" for name, text in fact.items()) if isinstance(fact, dict) else fact
