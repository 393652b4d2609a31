import pytest
import torch
import torch.nn.functional as F

from bothways.evaluation import ConvNet


def test_sizes_are_those_of_eegnet_8_2() -> None:
    """Lawhern et al. 2018, table 2, of 64 channels and a second at 128 Hz; of two classes it has 130 more."""
    net = ConvNet(64, 128, 128.0)
    sizes = {name: p.numel() for name, p in net.named_parameters()}
    norms = {f"norm_{i}.{what}": n for i, n in ((1, 8), (2, 16), (3, 16)) for what in ("weight", "bias")}
    filters = {"temporal": 8 * 64, "spatial": 16 * 64, "depthwise": 16 * 16, "pointwise": 16 * 16}
    assert sizes == {f"{name}.weight": n for name, n in filters.items()} | norms
    assert net.size == 16 * 4  # 128 / 4 / 8 moments
    assert net(torch.randn(3, 64, 128)).shape == (3, 64)
    assert ConvNet(19, 2000, 200.0).temporal.kernel_size == (1, 100)


def test_the_seed_alone_makes_the_weights() -> None:
    state = torch.random.get_rng_state()
    one, same, other = (ConvNet(3, 128, 64.0, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), state)
    for name in ("temporal", "spatial", "depthwise", "pointwise"):
        mine = one.get_parameter(f"{name}.weight")
        assert torch.equal(mine, same.get_parameter(f"{name}.weight"))
        assert not torch.equal(mine, other.get_parameter(f"{name}.weight"))


def test_every_parameter_gets_a_gradient() -> None:
    net = ConvNet(3, 128, 64.0, dropout=0.0)
    F.cross_entropy(net(torch.randn(8, 3, 128, generator=torch.Generator().manual_seed(0))), torch.arange(8)).backward()
    assert [name for name, p in net.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_spatial_filters_are_no_longer_than_1() -> None:
    net = ConvNet(3, 128, 64.0).eval()
    signals = torch.randn(2, 3, 128, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        net.spatial.weight.copy_(F.normalize(net.spatial.weight, dim=(1, 2, 3)))
        at_1 = net(signals)
        net.spatial.weight.mul_(50)
        torch.testing.assert_close(net(signals), at_1, rtol=1e-4, atol=1e-5)
        net.spatial.weight.mul_(0.01)
        assert not torch.allclose(net(signals), at_1, rtol=1e-2, atol=1e-3)


def test_a_window_too_short_is_refused() -> None:
    with pytest.raises(ValueError, match="expected windows of 32 samples or more, got 31"):
        ConvNet(3, 31, 128.0)
