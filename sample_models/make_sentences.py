"""Train ``sentences.onnx``: a small encoder that reads token ids with an attention mask, and write its data.

Run it as ``make_digits_inception.py``:

    pip install torch==2.13.0 scikit-learn && python sample_models/make_sentences.py

The task is who acts in a made-up English sentence: "the cat that the old dog sees is chased by a fox" has ten animals
to choose from, and the answer is the fox. Word order alone does not tell (active, passive and clefts, each noun with
adjectives, places and clauses of its own). Sentences are of 6 to 32 words and padded, as a tokenizer pads them, so the
attention mask is needed; it is added to the scores as PyTorch's exporter writes it: one minus the mask, times the
lowest number of FP32.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnxruntime
import torch
from digits_common import folder, reproducible, save
from make_digits_vit import VitWriter
from onnx import helper
from torch import nn
from torch.nn import functional

from rtlab.samples.transformers import sentence_input

if TYPE_CHECKING:
    from numpy.typing import NDArray

ANIMALS = ["dog", "cat", "fox", "bird", "cow", "hen", "pig", "owl", "rat", "bear"]
ACTS = ["sees", "chases", "follows", "hears", "finds", "feeds"]
DONE = ["seen", "chased", "followed", "heard", "found", "fed"]
LOOKS = ["old", "young", "small", "brown", "quick", "quiet", "tame", "wild"]
PLACES = ["near", "behind", "beside", "below"]
OTHER = ["the", "a", "that", "is", "by", "it"]
#: Id 0 is padding, id 1 opens a sentence.
WORDS = {word: 2 + i for i, word in enumerate((*ANIMALS, *ACTS, *DONE, *LOOKS, *PLACES, *OTHER))}
TOKENS, WIDTH, HEADS, BLOCKS, HIDDEN = 32, 48, 4, 2, 96
EACH = WIDTH // HEADS
#: Sentences to train on, to calibrate on (the first of these) and to score on, and steps of training.
TRAIN, CALIBRATE, TEST, STEPS, BATCH, SEED = 20_000, 512, 1000, 2500, 64, 0


class Grammar:
    """Draws sentences, each with the animal that acts in its main clause."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def _any(self, words: list[str]) -> str:
        return words[self.rng.integers(len(words))]

    def noun(self, animal: str, depth: int) -> list[str]:
        """An animal with what is said of it."""
        words = [self._any(["the", "a"])]
        words += [self._any(LOOKS) for _ in range(int(self.rng.integers(3)) if depth else 0)]
        words.append(animal)
        if depth and self.rng.random() < 0.3:
            words += [self._any(PLACES), *self.noun(self._any(ANIMALS), depth - 1)]
        if depth and self.rng.random() < 0.4:
            other = self.noun(self._any(ANIMALS), depth - 1)
            act, done = self._any(ACTS), self._any(DONE)
            words += [["that", act, *other], ["that", *other, act], ["that", "is", done, "by", *other]][
                self.rng.integers(3)
            ]
        return words

    def sentence(self) -> tuple[list[str], int]:
        """The words and the number of the animal that acts."""
        first, second = (self._any(ANIMALS) for _ in range(2))
        one, two = self.noun(first, 2), self.noun(second, 2)
        act, done = self._any(ACTS), self._any(DONE)
        words, actor = [
            ([*one, act, *two], first),
            ([*one, "is", done, "by", *two], second),
            (["it", "is", *one, "that", act, *two], first),
            (["it", "is", *one, "that", *two, act], second),
        ][self.rng.integers(4)]
        return words, ANIMALS.index(actor)

    def sentences(self, count: int, known: set[tuple[str, ...]]) -> Sentences:
        """``count`` different sentences that fit, none of them ``known``, which they join."""
        ids, actors = np.zeros((count, TOKENS), np.uint8), np.zeros(count, np.uint8)
        at = 0
        while at < count:
            words, actor = self.sentence()
            if len(words) >= TOKENS or tuple(words) in known:
                continue
            known.add(tuple(words))
            ids[at, : len(words) + 1] = [1, *(WORDS[w] for w in words)]
            actors[at] = actor
            at += 1
        return Sentences(ids, actors)


@dataclasses.dataclass(frozen=True)
class Sentences:
    """Ids of shape ``(count, TOKENS)``, 0 behind the end, and who acts."""

    ids: NDArray[np.uint8]
    actors: NDArray[np.uint8]

    @property
    def inputs(self) -> dict[str, NDArray[np.int64]]:
        """What the network reads."""
        return sentence_input(self.ids)


class Encoder(nn.Module):
    """Self-attention and two dense layers, each beside a residual and before a layer normalisation, as in BERT."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Apply to tokens of shape ``(N, TOKENS, WIDTH)``; ``bias`` is added to the scores."""
        q, k, v = (
            f(x).reshape(-1, TOKENS, HEADS, EACH).transpose(1, 2) for f in (self.query, self.key, self.value)
        )
        y = ((q @ k.transpose(2, 3)) * EACH**-0.5 + bias).softmax(-1) @ v
        x = self.norm1(x + self.out(y.transpose(1, 2).reshape(-1, TOKENS, WIDTH)))
        return self.norm2(x + self.down(functional.gelu(self.up(x))))


class Reader(nn.Module):
    """Words, positions, encoder blocks, and a classifier of the token that opens the sentence."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(2 + len(WORDS), WIDTH)
        self.positions = nn.Parameter(torch.randn(1, TOKENS, WIDTH) * 0.02)
        self.norm = nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList(Encoder() for _ in range(BLOCKS))
        self.classifier = nn.Linear(WIDTH, len(ANIMALS))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        bias = (1 - mask[:, None, None].float()) * torch.finfo(torch.float32).min
        x = self.norm(self.words(ids) + self.positions)
        for block in self.blocks:
            x = block(x, bias)
        return self.classifier(x[:, 0])


def train(net: Reader, data: Sentences) -> None:
    """AdamW on one cycle."""
    tensors = [torch.as_tensor(a) for a in (*data.inputs.values(), data.actors.astype(np.int64))]
    optimizer = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=STEPS)
    net.train()
    for step in range(STEPS):
        chosen = torch.randint(TRAIN, (BATCH,))
        ids, mask, actors = (t[chosen] for t in tensors)
        loss = functional.cross_entropy(net(ids, mask), actors)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 250 == 249:
            print(f"step {step + 1}: loss {float(loss.detach()):.4f}", flush=True)
    net.eval()


class SentenceWriter(VitWriter):
    """Adds the mask and the block."""

    def block(self, x: str, bias: str, where: str) -> str:
        """Write one encoder block."""
        heads = []
        for name, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
            at = f"{where}/{name}"
            y = self.node("Reshape", [self.dense(x, at), self.shape(0, TOKENS, HEADS, EACH)], at)
            heads.append(self.node("Transpose", [y], at, perm=order))
        query, key, value = heads
        at = f"{where}/attention"
        y = self.node("MatMul", [query, key], f"{at}/scores")
        y = self.node("Mul", [y, self.scalar("attention.scale", EACH**-0.5)], f"{at}/scale")
        y = self.node("Softmax", [self.node("Add", [y, bias], f"{at}/mask")], at, axis=-1)
        y = self.node("Transpose", [self.node("MatMul", [y, value], f"{at}/context")], at, perm=[0, 2, 1, 3])
        y = self.dense(self.node("Reshape", [y, self.shape(0, TOKENS, WIDTH)], at), f"{where}/out")
        x = self.layer_norm(self.node("Add", [x, y], f"{where}/residual1"), f"{where}/norm1")
        y = self.dense(self.gelu(self.dense(x, f"{where}/up"), f"{where}/gelu"), f"{where}/down")
        return self.layer_norm(self.node("Add", [x, y], f"{where}/residual2"), f"{where}/norm2")

    def mask(self) -> str:
        """What is added to the scores: nothing for a word, the lowest number for padding."""
        axes = self.constant("mask.axes", np.array([1, 2], np.int64))
        y = self.node("Unsqueeze", ["attention_mask", axes], "/mask")
        y = self.node("Cast", [y], "/mask", to=onnx.TensorProto.FLOAT)
        y = self.node("Sub", [self.scalar("mask.one", 1), y], "/mask")
        return self.node("Mul", [y, self.scalar("mask.lowest", float(np.finfo(np.float32).min))], "/mask")


def write(net: Reader) -> onnx.ModelProto:
    """The graph from ``input_ids`` and ``attention_mask`` to ``logits``."""
    writer = SentenceWriter(net)
    bias = writer.mask()
    words = writer.constant("words.weight", writer.state["words.weight"])
    x = writer.node("Gather", [words, "input_ids"], "/words", axis=0)
    x = writer.node("Add", [x, writer.constant("positions", writer.state["positions"])], "/positions")
    x = writer.layer_norm(x, "/norm")
    for i in range(BLOCKS):
        x = writer.block(x, bias, f"/blocks/{i}")
    x = writer.node("Gather", [x, writer.constant("first", np.array(0, np.int64))], "/first", axis=1)
    writer.node("Gemm", [x], "/classifier", "weight", "bias", transB=1)
    writer.nodes[-1].output[0] = "logits"
    graph = helper.make_graph(
        writer.nodes,
        "sentences",
        [
            helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["N", TOKENS])
            for name in ("input_ids", "attention_mask")
        ],
        [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["N", len(ANIMALS)])],
        list(writer.weights.values()),
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8, producer_name="rtlab")
    onnx.checker.check_model(model, full_check=True)
    return model


def run(model: onnx.ModelProto, inputs: dict[str, NDArray[np.int64]]) -> NDArray[np.float32]:
    """Logits, as ONNX Runtime's CPU computes them at level BASIC."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found: NDArray[np.float32] = session.run(["logits"], inputs)[0]
    return found


def right(logits: NDArray[np.float32], data: Sentences) -> float:
    """Percent of sentences whose largest logit is that of the animal that acts."""
    return 100 * float((logits.argmax(1) == data.actors).mean())


def main() -> None:
    """Train, write, and print the scores of what was written."""
    out = folder(__doc__)
    known: set[tuple[str, ...]] = set()
    grammar = Grammar(SEED)
    test, fit = grammar.sentences(TEST, known), grammar.sentences(TRAIN, known)
    reproducible()
    net = Reader()
    train(net, fit)
    model = write(net)
    found = run(model, test.inputs)
    with torch.no_grad():
        expected = net(*(torch.as_tensor(a) for a in test.inputs.values())).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    np.savez_compressed(
        out / "sentences.npz",
        train_ids=fit.ids[:CALIBRATE],
        train_actors=fit.actors[:CALIBRATE],
        test_ids=test.ids,
        test_actors=test.actors,
    )
    save(model, out)
    print(f"sentences: fp32 {right(found, test):6.2f} % right")


if __name__ == "__main__":
    main()
