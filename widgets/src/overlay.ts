import { CATEGORIES, cividis, diverging } from "./colour";
import type { Box, EngineView, Graph, Overlay, Reading, Side } from "./contract";
import { GLYPH, quantity, uncapitalised } from "./format";
import type { Links } from "./links";

/** What the boxes of one pane show beside their names: a colour and a text for each, and how to read them. */
export interface Look {
  colour: (string | null)[];
  text: (string | null)[];
  /** Estimates are set in italics. */
  italic: boolean;
  /** Families colour the title bars of nodes when no overlay does. */
  families: boolean;
  legend: Legend | null;
}

export type Legend =
  | { kind: "scale"; title: string; low: string; high: string; origin: string; stops: string[] }
  | { kind: "classes"; title: string; classes: { label: string; colour: string }[] };

/** Maps values of one overlay to colours: cividis, or a diverging scale around zero when signs differ. */
export class Scale {
  readonly low: number;
  readonly high: number;
  readonly signed: boolean;

  constructor(values: readonly number[]) {
    const finite = values.filter(Number.isFinite);
    const low = finite.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
    const high = finite.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
    this.signed = low < 0;
    const reach = Math.max(Math.abs(low), Math.abs(high));
    this.low = this.signed ? -reach : low;
    this.high = this.signed ? reach : high;
  }

  colour(value: number): string {
    const at = this.high > this.low ? (value - this.low) / (this.high - this.low) : 0.5;
    return this.signed ? diverging(at) : cividis(at);
  }

  get stops(): string[] {
    const paint = this.signed ? diverging : cividis;
    return Array.from({ length: 9 }, (_, k) => paint(k / 8));
  }
}

/** One way to colour a pane, as its select offers it. */
export interface ColourMode {
  id: string;
  label: string;
}

export const readings = (overlay: Overlay, side: Side): Record<string, Reading> =>
  side === "node" ? overlay.nodes : overlay.layers;

/** The ways to colour one side, the default first for nodes and last for layers. */
export function colourModes(side: Side, engine: EngineView | null): ColourMode[] {
  const overlays = (engine?.overlays ?? [])
    .filter((overlay) => Object.keys(readings(overlay, side)).length > 0)
    .map(({ id, title }) => ({ id, label: uncapitalised(title) }));
  const plain =
    side === "node"
      ? [{ id: "operator", label: "operator" }]
      : [
          { id: "precision", label: "precision" },
          { id: "none", label: "nothing" },
        ];
  const layer = engine ? [{ id: "layer", label: "layer" }] : [];
  return side === "node" ? [...plain, ...layer, ...overlays] : [...overlays, ...layer, ...plain];
}

/** The mode in force: the wanted one where it exists, the side's first otherwise. */
export function activeMode(side: Side, wanted: string, engine: EngineView | null): string {
  const modes = colourModes(side, engine);
  return modes.some(({ id }) => id === wanted) ? wanted : (modes[0]?.id ?? "none");
}

export function lookOf(
  side: Side,
  graph: Graph,
  mode: string,
  engine: EngineView | null,
  links: Links,
): Look {
  const overlay = engine?.overlays.find(({ id }) => id === mode);
  if (overlay) return byOverlay(side, graph, overlay);
  if (mode === "layer" && engine) return byLayer(side, graph, engine, links);
  if (mode === "precision") return byClass(graph, "precision", (box) => box.precision || null);
  return {
    colour: graph.boxes.map(() => null),
    text: graph.boxes.map(() => null),
    italic: false,
    families: true,
    legend: null,
  };
}

function byOverlay(side: Side, graph: Graph, overlay: Overlay): Look {
  const values = readings(overlay, side);
  const shown = graph.boxes.map((box) => values[box.id] ?? null);
  const scale = new Scale(shown.flatMap((reading) => (reading ? [reading.value] : [])));
  const glyph = GLYPH[overlay.origin];
  const any = shown.some(Boolean);
  return {
    colour: shown.map((reading) => (reading ? scale.colour(reading.value) : null)),
    text: shown.map((reading) => (reading ? `${glyph} ${quantity(reading.value, overlay.unit)}` : null)),
    italic: overlay.origin === "estimated",
    families: false,
    legend: any
      ? {
          kind: "scale",
          title: uncapitalised(overlay.title),
          low: quantity(scale.low, overlay.unit),
          high: quantity(scale.high, overlay.unit),
          origin: `${glyph} ${overlay.origin}`,
          stops: scale.stops,
        }
      : null,
  };
}

function byLayer(side: Side, graph: Graph, engine: EngineView, links: Links): Look {
  const order = engine.graph.boxes.filter(({ kind }) => kind === "layer");
  const hue = new Map(order.map(({ id }, i) => [id, CATEGORIES[i % CATEGORIES.length]!]));
  const layer = (box: Box): string | undefined => (side === "layer" ? box.id : links.layersOf([box.id])[0]);
  return {
    colour: graph.boxes.map((box) => hue.get(layer(box) ?? "") ?? null),
    text: graph.boxes.map(() => null),
    italic: false,
    families: false,
    legend: null,
  };
}

function byClass(graph: Graph, title: string, of: (box: Box) => string | null): Look {
  const names = [...new Set(graph.boxes.flatMap((box) => of(box) ?? []))].sort();
  const hue = new Map(names.map((name, i) => [name, CATEGORIES[i % CATEGORIES.length]!]));
  return {
    colour: graph.boxes.map((box) => hue.get(of(box) ?? "") ?? null),
    text: graph.boxes.map(() => null),
    italic: false,
    families: true,
    legend: names.length
      ? { kind: "classes", title, classes: names.map((label) => ({ label, colour: hue.get(label)! })) }
      : null,
  };
}
