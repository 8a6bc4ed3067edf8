"""A compiler whose rules stand here: what keeps two nodes apart is known before anybody asks."""

from __future__ import annotations

from collections.abc import Collection

from rtlab.core.engine import Engine, Layer, Tensor
from rtlab.core.model import Model
from rtlab.core.protocols import Availability, BuildRequest, Capabilities, Progress
from rtlab.core.variant import Precision, Target
from rtlab.errors import BuildError

#: What joins the step of what it reads.
FOLLOWS = frozenset({"BatchNormalization", "Relu", "Add", "Cast"})
#: What a sum is taken by when it is there, in place of the product before it.
GREEDY = "GlobalAveragePool"


class Ruled:
    """Joins a node to the step that writes what it reads, if nobody else reads that and it is no output.

    A sum joins the first of its operands that may; a global average takes the sum before it away from a product. It
    refuses graphs that hold an operator of ``refused``, and crashes on those of ``crashes``.
    """

    name = "ruled"

    def __init__(self, refused: Collection[str] = (), *, stop: int = 0) -> None:
        self.refused, self.stop = frozenset(refused), stop
        self.built: list[Model] = []

    def availability(self) -> Availability:
        return Availability(ok=True, version="1.0")

    def capabilities(self) -> Capabilities:
        return Capabilities((Target("cpu"),), (Precision.FP32,), builds=True)

    def build(self, request: BuildRequest, progress: Progress) -> Engine:
        model = request.model
        self.built.append(model)
        if self.stop and len(self.built) > self.stop:
            progress.cancel()  # type: ignore[attr-defined]
        for node in model.top:
            if node.op in self.refused:
                raise BuildError(f'Backend "ruled" cannot build: it refuses {node.op}. Take it out.')
        steps: dict[str, int] = {}
        groups: list[list[str]] = []
        for node in model.top:
            home = next((steps[m] for m in self._makers(model, node.id) if m in steps), None)
            if home is None:
                home = len(groups)
                groups.append([])
            groups[home].append(node.id)
            steps[node.id] = home
        return Engine(
            backend="ruled",
            version="1.0",
            target=Target("cpu"),
            layers=tuple(self._layer(model, i, g) for i, g in enumerate(groups)),
        )

    def _makers(self, model: Model, node: str) -> list[str]:
        found = model.by_id[node]
        if found.op not in FOLLOWS:
            return []
        makers = []
        for value in found.inputs:
            maker = model.producers.get(value)
            if maker is None or value in model.outputs or len(model.consumers[value]) > 1:
                continue
            rival = found.op == "BatchNormalization" and self._taken(model, node)
            if not rival:
                makers.append(maker.id)
        return makers

    def _taken(self, model: Model, node: str) -> bool:
        at = model.by_id[node]
        for wanted in ("Add", GREEDY):
            readers = [r for o in at.outputs for r in model.consumers.get(o, ())]
            if not readers or readers[0].op != wanted:
                return False
            at = readers[0]
        return True

    def _layer(self, model: Model, index: int, group: list[str]) -> Layer:
        written = model.by_id[group[-1]].outputs[0]
        read = [v for n in group for v in model.by_id[n].inputs if v in model.producers or v in model.inputs]
        return Layer(
            f"layer{index}", "+".join(group), model.by_id[group[0]].op if len(group) == 1 else "fused", index,
            tuple(Tensor(v, "fp32") for v in read), (Tensor(written, "fp32"),), origins=tuple(group),
        )  # fmt: skip
