"""Fine-tune a transformer by LoRA: checkpoints hold the adapters, and name the weights below them by their hash.

    pip install transformers peft
    python examples/lora.py

The model is a small one, with weights that are drawn here: ``from_pretrained`` in its place changes nothing else. If
the program is started again with other weights, it is refused before a step is trained.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch.optim import AdamW
from transformers import LlamaConfig, LlamaForCausalLM

from train_manager import InMemory, TrainManager
from train_manager.extensions import Checkpoints

WORDS, LENGTH = 64, 16
EPOCHS = 6


def pretrained(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, **sizes))


def with_adapters(model: Any) -> Any:
    return get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))


def training(train_dir: Path, *, epochs: int, seed: int = 0) -> TrainManager:
    starts = torch.randint(WORDS, (64, 1), generator=torch.Generator().manual_seed(1))
    tokens = (starts + 3 * torch.arange(LENGTH)) % WORDS
    checkpoints = Checkpoints(only="trainable", resume=True, mirror=train_dir.with_name(f"{train_dir.name}-mirror"))
    return TrainManager(
        model=with_adapters(pretrained(seed)),
        optimizer=partial(AdamW, lr=1e-2),
        train_data=InMemory({"input_ids": tokens, "labels": tokens}, batch_size=8, shuffle=True),
        extensions=[checkpoints],
        epochs=epochs,
        seed=0,
        train_dir=train_dir,
    )


def main(arguments: Sequence[str]) -> None:
    train_dir = Path(arguments[0] if arguments else "runs/lora")
    tm = training(train_dir, epochs=EPOCHS)
    tm.train()
    newest = max((train_dir / "checkpoints").glob("step-*"))
    saved, whole = (newest / "model.safetensors").stat().st_size, sum(one.nbytes for one in tm.model.parameters())
    print(f"loss {tm.history.epochs[-1]['loss']:.2f}, {saved / 1e3:.0f} kB of weights saved of {whole / 1e3:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
