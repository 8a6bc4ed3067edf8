import { useMemo } from "preact/hooks";
import type { Box, EngineView, Overlay } from "../contract";
import { syncSteps } from "../drawn";
import { ending, GLYPH, NONE, opsOf, quantity, shorten } from "../format";
import type { Lab } from "../lab";
import { sourceOf } from "../overlay";
import { type Column, Rows } from "./rows";

interface Line {
  index: number;
  box: Box;
  nodes: number;
  /** A step that only keeps the engine's books, and is not drawn. */
  sync: boolean;
}

/** All layers with their numbers; sorts by any column and shares the selection with the graphs. */
export function LayerTable({ lab }: { lab: Lab }) {
  const engine = lab.study.engine.value;
  if (!engine) return <p class="rt-quiet rt-pad">Layers appear here after the first build.</p>;
  return <Lines lab={lab} engine={engine} />;
}

function Lines({ lab, engine }: { lab: Lab; engine: EngineView }) {
  const { study } = lab;
  const links = study.links.value;
  const lines = useMemo(() => {
    const sync = syncSteps(engine.graph);
    const layers = engine.graph.boxes.filter(({ kind }) => kind === "layer");
    return layers.map((box, i): Line => {
      return { index: i + 1, box, nodes: links.pairsOfLayer(box.id).length, sync: sync.has(box.id) };
    });
  }, [engine, links]);
  const columns = useMemo(() => columnsOf(engine, lines), [engine, lines]);
  const selected = new Set(study.view.value.layers);
  return (
    <Rows
      label="Layers"
      rows={lines}
      columns={columns}
      id={({ box }) => box.id}
      selected={({ box }) => selected.has(box.id)}
      attributes={({ box, sync }) => ({ "data-layer": box.id, class: sync ? "rt-quiet" : "" })}
      onPick={({ box }, add) => study.select("layer", box.id, { add, reveal: true })}
      onPoint={(line) => study.point(line ? "layer" : undefined, line?.box.id)}
    />
  );
}

function columnsOf(engine: EngineView, lines: readonly Line[]): Column<Line>[] {
  const numbers = [
    ["time", "Time", "ms"],
    ["share", "Share", "%"],
    ["sqnr", "SQNR", "dB"],
  ].flatMap(([key, label, unit]): Column<Line>[] => {
    const overlay = overlayOf(engine, unit!);
    if (!overlay) return [];
    return [
      {
        key: key!,
        label,
        numeric: true,
        by: ({ box }) => overlay.layers[box.id]?.value ?? null,
        cell: ({ box }) => <Cell id={box.id} overlay={overlay} />,
      },
    ];
  });
  const columns: Column<Line>[] = [
    {
      key: "index",
      label: "#",
      numeric: true,
      by: ({ index }) => index,
      cell: ({ index }) => <td class="rt-num">{index}</td>,
    },
    {
      key: "layer",
      label: "Layer",
      by: ({ box }) => box.title,
      cell: ({ box }) => <Name text={box.title} />,
    },
    {
      key: "operators",
      label: "Operators",
      by: ({ box }) => opsOf(box, 8),
      cell: ({ box }) => <td>{opsOf(box, 8)}</td>,
    },
    {
      key: "nodes",
      label: "Nodes",
      numeric: true,
      by: ({ nodes }) => nodes,
      cell: ({ nodes }) => <td class="rt-num">{nodes || NONE}</td>,
    },
    {
      key: "precision",
      label: "Precision",
      by: ({ box }) => box.precision,
      cell: ({ box }) => <td>{box.precision || NONE}</td>,
    },
    ...numbers,
  ];
  if (lines.some(({ box }) => box.stream !== lines[0]!.box.stream))
    columns.push({
      key: "stream",
      label: "Stream",
      numeric: true,
      by: ({ box }) => box.stream,
      cell: ({ box }) => <td class="rt-num">{box.stream}</td>,
    });
  return columns;
}

/** A name that is cut at the left, because its end tells it from others. */
export const Name = ({ text, shown = text }: { text: string; shown?: string }) => (
  <td class="rt-name" title={shorten(text, 300)}>
    <bdi dir="ltr">{ending(shown, 160)}</bdi>
  </td>
);

function Cell({ id, overlay }: { id: string; overlay: Overlay }) {
  const reading = overlay.layers[id];
  if (!reading) return <td class="rt-num">{NONE}</td>;
  const { value, shared } = reading;
  const together =
    shared > 1 ? `one ${overlay.unit === "ms" ? "time" : "number"} for ${shared} layers together` : "";
  return (
    <td
      class={`rt-num ${overlay.origin === "estimated" ? "rt-estimate" : ""}`}
      title={[together, sourceOf(overlay)].filter(Boolean).join("\n")}
    >
      {GLYPH[overlay.origin]} {quantity(value, overlay.unit)}
      {shared > 1 && overlay.unit === "ms" && <span class="rt-quiet"> /{shared}</span>}
    </td>
  );
}

/** The first overlay in this unit that has numbers for layers. */
const overlayOf = (engine: EngineView, unit: string): Overlay | undefined =>
  engine.overlays.find((overlay) => overlay.unit === unit && Object.keys(overlay.layers).length > 0);
