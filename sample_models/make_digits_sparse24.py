"""Train ``digits_sparse24.onnx``: a residual network whose weights are 2:4 sparse along the input channels.

Run it as ``make_digits_inception.py``:

    pip install torch==2.13.0 scikit-learn && python sample_models/make_digits_sparse24.py

It is trained dense; then, of every four neighbouring input channels of a filter at one position, the two smallest
weights become zero, in every layer whose input channels are a multiple of four (all but the stem, which reads one);
then it is trained further with these zeros held (A. Mishra et al., 2021, arXiv:2104.08378).
"""

from __future__ import annotations

import torch
from digits_common import Digits, agree, folder, halves, report, reproducible, right, save, train
from digits_resnet import DigitsResnet, ResnetWriter
from torch import nn


def masks(net: nn.Module) -> dict[str, torch.Tensor]:
    """Which weights stay, by parameter: the two largest of every four along axis 1, at ties the first."""
    found = {}
    for name, weight in net.named_parameters():
        if weight.ndim < 2 or weight.shape[1] % 4:
            continue
        groups = weight.detach().abs().transpose(1, -1).unflatten(-1, (-1, 4))
        order = groups.argsort(dim=-1, descending=True, stable=True)
        kept = torch.zeros_like(groups).scatter_(-1, order[..., :2], 1)
        found[name] = kept.flatten(-2).transpose(1, -1)
    return found


@torch.no_grad()
def apply(net: nn.Module, kept: dict[str, torch.Tensor]) -> None:
    """Set the other weights to zero."""
    for name, mask in kept.items():
        net.get_parameter(name).mul_(mask)


@torch.no_grad()
def score(net: nn.Module, data: Digits) -> float:
    """Percent right."""
    return right(net(torch.as_tensor(data.images)).numpy(), data)


def main() -> None:
    """Train, prune, train further, write, and print the scores on the way."""
    out = folder(__doc__)
    fit, test = halves()
    reproducible()
    net = DigitsResnet()
    train(net, fit, epochs=50, clean=8)
    print(f"dense: {score(net, test):.2f} % right")
    kept = masks(net)
    apply(net, kept)
    print(f"pruned: {score(net, test):.2f} % right")
    train(net, fit, epochs=30, clean=8, rate=0.004, after_step=lambda: apply(net, kept))
    print(f"trained further: {score(net, test):.2f} % right")
    model = ResnetWriter(net).write().model("digits_sparse24")
    agree(model, net, test)
    save(model, out)
    report(model, fit, test)


if __name__ == "__main__":
    main()
