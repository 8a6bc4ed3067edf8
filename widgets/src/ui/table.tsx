import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { EngineView, Overlay } from "../contract";
import { syncSteps } from "../drawn";
import { ending, GLYPH, NONE, opsOf, quantity, shorten } from "../format";
import { onKeys } from "../keys";
import type { Lab } from "../lab";
import type { Links } from "../links";
import { sourceOf } from "../overlay";

interface Line {
  id: string;
  index: number;
  layer: string;
  operators: string;
  nodes: number;
  precision: string;
  time: number | null;
  share: number | null;
  sqnr: number | null;
  stream: number;
  /** A step that only keeps the engine's books, and is not drawn. */
  sync: boolean;
}

type Key = Exclude<keyof Line, "id" | "sync">;

const COLUMNS: { key: Key; label: string; numeric: boolean }[] = [
  { key: "index", label: "#", numeric: true },
  { key: "layer", label: "Layer", numeric: false },
  { key: "operators", label: "Operators", numeric: false },
  { key: "nodes", label: "Nodes", numeric: true },
  { key: "precision", label: "Precision", numeric: false },
  { key: "time", label: "Time", numeric: true },
  { key: "share", label: "Share", numeric: true },
  { key: "sqnr", label: "SQNR", numeric: true },
  { key: "stream", label: "Stream", numeric: true },
];
const ROW = 25;
/** Rows drawn beyond the visible ones. */
const SPARE = 8;

/** All layers with their numbers; sorts by any column and shares the selection with the graphs. */
export function LayerTable({ lab }: { lab: Lab }) {
  const engine = lab.study.engine.value;
  if (!engine) return <p class="rt-quiet rt-pad">Layers appear here after the first build.</p>;
  return <Lines lab={lab} engine={engine} />;
}

function Lines({ lab, engine }: { lab: Lab; engine: EngineView }) {
  const links = lab.study.links.value;
  const [sort, setSort] = useState<{ key: Key; down: boolean }>({ key: "index", down: false });
  const [top, setTop] = useState(0);
  const [tall, setTall] = useState(200);
  const box = useRef<HTMLDivElement>(null);
  const time = overlayOf(engine, "ms");
  const part = overlayOf(engine, "%");
  const noise = overlayOf(engine, "dB");
  const lines = useMemo(() => linesOf(engine, links, time, part, noise), [engine, links]);
  const absent = new Set<Key>([
    ...(time ? [] : ["time" as const]),
    ...(part ? [] : ["share" as const]),
    ...(noise ? [] : ["sqnr" as const]),
    ...(lines.some(({ stream }) => stream !== lines[0]!.stream) ? [] : ["stream" as const]),
  ]);
  const sorted = useMemo(
    () => lines.toSorted((a, b) => compare(a[sort.key], b[sort.key], sort.down)),
    [lines, sort],
  );
  const selected = new Set(lab.study.view.value.layers);
  const first = sorted.findIndex(({ id }) => selected.has(id));

  useEffect(() => {
    const el = box.current!;
    const observer = new ResizeObserver(() => setTall(el.clientHeight));
    observer.observe(el);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const el = box.current;
    if (!el || first < 0) return;
    const at = first * ROW;
    if (at < el.scrollTop || at > el.scrollTop + el.clientHeight - 2 * ROW)
      el.scrollTop = Math.max(0, at - ROW);
  }, [first, sort]);
  useLayoutEffect(() => {
    onKeys(box.current, (event) => {
      const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (!by) return false;
      const next = sorted[Math.max(0, Math.min(sorted.length - 1, first + by))];
      if (next) lab.jump("layer", next.id);
      return true;
    });
  });

  const from = Math.max(0, Math.floor(top / ROW) - SPARE);
  const to = Math.min(sorted.length, Math.ceil((top + tall) / ROW) + SPARE);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: arrow keys move the selection in the table
    <div class="rt-table" ref={box} tabIndex={0} onScroll={(event) => setTop(event.currentTarget.scrollTop)}>
      <table aria-rowcount={sorted.length}>
        <thead>
          <tr>
            {COLUMNS.filter(({ key }) => !absent.has(key)).map(({ key, label, numeric }) => (
              <th
                key={key}
                class={numeric ? "rt-num" : ""}
                aria-sort={sort.key !== key ? "none" : sort.down ? "descending" : "ascending"}
              >
                <button
                  type="button"
                  onClick={() =>
                    setSort({ key, down: sort.key === key ? !sort.down : numeric && key !== "index" })
                  }
                >
                  {label}
                  {sort.key === key ? (sort.down ? " ↓" : " ↑") : ""}
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          <tr style={{ height: `${from * ROW}px` }} />
          {sorted.slice(from, to).map((line, i) => (
            <tr
              key={line.id}
              data-layer={line.id}
              class={line.sync ? "rt-quiet" : ""}
              aria-rowindex={from + i + 1}
              aria-selected={selected.has(line.id)}
              onClick={(event) => lab.study.select("layer", line.id, { add: event.shiftKey, reveal: true })}
              onPointerEnter={() => lab.study.point("layer", line.id)}
              onPointerLeave={() => lab.study.point()}
            >
              <td class="rt-num">{line.index}</td>
              <td title={shorten(line.layer, 300)}>
                <bdi dir="ltr">{ending(line.layer, 160)}</bdi>
              </td>
              <td>{line.operators}</td>
              <td class="rt-num">{line.nodes || NONE}</td>
              <td>{line.precision || NONE}</td>
              {time && <Cell id={line.id} overlay={time} />}
              {part && <Cell id={line.id} overlay={part} />}
              {noise && <Cell id={line.id} overlay={noise} />}
              {!absent.has("stream") && <td class="rt-num">{line.stream}</td>}
            </tr>
          ))}
          <tr style={{ height: `${(sorted.length - to) * ROW}px` }} />
        </tbody>
      </table>
    </div>
  );
}

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

function linesOf(engine: EngineView, links: Links, time?: Overlay, part?: Overlay, noise?: Overlay): Line[] {
  const sync = syncSteps(engine.graph);
  const layers = engine.graph.boxes.filter(({ kind }) => kind === "layer");
  return layers.map((box, i) => {
    return {
      id: box.id,
      index: i + 1,
      layer: box.title,
      operators: opsOf(box, 8),
      nodes: links.pairsOfLayer(box.id).length,
      precision: box.precision,
      time: time?.layers[box.id]?.value ?? null,
      share: part?.layers[box.id]?.value ?? null,
      sqnr: noise?.layers[box.id]?.value ?? null,
      stream: box.stream,
      sync: sync.has(box.id),
    };
  });
}

/** Layers without a number stand last in both directions. */
function compare(a: string | number | null, b: string | number | null, down: boolean): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  const sign = down ? -1 : 1;
  return typeof a === "number" && typeof b === "number"
    ? sign * (a - b)
    : sign * String(a).localeCompare(String(b), undefined, { numeric: true });
}
