"""Train ``characters.onnx``: a small decoder that continues English text character by character, and write its data.

Run it as ``make_digits_inception.py``; a GPU, which it takes where there is one, needs a minute and a half:

    pip install torch==2.13.0 scikit-learn && python sample_models/make_characters.py

It learns from what Python carries for ``help()``: the paragraphs of ``pydoc_data.topics`` that are ASCII, each once,
without line breaks and indentation. Every eighth topic is held out. While it is trained, noise of 15 % of their
deviation lies on all weights of products (A. Graves, 2011): it keeps the network from learning the text by heart, and
makes it bear INT4. It is calibrated and scored on paragraphs of rtlab's own documentation, as they are when it runs.
"""

from __future__ import annotations

import pydoc_data.topics
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import torch
from digits_common import folder, save
from make_digits_vit import VitWriter
from make_sentences import run
from onnx import helper
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Id 0 ends a paragraph, the others are the 95 characters from the space on.
CHARACTERS, TOKENS, WIDTH, HEADS, BLOCKS = 96, 128, 64, 4, 4
#: Characters from which on a paragraph is taken.
SHORTEST = 60
EACH = WIDTH // HEADS
STEPS, BATCH, RATE, NOISE, SEED = 6000, 64, 3e-3, 0.15, 0


def paragraphs() -> tuple[list[str], list[str]]:
    """Those to train on, and those of every eighth topic."""
    parts: tuple[list[str], list[str]] = [], []
    known: set[str] = set()
    for i, topic in enumerate(sorted(pydoc_data.topics.topics)):
        for lines in pydoc_data.topics.topics[topic].split("\n\n"):
            text = " ".join(lines.split())
            if text and text.isascii() and text not in known:
                known.add(text)
                parts[i % 8 == 0].append(text)
    return parts


def documentation() -> tuple[list[str], list[str]]:
    """Paragraphs of rtlab's documentation without markup: every third to calibrate on, and those to score on."""
    root = Path(__file__).parents[1]
    files = [
        *sorted(root.glob("docs/*.md")),
        *sorted(root.glob("*.md")),
        root / "sample_models" / "README.md",
    ]
    prose = re.sub(r"```.*?```", "", "\n\n".join(f.read_text("utf-8") for f in files), flags=re.DOTALL)
    texts = [" ".join(p.split()) for p in prose.split("\n\n")]
    texts = [t for t in texts if len(t) > SHORTEST and t.isascii() and t[0] not in "|#<!"]
    texts = [re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", t) for t in texts]
    return texts[::3], [t for i, t in enumerate(texts) if i % 3]


def encode(texts: list[str]) -> NDArray[np.uint8]:
    """The ids of paragraphs behind each other."""
    codes = np.frombuffer("".join(f"{t}\n" for t in texts).encode(), np.uint8)
    return np.where(codes == ord("\n"), 0, codes - 31).astype(np.uint8)


class Block(nn.Module):
    """Attention to earlier characters and two dense layers, each behind a normalisation and beside a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to characters of shape ``(N, TOKENS, WIDTH)``."""
        y = self.norm1(x)
        q, k, v = (
            f(y).unflatten(2, (HEADS, EACH)).transpose(1, 2) for f in (self.query, self.key, self.value)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(y.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.down(functional.gelu(self.up(self.norm2(x)))))


class Decoder(nn.Module):
    """Characters, positions, blocks, and the logits of the character that comes next."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, WIDTH)
        self.positions = nn.Parameter(torch.randn(1, TOKENS, WIDTH) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CHARACTERS)
        nn.init.normal_(self.characters.weight, std=0.1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = self.characters(ids) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def train(net: Decoder, ids: torch.Tensor) -> None:
    """AdamW on one cycle."""
    optimizer = torch.optim.AdamW(net.parameters(), RATE, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=STEPS)
    weights = [m.weight.data for m in net.modules() if isinstance(m, nn.Linear)]
    window = torch.arange(TOKENS + 1, device=ids.device)
    net.train()
    for step in range(STEPS):
        text = ids[torch.randint(len(ids) - TOKENS - 1, (BATCH, 1), device=ids.device) + window]
        noise = [NOISE * w.std() * torch.randn_like(w) for w in weights]
        torch._foreach_add_(weights, noise)
        loss = functional.cross_entropy(net(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch._foreach_sub_(weights, noise)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 500 == 499:
            print(f"step {step + 1}: loss {float(loss.detach()):.4f}", flush=True)
    net.eval().cpu()


class CharacterWriter(VitWriter):
    """Writes attention to earlier characters alone."""

    def attention(self, x: str, where: str) -> str:
        """Self-attention with its four dense layers."""
        heads = []
        for name, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
            at = f"{where}/{name}"
            y = self.node("Reshape", [self.dense(x, at), self.shape(0, TOKENS, HEADS, EACH)], at)
            heads.append(self.node("Transpose", [y], at, perm=order))
        query, key, value = heads
        at = f"{where}/attention"
        y = self.node("MatMul", [query, key], f"{at}/scores")
        y = self.node("Mul", [y, self.scalar("attention.scale", EACH**-0.5)], f"{at}/scale")
        later = np.triu(np.full((1, 1, TOKENS, TOKENS), -1e4, np.float32), k=1)
        y = self.node("Add", [y, self.constant("attention.mask", later)], f"{at}/mask")
        y = self.node("MatMul", [self.node("Softmax", [y], at, axis=-1), value], f"{at}/context")
        y = self.node("Transpose", [y], at, perm=[0, 2, 1, 3])
        return self.dense(self.node("Reshape", [y, self.shape(0, TOKENS, WIDTH)], at), f"{where}/out")


def write(net: Decoder) -> onnx.ModelProto:
    """The graph from ``input_ids`` to ``logits``."""
    writer = CharacterWriter(net)
    words = writer.constant("characters.weight", writer.state["characters.weight"])
    x = writer.node("Gather", [words, "input_ids"], "/characters", axis=0)
    x = writer.node("Add", [x, writer.constant("positions", writer.state["positions"])], "/positions")
    for i in range(BLOCKS):
        x = writer.encoder(x, f"/blocks/{i}")
    writer.dense(writer.layer_norm(x, "/norm"), "/head")
    writer.nodes[-1].output[0] = "logits"
    graph = helper.make_graph(
        writer.nodes,
        "characters",
        [helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["N", TOKENS])],
        [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["N", TOKENS, CHARACTERS])],
        list(writer.weights.values()),
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8, producer_name="rtlab")
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    """Train, write, and print the perplexity of what was written."""
    out = folder(__doc__)
    torch.manual_seed(SEED)
    net, (fit, test) = Decoder(), map(encode, paragraphs())
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train(net.to(device), torch.as_tensor(fit.astype(np.int64), device=device))
    finish(net, test, out)


def split(ids: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Windows of one character more than the model reads."""
    return ids[: len(ids) // (TOKENS + 1) * (TOKENS + 1)].reshape(-1, TOKENS + 1)


def finish(net: Decoder, test: NDArray[np.uint8], out: Path) -> None:
    """Write the model and its data, and print its perplexity on topics that were held out."""
    data = dict(zip(("calibration_ids", "test_ids"), map(split, map(encode, documentation())), strict=True))
    model = write(net)
    ids = split(test).astype(np.int64)
    logits = run(model, {"input_ids": ids[:, :-1]})
    with torch.no_grad():
        expected = net(torch.as_tensor(ids[:, :-1]))
    np.testing.assert_allclose(logits, expected.numpy(), rtol=1e-3, atol=1e-3)
    np.savez_compressed(out / "characters.npz", **data)
    save(model, out)
    loss = functional.cross_entropy(
        torch.as_tensor(logits).flatten(0, 1), torch.as_tensor(ids[:, 1:]).flatten()
    )
    print(f"characters: fp32 perplexity {float(loss.exp()):.4f} of {ids[:, 1:].size} characters")


if __name__ == "__main__":
    main()
