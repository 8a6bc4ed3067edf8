"""The residual network that ``digits_qat`` and ``digits_sparse24`` share, and how it is written as ONNX.

Places where an activation may be quantized are modules of their own: ``nn.Identity`` until a script puts a quantizer
there. They are where TensorRT wants pairs: the inputs of convolutions and of the classifier, one for all readers
of a value; the branch of a residual addition that is not the block's last convolution; the input of the pool.
"""

from __future__ import annotations

import torch
from digits_common import Writer
from torch import nn

WIDTH, STEM_STRIDE = 16, 2
#: Output channels and stride of each block.
BLOCKS = ((16, 1), (32, 2), (32, 1))


class ConvNorm(nn.Module):
    """Convolution and batch normalisation."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply."""
        return self.norm(self.conv(x))

    def folded(self) -> nn.Conv2d:
        """One convolution with a bias that computes the same in evaluation."""
        old, norm = self.conv, self.norm
        new = nn.Conv2d(old.in_channels, old.out_channels, old.kernel_size, old.stride, old.padding)
        factor = norm.weight / (norm.running_var + norm.eps).sqrt()
        with torch.no_grad():
            new.weight.copy_(old.weight * factor[:, None, None, None])
            new.bias.copy_(norm.bias - norm.running_mean * factor)
        return new


class Residual(nn.Module):
    """Two 3x3 convolutions beside the input, or beside a 1x1 convolution of it where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.entry, self.inner, self.beside = nn.Identity(), nn.Identity(), nn.Identity()
        self.conv1 = ConvNorm(inputs, outputs, 3, stride)
        self.conv2 = ConvNorm(outputs, outputs, 3, 1)
        self.shortcut = ConvNorm(inputs, outputs, 1, stride) if (inputs, 1) != (outputs, stride) else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply."""
        x = self.entry(x)
        y = self.conv2(self.inner(torch.relu(self.conv1(x))))
        return torch.relu(y + (x if self.shortcut is None else self.beside(self.shortcut(x))))


class DigitsResnet(nn.Module):
    """Stem, three residual blocks, classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.entry = nn.Identity()
        self.stem = ConvNorm(1, WIDTH, 3, STEM_STRIDE)
        widths = (WIDTH, *(w for w, _ in BLOCKS))
        self.blocks = nn.Sequential(*(Residual(i, o, s) for i, (o, s) in zip(widths, BLOCKS, strict=False)))
        self.pooled, self.features = nn.Identity(), nn.Identity()
        self.classifier = nn.Linear(widths[-1], 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = self.pooled(self.blocks(torch.relu(self.stem(self.entry(x)))))
        return self.classifier(self.features(x.mean((2, 3))))


class ResnetWriter(Writer):
    """Writes the network as its modules are: convolutions folded or not, activations quantized or not."""

    def __init__(self, net: DigitsResnet) -> None:
        super().__init__(net)
        self.net = net

    def quantizer(self, x: str, where: str, module: nn.Module) -> str:
        """What ``module`` does to an activation; a script that has quantizers says how they are written."""
        if not isinstance(module, nn.Identity):
            raise TypeError(f"{where} is a {type(module).__name__}, which this writer cannot write.")
        return x

    def conv(self, x: str, where: str, module: nn.Module) -> str:
        """A convolution and its normalisation, or a folded one."""
        inner = module.conv if isinstance(module, ConvNorm) else module
        layout = {
            "kernel_shape": list(inner.kernel_size),
            "pads": list(inner.padding) * 2,
            "strides": list(inner.stride),
        }
        if isinstance(module, ConvNorm):
            x = self.node("Conv", [x], f"{where}/conv", "weight", **layout)
            return self.norm(x, f"{where}/norm")
        weights = [
            self.weight(where),
            self.constant(f"{self.key(where)}.bias", self.state[f"{self.key(where)}.bias"]),
        ]
        return self.node("Conv", [x, *weights], where, **layout)

    def weight(self, where: str) -> str:
        """The weight of a folded convolution or of the classifier."""
        name = f"{self.key(where)}.weight"
        return self.constant(name, self.state[name])

    @staticmethod
    def key(where: str) -> str:
        """PyTorch's path of a module."""
        return where.strip("/").replace("/", ".")

    def block(self, x: str, where: str, block: Residual) -> str:
        """Write one residual block."""
        x = self.quantizer(x, f"{where}/entry", block.entry)
        y = self.node("Relu", [self.conv(x, f"{where}/conv1", block.conv1)], f"{where}/conv1")
        y = self.conv(self.quantizer(y, f"{where}/inner", block.inner), f"{where}/conv2", block.conv2)
        if block.shortcut is not None:
            x = self.conv(x, f"{where}/shortcut", block.shortcut)
            x = self.quantizer(x, f"{where}/beside", block.beside)
        return self.node("Relu", [self.node("Add", [y, x], f"{where}/residual")], f"{where}/residual")

    def write(self) -> ResnetWriter:
        """Write the whole network."""
        net = self.net
        x = self.conv(self.quantizer("image", "/entry", net.entry), "/stem", net.stem)
        x = self.node("Relu", [x], "/stem")
        for i, block in enumerate(net.blocks):
            x = self.block(x, f"/blocks/{i}", block)
        x = self.node("GlobalAveragePool", [self.quantizer(x, "/pooled", net.pooled)], "/pool")
        x = self.quantizer(self.node("Flatten", [x], "/flatten", axis=1), "/features", net.features)
        bias = self.constant("classifier.bias", self.state["classifier.bias"])
        self.node("Gemm", [x, self.weight("/classifier"), bias], "/classifier", transB=1)
        return self
