"""Random weights, and the comparison of outputs and gradients that the tests of this folder share."""

from collections.abc import Callable, Mapping
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from vitkit.model import ViT, ViTConfig, create_model
from vitkit.weights.reference_models import ReferenceUnavailable, import_library

State = dict[str, Tensor]
TOLERANCE = 1e-5  # of the largest value


def peer(name: str) -> ModuleType:
    """Return another library's module, or skip the test if it is not installed."""
    try:
        return import_library(name)
    except ReferenceUnavailable as error:
        pytest.skip(f"{error}: pip install 'vitkit[dev]'")


@torch.no_grad()
def randomise(model: nn.Module, seed: int = 0) -> nn.Module:
    """Randomise every parameter, also those whose initial zeros or ones would hide a mistake."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        is_matrix = parameter.ndim in (2, 4) and "token" not in name and "pos" not in name
        spread = parameter[0].numel() ** -0.5 if is_matrix else 0.3
        centre = 1.0 if parameter.ndim == 1 and not name.endswith("bias") else 0.0  # norms, LayerScale
        parameter.copy_(centre + spread * noise)
    return model.eval()


def random_images(size: tuple[int, int], batch: int = 2, channels: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(batch, channels, *size, generator=torch.Generator().manual_seed(seed))


def loaded(config: ViTConfig, state: Mapping[str, Tensor]) -> ViT:
    model = create_model(config, device="meta")
    model.load_state_dict(dict(state), strict=True, assign=True)
    model.requires_grad_()
    return model.eval()


def assert_near(ours: Tensor, theirs: Tensor, what: str = "output", scale: float | None = None) -> None:
    assert ours.shape == theirs.shape, f"{what}: {tuple(ours.shape)} is not {tuple(theirs.shape)}"
    scale = scale or theirs.abs().max().item()
    assert scale > 0, f"{what}: nothing to compare"
    difference = (ours - theirs).abs().max().item()
    assert difference <= TOLERANCE * scale, f"{what}: differs by {difference:.2e} at a scale of {scale:.2e}"


def assert_same_numbers(
    config: ViTConfig,
    theirs: nn.Module,
    convert: Callable[[State], State],
    images: Tensor,
    run_theirs: Callable[[Tensor], Tensor] | None = None,
    run_ours: Callable[[ViT, Tensor], Tensor] | None = None,
) -> ViT:
    """Outputs, and gradients of a random loss with respect to the pixels and to every parameter.

    `convert` maps names and shapes; being linear, it maps gradients as well as weights.
    """
    ours = loaded(config, {k: v.detach().clone() for k, v in convert(theirs.state_dict()).items()})
    run_theirs, run_ours = run_theirs or theirs, run_ours or (lambda model, x: model(x))
    pixels = [images.clone().requires_grad_() for _ in range(2)]
    outputs = [run_ours(ours, pixels[0]), run_theirs(pixels[1])]
    assert_near(outputs[0], outputs[1])
    for output in outputs:
        output.backward(torch.randn(output.shape, generator=torch.Generator().manual_seed(1)))
    assert_near(pixels[0].grad, pixels[1].grad, "gradient of the pixels")
    expected = convert({k: torch.zeros_like(p) if p.grad is None else p.grad for k, p in theirs.named_parameters()})
    assert expected.keys() == {name for name, _ in ours.named_parameters()}
    scale = max(grad.abs().max().item() for grad in expected.values())
    for name, parameter in ours.named_parameters():
        found = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert_near(found, expected[name], f"gradient of {name}", scale)
    return ours
