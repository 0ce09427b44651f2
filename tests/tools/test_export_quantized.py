"""Linear layers with int8 weights in a copy of a model."""

from __future__ import annotations

import copy
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support.refusals import refusal
from train_manager.tools.export import quantize

needs_torchao = pytest.mark.skipif(find_spec("torchao") is None, reason="make exports installs it")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(), nn.Linear(256, 10))


@needs_torchao
@pytest.mark.slow  # torchao is imported
def test_each_weight_is_off_by_at_most_half_of_a_127th_of_the_largest_of_its_row() -> None:
    model = network()
    weight = model[0].weight  # type: ignore[index]
    # A row of the identity at a time: the outputs are the weights and the bias.
    with torch.no_grad():
        found = quantize(model[0])(torch.eye(64)).T - model[0].bias[:, None]  # type: ignore[index]
    steps = weight.abs().amax(1, keepdim=True) / 127

    # 128 values are below 0 and 127 above, so a step is a little smaller than this one, or as large.
    assert ((found - weight).abs() <= steps / 2 + 1e-6).all()


@needs_torchao
def test_linear_layers_take_less_than_a_third_of_the_bytes(tmp_path: Path) -> None:
    torch.save(network().state_dict(), tmp_path / "model.pt")
    torch.save(quantize(network()).state_dict(), tmp_path / "int8.pt")

    sizes = [(tmp_path / name).stat().st_size for name in ("int8.pt", "model.pt")]
    assert sizes[0] / sizes[1] <= 0.32


@needs_torchao
def test_convolutions_and_embeddings_stay() -> None:
    model = nn.ModuleList([nn.Conv2d(3, 4, 3), nn.Embedding(5, 8), nn.Linear(8, 8)])
    made = quantize(model)

    assert [type(parameter.data).__name__ for parameter in made.parameters()] == [
        *("Tensor", "Tensor", "Tensor", "Int8Tensor", "Tensor")
    ]


@needs_torchao
def test_the_model_and_the_random_state_stay_as_they_were() -> None:
    model = network()
    model[2].eval()  # type: ignore[index]
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()

    made = quantize(model)

    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    for one in (model, made):
        assert [module.training for module in one.modules()] == [True, True, True, False, True]
    assert torch.equal(torch.get_rng_state(), state)


@needs_torchao
def test_settings_of_torch_compile_stay_as_they_were() -> None:
    import torch._inductor.config as settings

    before = settings.save_config_portable()
    quantize(network())

    assert settings.save_config_portable() == before


@needs_torchao
def test_its_weights_are_loaded_without_code_into_a_model_with_others(tmp_path: Path) -> None:
    made, inputs = quantize(network().eval()), torch.randn(5, 64)
    torch.save(made.state_dict(), tmp_path / "int8.pt")
    new = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(), nn.Linear(256, 10)).eval()

    loaded = quantize(new)
    loaded.load_state_dict(torch.load(tmp_path / "int8.pt", weights_only=True), assign=True)

    assert torch.equal(loaded(inputs), made(inputs))


@needs_torchao
def test_a_transformer_predicts_with_int8_weights() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).eval()
    inputs = torch.randn(4, 5, 16)

    with torch.no_grad():
        torch.testing.assert_close(quantize(model)(inputs), model(inputs), rtol=0, atol=0.05)


@needs_torchao
def test_a_model_without_a_linear_layer_is_refused() -> None:
    assert (
        refusal(lambda: quantize(nn.Sequential(nn.Conv2d(1, 4, 3))))
        == "quantize makes int8 weights of Linear layers, but the model (Sequential) has none\n  leave int8 out"
    )


@needs_torchao
def test_weights_of_double_precision_are_refused() -> None:
    assert refusal(lambda: quantize(network().double())) == (
        "quantize takes weights of float32, but those of '0' are torch.float64\n"
        "  quantize(copy.deepcopy(model).float())"
    )


def test_a_missing_torchao_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)

    with pytest.raises(ImportError, match=r'quantize needs torchao .*: pip install "train-manager\[quantize\]"$'):
        quantize(network())
