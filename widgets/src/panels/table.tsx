import { useMemo } from "preact/hooks";
import type { Box, EngineView, Overlay, Port } from "../core/contract";
import { GLYPH, NONE, opsOf, plural, quantity, shorten } from "../core/format";
import type { ExplorerState } from "../explorer/explorer_state";
import { combined, sourceOf } from "../graph/overlay";
import { CONTROL } from "../graph/visible_graph";
import { cellsOf, Export, Name } from "../ui/cells";
import { type Column, column, Rows } from "../ui/rows";

interface Line {
  index: number;
  box: Box;
  nodes: number;
  sync: boolean;
  /** The layers of a repeated block that it stands for, itself alone elsewhere. */
  layers: readonly string[];
}

export default function LayerTable({ explorer }: { explorer: ExplorerState }) {
  const engine = explorer.study.engine.value;
  if (!engine) {
    const when = explorer.study.preparing.value ? "are loading" : "appear here after the first build";
    return <p class="rt-quiet rt-pad">The layers {when}.</p>;
  }
  return <Lines explorer={explorer} engine={engine} />;
}

function Lines({ explorer, engine }: { explorer: ExplorerState; engine: EngineView }) {
  const { study } = explorer;
  const links = study.mapping.value;
  const visible = study.visible("layer");
  const lines = useMemo(() => {
    const layers = engine.graph.boxes.filter(({ kind }) => kind === "layer");
    return layers.flatMap((box, i): Line[] => {
      if (visible?.copies(box.id) === 0) return [];
      const same = visible?.members(box.id) ?? [box.id];
      return [
        { index: i + 1, box, nodes: links.nodesRun(box.id).length, sync: CONTROL.has(box.op), layers: same },
      ];
    });
  }, [engine, links, visible]);
  const columns = useMemo(() => columnsOf(engine, lines), [engine, lines]);
  const selected = new Set(study.view.value.layers);
  return (
    <>
      <div class="rt-caption">
        <span>{countedIn(lines)} in order of execution</span>
        <Export name={`${engine.variant} layers`} cells={() => cellsOf(lines, columns)} />
      </div>
      <Rows
        label="Layers"
        rows={lines}
        columns={columns}
        id={({ box }) => box.id}
        selected={({ layers }) => layers.some((id) => selected.has(id))}
        attributes={({ box, sync }) => ({ "data-layer": box.id, class: sync ? "rt-quiet" : "" })}
        onPick={({ box }, add) => study.select("layer", box.id, { add, reveal: true })}
        onPoint={(line) => study.point(line ? "layer" : undefined, line?.box.id)}
      />
    </>
  );
}

/** How many lines there are of each kind, as the chip and the pane of the engine count them. */
function countedIn(lines: readonly Line[]): string {
  const sync = lines.filter((line) => line.sync).length;
  const all = lines.reduce((sum, { layers }) => sum + layers.length, 0);
  const words = [
    plural(all - sync, "layer"),
    sync && `${sync} sync or jump ${sync === 1 ? "entry" : "entries"}`,
  ]
    .filter(Boolean)
    .join(" and ");
  return all > lines.length ? `${words}, equal ones of repeated blocks in one row,` : words;
}

const spelled = (box: Box): string => (box.slim ? detail(box, "layer") : "") || box.title;

const detail = ({ details }: Box, name: string): string =>
  details.find(({ key }) => key === name)?.value ?? "";

/** Memory layouts of what a layer reads and writes; constants are laid out at build time. */
export function formatsOf({ inputs, outputs }: Box): string {
  const formats = (ports: readonly Port[]): string =>
    [...new Set(ports.flatMap(({ constant, format }) => (constant || !format ? [] : format)))].join(", ");
  const [before, after] = [formats(inputs), formats(outputs)];
  return before && after && before !== after ? `${before} → ${after}` : after || before;
}

/** A column of words, which is left out where no layer has any. */
function words(lines: readonly Line[], label: string, of: (box: Box) => string): Column<Line>[] {
  if (!lines.some(({ box }) => of(box))) return [];
  return [
    column(label, ({ box }) => of(box) || null, {
      text: ({ box }) => shorten(of(box), 80),
      hover: ({ box }) => shorten(of(box), 300),
    }),
  ];
}

function columnsOf(engine: EngineView, lines: readonly Line[]): Column<Line>[] {
  // Of times the first is that of the engine's own processor.
  const overlays = ["ms", "dB"].flatMap((unit) =>
    engine.overlays.filter((overlay) => overlay.unit === unit && Object.keys(overlay.layers).length),
  );
  const severalTimes = overlays.filter(({ unit }) => unit === "ms").length > 1;
  const numbers = overlays.map((overlay) =>
    column<Line>(
      overlay.id === "time" && !severalTimes ? "Time" : overlay.title,
      ({ layers }) => combined(overlay, "layer", layers, null, layers.length)?.value ?? null,
      {
        key: overlay.id,
        title: overlay.title,
        numeric: true,
        unit: overlay.unit,
        cell: ({ layers }) => <Cell layers={layers} overlay={overlay} />,
      },
    ),
  );
  const mapped = lines.some(({ nodes }) => nodes);
  const repeated = lines.some(({ layers }) => layers.length > 1);
  const streams = lines.some(({ box }) => box.stream !== lines[0]!.box.stream);
  return [
    column<Line>("#", ({ index }) => index, { numeric: true }),
    column<Line>("Layer", ({ box }) => opsOf(box, 40), {
      text: ({ box }) => opsOf(box, 8),
      hover: ({ box }) => opsOf(box, 40),
    }),
    ...(repeated ? [column<Line>("Blocks", ({ layers }) => layers.length, { numeric: true })] : []),
    ...words(lines, "Kind", ({ op }) => op),
    column<Line>("Compiler's name", ({ box }) => spelled(box), {
      cell: ({ box }) => <Name text={spelled(box)} />,
    }),
    ...(mapped ? [column<Line>("Nodes", ({ nodes }) => nodes, { numeric: true })] : []),
    ...numbers,
    ...words(lines, "In", ({ reads }) => reads),
    ...words(lines, "Out", ({ writes }) => writes),
    ...(streams
      ? [
          column<Line>("Stream", ({ box }) => box.stream, {
            numeric: true,
            text: ({ box }) => `${box.stream}`,
          }),
        ]
      : []),
    ...words(lines, "Sparse", (box) => detail(box, "sparse")),
    ...words(lines, "Format", formatsOf),
    ...words(lines, "Tactic", (box) => detail(box, "tactic")),
  ];
}

function Cell({ layers, overlay }: { layers: readonly string[]; overlay: Overlay }) {
  const reading = combined(overlay, "layer", layers, null, layers.length);
  if (!reading) return <td class="rt-num">{NONE}</td>;
  const { value, shared, how } = reading;
  const together =
    shared > 1 ? `one ${overlay.unit === "ms" ? "time" : "number"} for ${shared} layers together` : "";
  return (
    <td
      class={`rt-num ${overlay.origin === "estimated" ? "rt-estimate" : ""}`}
      title={[together, how, sourceOf(overlay)].filter(Boolean).join("\n")}
    >
      {GLYPH[overlay.origin]} {quantity(value, overlay.unit)}
      {shared > 1 && overlay.unit === "ms" && <span class="rt-quiet"> /{shared}</span>}
    </td>
  );
}
