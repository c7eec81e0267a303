import pytest
import torch
from torch import nn

from vitkit.training.muon import Muon, orthogonalize


@pytest.mark.parametrize("shape", [(48, 144), (144, 48), (64, 64)])
def test_muon_equals_torchs_muon_up_to_rounding(shape: tuple[int, int]) -> None:
    """torch iterates in bfloat16, so its updates have about 1 % of noise."""
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator) for _ in range(3)]
    ours, theirs = ([nn.Parameter(t.clone()) for t in start] for _ in range(2))
    mine = Muon([{"params": ours, "weight_decay": 0.1}], lr=0.05)
    reference = torch.optim.Muon(theirs, lr=0.05, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(4):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(shape, generator=generator)
            b.grad = a.grad.clone()
        mine.step()
        reference.step()
    for a, b, s in zip(ours, theirs, start, strict=True):
        assert (a - b).norm() < 0.03 * (b - s).norm()


def test_muon_on_several_cores_has_the_same_bits() -> None:
    drawn = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=drawn) for shape in [(32, 96), (96, 32), (32, 96), (8, 3, 3, 3), (24, 24)]]
    found = []
    for cores in (1, 2):
        parameters = [nn.Parameter(each.clone()) for each in start]
        muon = Muon([{"params": parameters[:3]}, {"params": parameters[3:], "weight_decay": 0.1}], lr=0.05, cores=cores)
        for _ in range(3):
            for parameter in parameters:
                parameter.grad = parameter.detach().cos()
            muon.step()
        found.append([p.detach() for p in parameters])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(found[0], start, strict=True))


@pytest.mark.parametrize("shape", [(8, 3, 3, 3), (16, 8, 1, 1)])  # wide, and tall
def test_muon_treats_filters_as_rows_of_a_matrix(shape: tuple[int, ...]) -> None:
    filters, gradient = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    ours, flat = nn.Parameter(filters.clone()), nn.Parameter(filters.flatten(1).clone())
    for parameter in (ours, flat):
        parameter.grad = gradient.view_as(parameter)
        Muon([{"params": [parameter], "weight_decay": 0.1}], lr=0.05).step()
    torch.testing.assert_close(ours.flatten(1), flat)
    assert not torch.equal(ours, filters)


def test_singular_values_of_an_orthogonalized_matrix_are_near_one() -> None:
    singular = torch.linalg.svdvals(orthogonalize(torch.randn(2, 32, 96, generator=torch.Generator().manual_seed(0))))
    assert singular.min() > 0.6
    assert singular.max() < 1.3
