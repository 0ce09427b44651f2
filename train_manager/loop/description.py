"""A TrainManager in a few words, as text and as HTML; reads no number from a device, and no batch."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import nn

from train_manager.core.extension import Extension
from train_manager.data.description import batches_text
from train_manager.telling.showing import cut, short, told

Facts = dict[str, str | dict[str, str]]
"""What a training consists of, and how far it is, in words; of evaluation sets and extensions the words of each."""


def facts(attributes: Mapping[str, Any], extensions: Mapping[str, Extension]) -> Facts:
    """Return what is known: all of it, unless a constructor has failed half-way.

    Args:
        attributes: of a TrainManager.
        extensions: by name.
    """
    setup = attributes.get("_setup")
    found: dict[str, str | dict[str, str] | None] = {
        **({} if setup is None else _facts_of_setup(setup)),
        "train_dir": _told(attributes.get("train_dir"), str),
        "progress": _told(attributes if "history" in attributes else None, _progress),
        "extensions": {name: told(one) for name, one in extensions.items()},
    }
    return {name: fact for name, fact in found.items() if fact}


def _facts_of_setup(setup: Any) -> Facts:
    found = {
        "model": _told(setup.model, model_text),
        "loss": _told(setup.loss, short),
        "optimizer": _told(setup.optimizer, optimizer_text),
        "train_data": _told(setup.train_data, batches_text),
    }
    sets = setup.eval_data if isinstance(setup.eval_data, Mapping) else {}
    return {**found, "eval_data": {name: _told(data, batches_text) for name, data in sets.items()}}


def _told(value: Any, tell: Callable[[Any], str | None]) -> str:
    """Return a fact in words; what an odd value raises is told, for it would hide what the manager is printed for."""
    try:
        return "" if value is None else tell(value) or ""
    except Exception as error:
        return f"<{type(error).__name__}>"


def _progress(attributes: Mapping[str, Any]) -> str:
    """Return ``epoch 3 of 5, step 60``; without the 5 if the training went on after it, as ``train_epochs`` does."""
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
    except (ValueError, RuntimeError):  # of a lazy module, whose shapes come with its first batch
        return f"{kind}(parameters not initialized)"
    except Exception as error:  # of a module's own parameters(); a repr that raises hides what it was printed for
        return f"{kind}(its parameters raise {type(error).__name__})"
    devices = dict.fromkeys(str(parameter.device) for parameter in parameters)
    return f"{kind}({count:,} parameters{' on ' if devices else ''}{' and '.join(devices)})"


def optimizer_text(optimizer: Any) -> str | None:
    """Return ``AdamW(lr=0.001)``, several by name; a rate in a tensor is left out, for it may be on a GPU."""
    if optimizer is None:
        return None
    if isinstance(optimizer, dict):
        return cut(f"{{{', '.join(f'{name!r}: {optimizer_text(one)}' for name, one in optimizer.items())}}}")
    rates = dict.fromkeys(group.get("lr") for group in getattr(optimizer, "param_groups", ()))
    shown = [short(rate) for rate in rates if isinstance(rate, float | int)]
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
    """Return a small table, without colours of its own: it is read on light and on dark pages."""
    rows = "".join(
        f'<tr><th style="text-align: left; vertical-align: top">{html.escape(name)}</th>'
        f'<td style="text-align: left; white-space: pre-line">{html.escape(_lines(fact))}</td></tr>'
        for name, fact in given.items()
    )
    caption = f'<caption style="text-align: left; font-weight: bold">{html.escape(kind)}</caption>'
    return f'<table style="color: inherit">{caption}<tbody>{rows}</tbody></table>'


def _lines(fact: str | dict[str, str]) -> str:
    return "\n".join(f"{name}: {text}" for name, text in fact.items()) if isinstance(fact, dict) else fact
