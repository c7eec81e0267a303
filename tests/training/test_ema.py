import torch

from vitkit.training.ema import EMA, ema_decay


def test_the_ema_is_the_exponential_mean_of_the_weights() -> None:
    vit = torch.nn.Linear(2, 1)
    average = EMA(vit)
    expected = vit.weight.detach().clone()
    for step in range(5):
        with torch.no_grad():
            vit.weight.fill_(float(step))
        average.update(vit, 0.9)
        expected = 0.9 * expected + 0.1 * step
    torch.testing.assert_close(average.state_dict()["weight"], expected)


def test_swapping_twice_restores_both() -> None:
    vit = torch.nn.Linear(2, 1)
    average = EMA(vit)
    torch.nn.init.ones_(vit.weight)
    before = average.state_dict()["weight"].clone()
    average.swap(vit)
    torch.testing.assert_close(vit.weight.detach(), before)
    average.swap(vit)
    torch.testing.assert_close(vit.weight.detach(), torch.ones(1, 2))


def test_the_ema_decay_is_small_in_the_first_steps() -> None:
    assert ema_decay(0, 0.999) == 0.1
    assert ema_decay(10**6, 0.999) == 0.999
