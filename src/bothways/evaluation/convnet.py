"""A small CNN, the control among networks. It is a bare torch module: the `run` room trains it."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class ConvNet(nn.Module):
    """EEGNet-8,2 without its dense layer (Lawhern et al. 2018, table 2): [B C S] -> [B d].

    Time filters of half a second, for each of them two spatial filters over all channels, a separable convolution of
    half a second, a mean over a quarter second. The paper's lengths at 128 Hz hold at other rates as seconds. Of its
    two limits on weights the spatial filters' is kept (norm at most 1), the dense layer's is not.

    Args:
        n_channels: C.
        n_samples: S.
        sfreq_hz: rate of the signals.
        n_filters: in time.
        depth: spatial filters for each.
        dropout: 0.5 within people, 0.25 across them, as the paper has it.
        seed: of the weights.

    Attributes:
        size: d.

    Raises:
        ValueError: the windows are shorter than a quarter second.
    """

    def __init__(
        self,
        n_channels: int,
        n_samples: int,
        sfreq_hz: float,
        *,
        n_filters: int = 8,
        depth: int = 2,
        dropout: float = 0.25,
        seed: int = 0,
    ) -> None:
        super().__init__()
        half_s, pool = round(sfreq_hz / 2), max(1, round(sfreq_hz / 32))  # pooled to about 32 Hz, then to 4 Hz
        if n_samples < 8 * pool:
            raise ValueError(f"expected windows of {8 * pool} samples or more, got {n_samples}")
        n_out = n_filters * depth
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.temporal = nn.Conv2d(1, n_filters, (1, half_s), padding=(0, half_s // 2), bias=False)
            self.spatial = nn.Conv2d(n_filters, n_out, (n_channels, 1), groups=n_filters, bias=False)
            self.depthwise = nn.Conv2d(n_out, n_out, (1, 16), padding=(0, 8), groups=n_out, bias=False)
            self.pointwise = nn.Conv2d(n_out, n_out, 1, bias=False)
        self.norm_1, self.norm_2, self.norm_3 = nn.BatchNorm2d(n_filters), nn.BatchNorm2d(n_out), nn.BatchNorm2d(n_out)
        self.pool_1, self.pool_2 = nn.AvgPool2d((1, pool)), nn.AvgPool2d((1, 8))
        self.dropout = nn.Dropout(dropout)
        with torch.no_grad():
            self.size = self.eval()(torch.zeros(1, n_channels, n_samples)).shape[1]
        self.train()

    def forward(self, signals: Float[Tensor, "B C S"]) -> Float[Tensor, "B d"]:
        """Maps each window to its features."""
        hidden = self.norm_1(self.temporal(signals[:, None]))  # [B f C S]
        weight = self.spatial.weight.renorm(2, 0, 1.0)
        hidden = F.elu(self.norm_2(F.conv2d(hidden, weight, groups=self.spatial.groups)))  # [B 2f 1 S]
        hidden = self.dropout(self.pool_1(hidden))
        hidden = F.elu(self.norm_3(self.pointwise(self.depthwise(hidden))))
        return self.dropout(self.pool_2(hidden)).flatten(1)
