"""The layers of an engine as a table, and as one for pandas."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

from rtlab.analyses.cards.card import name_layers
from rtlab.analyses.fusion import map_nodes
from rtlab.analyses.memory.plan import count_weight_bytes
from rtlab.analyses.reformats.reasons import shorten_layout
from rtlab.analyses.timing import compute_timing, get_layer_times
from rtlab.core.engine import Layer
from rtlab.core.schema import UNSENT, FieldMeta, Origin
from rtlab.documents.results import ResultTable
from rtlab.relation.footprint import SIZE_LIMIT, nbytes, of_layers
from rtlab.relation.roles import words

if TYPE_CHECKING:
    import pandas as pd

    from rtlab.core.facts import VariantResult
    from rtlab.core.model import Model


@dataclasses.dataclass(frozen=True)
class LayerRow:
    """What is known of a layer, as ``layers_frame`` documents it; None and empty where it is not reported.

    ``origin`` is that of ``output_bytes``, ``time_origin`` that of ``time_ms``.
    """

    id: Annotated[str, FieldMeta(links="layers")]
    title: Annotated[str, FieldMeta("Layer")]
    name: str
    kind: Annotated[str, FieldMeta("Kind")]
    nodes: Annotated[tuple[str, ...], FieldMeta("Nodes", links="nodes")]
    operators: tuple[str, ...]
    reads: Annotated[str, FieldMeta("Reads")]
    writes: Annotated[str, FieldMeta("Writes")]
    precision: str
    tactic: Annotated[str, FieldMeta("Kernel")]
    formats_in: tuple[str, ...]
    formats_out: tuple[str, ...]
    stream: Annotated[int, FieldMeta("Stream")]
    time_ms: Annotated[float | None, FieldMeta("Time", "ms", "{self.time_origin}")]
    share: Annotated[float | None, FieldMeta("Share", "%", "measured")]
    shared: int | None
    sparse: Annotated[bool | None, FieldMeta("2:4 sparse")]
    output_bytes: Annotated[int | None, FieldMeta("Output", "B", "{self.origin}")]
    weight_bytes: Annotated[int | None, FieldMeta("Weights", "B")]
    origin: Annotated[Origin, UNSENT]
    time_origin: Annotated[Origin, UNSENT] = "measured"


@dataclasses.dataclass(frozen=True)
class LayerTable:
    """All layers of an engine, in order of execution."""

    layers: tuple[LayerRow, ...]


def layer_rows(result: VariantResult, model: Model | None = None) -> tuple[LayerRow, ...]:
    """The layers of a variant's engine in order of execution, for the model that is shown."""
    home = result.prepared.model if model is None else model
    times, sizes = get_layer_times(result), of_layers(result.engine, result.prepared.model)
    titles, mapping, timing = name_layers(result, home), map_nodes(result), compute_timing(result)
    rows = []
    for layer in result.engine.layers:
        time, size = times.get(layer.id), sizes.get(layer.id)
        rows.append(
            LayerRow(
                id=layer.id,
                title=titles[layer.id],
                name=layer.name,
                kind=layer.kind,
                nodes=mapping.nodes(layer.id),
                operators=tuple(
                    words(p.role, home.by_id[p.node].op) for p in mapping.of(layer.id) if p.node in home.by_id
                ),
                reads=layer.reads,
                writes=layer.writes,
                precision=layer.precision,
                tactic=layer.tactic,
                formats_in=tuple(shorten_layout(t.format) for t in layer.inputs),
                formats_out=tuple(shorten_layout(t.format) for t in layer.outputs),
                stream=layer.stream,
                time_ms=time.median if time else None,
                share=time.share if time else None,
                shared=time.shared if time else None,
                sparse=_sparse(layer),
                output_bytes=size.nbytes if size else None,
                weight_bytes=_weights(layer),
                origin=size.origin if size else "estimated",
                time_origin=timing.layer_origin if timing else "measured",
            )
        )
    return tuple(rows)


def layers_frame(result: VariantResult, model: Model | None = None) -> pd.DataFrame:
    """The layers of a variant's engine, a row each in order of execution, under their ids (the index, ``id``).

    | column | dtype | what |
    |---|---|---|
    | ``title`` | str | what its card says: ``Conv · BN · ReLU`` |
    | ``name``, ``kind`` | str | the compiler's words |
    | ``nodes`` | object: tuple of str | ids of the nodes of the model that the layer runs or serves; or empty |
    | ``operators`` | object: tuple of str | what it does for each, in the same order: ``Conv``, ``Q for Conv`` |
    | ``reads``, ``writes``, ``precision`` | str | narrowest type of its inputs, its outputs, and both; or empty |
    | ``tactic`` | str | its kernel, by name or number; empty where not told |
    | ``formats_in``, ``formats_out`` | object: tuple of str | layout of each input and output; empty words: not told |
    | ``stream`` | int64 | the stream it is issued to, 0 where there is one |
    | ``time_ms`` | float64 | its part of an inference in milliseconds, as the graph and the chart show it |
    | ``share`` | float64 | that time by the sum of all layers, from 0 to 1 |
    | ``shared`` | Int64 | how many layers have that time together; 1 where this very engine was measured |
    | ``sparse`` | boolean | whether it uses 2:4 sparse weights |
    | ``output_bytes`` | Int64 | size of all that it writes, by shape and type |
    | ``weight_bytes`` | Int64 | size of its weights and bias |

    What is unknown is NaN among ``time_ms`` and ``share`` and NA among the others, never 0. Where another engine was
    measured in this one's place, layers with ``shared`` above 1 repeat one time, so that the sum of ``time_ms`` is too
    large; only where all are 1 do ``time_ms`` and ``share`` add up.

    ``attrs`` says where numbers come from: ``engine`` names compiler, release and device; ``times`` how times were
    measured, empty without times; ``output_bytes`` is ``reported`` by the compiler or ``estimated`` without padding.

    >>> import rtlab
    >>> study = rtlab.Study(rtlab.testing.tiny_model())
    >>> variant = study.add("fp32", target="cpu")
    >>> table = study.run()["fp32"].table()
    >>> slowest = table.groupby("kind").time_ms.sum().sort_values()  # where the time goes
    >>> homes = table.explode("nodes").reset_index().groupby("nodes").id.agg(list)  # layers of each node
    >>> narrow = table[(table.reads == "int8") & (table.writes == "fp32")]
    >>> len(slowest) > 1, homes["head/Gemm"] != [], len(narrow)
    (True, True, 0)

    Args:
        result: The variant.
        model: The source model that is shown; by default the one that the engine was built from.
    """
    rows, timing = layer_rows(result, model), compute_timing(result)
    frame: pd.DataFrame = ResultTable(LayerRow, rows).frame().set_index("id")
    frame.attrs = {
        "engine": result.engine.title,
        "times": timing.layer_source if timing and any(r.time_ms is not None for r in rows) else "",
        "output_bytes": ", ".join(sorted({r.origin for r in rows if r.output_bytes is not None})),
    }
    return frame


def _sparse(layer: Layer) -> bool | None:
    """What the inspector says; it says nothing of layers without weights."""
    sparse_flag = layer.attributes.get("HasSparseWeights")
    return bool(sparse_flag) if isinstance(sparse_flag, (bool, int)) else None


def _weights(layer: Layer) -> int | None:
    """Bytes of constants, or of weights and bias as attributes tell them; None where some of it is not known."""
    parts = [a for key in ("Weights", "Bias") if isinstance(a := layer.attributes.get(key), dict)]
    sizes = [nbytes(t.dtype, t.shape) for t in layer.constants]
    sizes += [count_weight_bytes(part) for part in parts if part.get("Count") != 0]
    total = sum(size or 0 for size in sizes)
    return total if sizes and None not in sizes and total < SIZE_LIMIT else None
