import type { Box, EngineView, Overlay, OverlayValue, Side } from "../core/contract";
import { colourOf, GLYPH, plural, quantity, REASON_GLYPH, uncapitalised } from "../core/format";
import type { Mapping } from "../core/mapping";
import type { EngineSide, Study } from "../core/state";
import { CATEGORIES, cividis, FAMILY } from "./colour";
import { LAYER } from "./groups";
import type { VisibleGraph } from "./visible_graph";

/** What the boxes of one pane show beside their names: a colour and a text for each, and how to read them. */
export interface Look {
  colour: (string | null)[];
  text: (string | null)[];
  badge: (string | null)[];
  italic: boolean;
  /** Families colour the title bars of nodes when no overlay does. */
  families: boolean;
  legend: Legend | null;
}

export type Legend =
  | { kind: "scale"; title: string; low: string; high: string; origin: string; stops: string[] }
  | { kind: "classes"; title: string; classes: { label: string; colour: string; badge: string }[] };

/** Maps values of one overlay to colours. */
export class Scale {
  readonly low: number;
  readonly high: number;

  constructor(values: readonly number[]) {
    const finite = values.filter(Number.isFinite);
    this.low = finite.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
    this.high = finite.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  }

  colour(value: number): string {
    return cividis(this.high > this.low ? (value - this.low) / (this.high - this.low) : 0.5);
  }

  get stops(): string[] {
    return Array.from({ length: 9 }, (_, k) => cividis(k / 8));
  }
}

export interface ColourMode {
  id: string;
  label: string;
}

export interface Pictured {
  side: Side;
  visible: VisibleGraph;
  engine: EngineView | null;
  links: Mapping;
}

export const readings = (overlay: Overlay, side: Side): Record<string, OverlayValue> =>
  side === "node" ? overlay.nodes : overlay.layers;

/** The engine that goes with a side: the source graph stands beside the engine of the second pane. */
export const engineSide = (side: Side): EngineSide => (side === "other" ? side : "layer");

export function pictured(study: Study, side: Side): Pictured | null {
  const visible = study.visible(side);
  const from = engineSide(side);
  return visible && { side, visible, engine: study.engineOf(from), links: study.mappingOf(from) };
}

/** The engines whose numbers a side can show: those of both engine panes are coloured the same way. */
export const enginesOf = (study: Study, side: Side): EngineView[] =>
  [study.engine.value, side === "node" ? null : study.other.value].filter((engine) => engine !== null);

/** The ways to colour one side, the default first. */
export function colourModes(side: Side, engines: readonly EngineView[]): ColourMode[] {
  const overlays = new Map<string, string>();
  for (const overlay of engines.flatMap((engine) => engine.overlays))
    if (Object.keys(readings(overlay, side)).length) overlays.set(overlay.id, uncapitalised(overlay.title));
  const boxes = engines.flatMap(({ graph }) => graph.boxes);
  const when = (possible: boolean, ...ids: string[]): ColourMode[] =>
    possible ? ids.map((id) => ({ id, label: id })) : [];
  const operator = when(true, "operator");
  const numbers = [...overlays].map(([id, label]) => ({ id, label }));
  const classes = [
    ...when(engines.length > 0, "layer", "precision"),
    ...when(
      boxes.some(({ stream }) => stream !== boxes[0]!.stream),
      "stream",
    ),
    ...when(side === "node" && engines.some(({ unmapped }) => unmapped.length), "reason"),
  ];
  const nothing = [{ id: "none", label: "nothing" }];
  return side === "node"
    ? [...operator, ...numbers, ...classes, ...nothing]
    : [...numbers, ...classes, ...operator, ...nothing];
}

/**
 * The mode in force: the wanted one where it exists, the side's first otherwise. While numbers are still `coming`, no
 * other colours stand in for them.
 */
export function activeMode(modes: readonly ColourMode[], requested: string, coming = false): string {
  if (modes.some(({ id }) => id === requested)) return requested;
  return (coming ? null : modes[0]?.id) ?? "none";
}

export const colourField = (side: Side): "colour" | "colour_nodes" =>
  side === "node" ? "colour_nodes" : "colour";

/** The look of a pane. Both engine panes share one scale and one set of colours. */
export function look(study: Study, side: Side, mode: string): Look | null {
  const here = pictured(study, side);
  if (!here) return null;
  const sides: readonly Side[] = side === "node" ? [side] : ["layer", "other"];
  const all = sides.flatMap((one) => (one === side ? here : (pictured(study, one) ?? [])));
  return lookOf(here, mode, all);
}

/** `all` are the panes that share one scale and one set of colours, the leading one first. */
export function lookOf(here: Pictured, mode: string, all: readonly Pictured[] = [here]): Look {
  const overlay = all.flatMap(({ engine }) => engine?.overlays ?? []).find(({ id }) => id === mode);
  if (overlay) return byOverlay(here, overlay, all);
  if (mode === "layer") return byLayer(here, all[0]!);
  if (mode === "precision") return byClass(mode, here, all, precisionOf, (name) => name);
  if (mode === "stream") return byClass(mode, here, all, streamOf, (name) => `S${name}`);
  if (mode === "reason") {
    const reason = ({ links }: Pictured, id: string): string => links.unmapped(id)?.reason ?? "";
    return byClass(mode, here, all, reason, (name) => REASON_GLYPH[name as keyof typeof REASON_GLYPH]);
  }
  const operator = mode === "operator";
  const { boxes } = here.visible.graph;
  const cards = operator && here.side !== "node";
  return {
    ...plain(here),
    colour: boxes.map((box) => (cards && box.chips.length ? FAMILY[colourOf(box)] : null)),
    families: operator,
  };
}

const plain = ({ visible: { graph } }: Pictured): Look => ({
  colour: graph.boxes.map(() => null),
  text: graph.boxes.map(() => null),
  badge: graph.boxes.map(() => null),
  italic: false,
  families: false,
  legend: null,
});

/** Units whose numbers add up over boxes; of others a group shows the worst. */
const ADDITIVE = new Set(["ms", "B"]);

/** One number for several boxes, and in words how it came about. */
export interface Combined extends OverlayValue {
  how: string;
}

/**
 * The number of a box, or of all members of a group: their sum, each shared number once, or the worst; of so many
 * `copies` of a block, what each of them has too. The frame of an engine layer has that layer's own number, which also
 * counts what no node of the source stands for.
 */
export function combined(
  overlay: Overlay,
  side: Side,
  ids: readonly string[],
  box?: Box | null,
  copies = 1,
): Combined | null {
  const whole = box?.id.startsWith(LAYER) && overlay.layers[box.id.slice(LAYER.length)];
  if (whole) {
    const how = whole.shared > 1 ? `one number for ${whole.shared} layers together` : "of the layer";
    return { ...whole, shared: 1, how };
  }
  const values = readings(overlay, side);
  const own = ids.flatMap((id): [string, OverlayValue][] => (values[id] ? [[id, values[id]]] : []));
  if (own.length < 2) return own.length ? { ...own[0]![1], how: "" } : null;
  const additive = ADDITIVE.has(overlay.unit);
  const worst = overlay.best === "low" ? Math.max : Math.min;
  const one = (some: readonly [string, OverlayValue][]): number =>
    once(some).reduce(
      (sum, [, { value }], k) => (k === 0 ? value : additive ? sum + value : worst(sum, value)),
      0,
    );
  const shared = once(own).length < own.length ? ", shared ones once" : "";
  const size = ids.length / copies;
  const each = Array.from({ length: copies }, (_, k) =>
    ids
      .slice(k * size, (k + 1) * size)
      .flatMap((id): [string, OverlayValue][] => (values[id] ? [[id, values[id]]] : [])),
  ).flatMap((some) => (some.length ? one(some) : []));
  const range = [Math.min, Math.max].map((end) =>
    quantity(
      each.reduce((a, b) => end(a, b)),
      overlay.unit,
    ),
  );
  const blocks = `${copies} blocks, each ${[...new Set(range)].join(" to ")}`;
  const members = plural(own.length, side === "node" ? "node" : "layer");
  return {
    value: one(own),
    spread: null,
    // Copies of one box have their numbers together with the same other boxes of their blocks.
    shared: size === 1 ? own[0]![1].shared : 1,
    note: "",
    how: `${additive ? "sum" : "worst"} of ${copies > 1 ? blocks : members}${shared}`,
  };
}

export const sourceOf = ({ origin, source }: Overlay): string =>
  source.startsWith(origin) ? source : `${origin}: ${source}`;

/** Equal for boxes that have one number together. */
const keyOf = (id: string, { shared, value, spread, note }: OverlayValue): string =>
  shared > 1 ? JSON.stringify([shared, value, spread, note]) : id;

/** Boxes that have one number together are one entry, the first of them. */
export function once(entries: readonly [string, OverlayValue][]): [string, OverlayValue][] {
  const groups = new Map<string, [string, OverlayValue]>();
  for (const entry of entries) {
    const key = keyOf(...entry);
    if (!groups.has(key)) groups.set(key, entry);
  }
  return [...groups.values()];
}

/** The worst entries, the worst first; one number of several boxes is one entry, and so are the copies of a box. */
export function worst(
  overlay: Overlay,
  side: Side,
  visible: VisibleGraph,
  count: number,
): [string, Combined][] {
  const sign = overlay.best === "low" ? -1 : 1;
  return once(Object.entries(readings(overlay, side)))
    .flatMap(([id]): [string, Combined][] => {
      const copies = visible.copies(id);
      const reading = copies && combined(overlay, side, visible.members(id), null, copies);
      return reading ? [[id, reading]] : [];
    })
    .sort(([, a], [, b]) => sign * (a.value - b.value))
    .slice(0, count);
}

function byOverlay(here: Pictured, { id, unit, title }: Overlay, all: readonly Pictured[]): Look {
  const shownOn = ({
    side,
    visible,
    engine,
  }: Pictured): { overlay?: Overlay; shown: (Combined | null)[] } => {
    const overlay = engine?.overlays.find((one) => one.id === id);
    const values = visible.graph.boxes.map((box, i) =>
      overlay && !visible.frames.has(i)
        ? combined(overlay, side, visible.members(box.id), box, visible.copies(box.id))
        : null,
    );
    return overlay ? { overlay, shown: values } : { shown: values };
  };
  const { overlay, shown } = shownOn(here);
  // What is hidden counts too, so that colours stay while boxes are filtered.
  const scale = new Scale(
    all.flatMap((one) => {
      const { overlay: otherOverlay, shown: values } = one === here ? { overlay, shown } : shownOn(one);
      return [...(otherOverlay ? Object.values(readings(otherOverlay, one.side)) : []), ...values].flatMap(
        (reading) => reading?.value ?? [],
      );
    }),
  );
  const glyph = overlay ? GLYPH[overlay.origin] : "";
  return {
    ...plain(here),
    colour: shown.map((reading) => reading && scale.colour(reading.value)),
    text: shown.map((reading) => reading && `${glyph} ${quantity(reading.value, unit)}`),
    italic: overlay?.origin === "estimated",
    legend: overlay
      ? {
          kind: "scale",
          title: uncapitalised(title),
          low: quantity(scale.low, unit),
          high: quantity(scale.high, unit),
          origin: `${glyph} ${overlay.origin}`,
          stops: scale.stops,
        }
      : null,
  };
}

/** The one thing that is true of all members of a box, or null. */
function agreed<T>(here: Pictured, box: Box, of: (id: string) => T): T | null {
  const [first, ...rest] = here.visible.members(box.id).map(of);
  return first !== undefined && rest.every((one) => one === first) ? first : null;
}

/** Each layer has a hue; another engine's layer takes that of the leading engine's layer with the same nodes. */
function byLayer(here: Pictured, lead: Pictured): Look {
  const numbers = (from: Pictured): Map<string, number> =>
    new Map(
      (from.engine?.graph.boxes ?? []).filter(({ kind }) => kind === "layer").map(({ id }, i) => [id, i]),
    );
  const own = numbers(here);
  const leading = here === lead ? own : numbers(lead);
  const layer = (id: string): string => (here.side === "node" ? (here.links.layersOf([id])[0] ?? "") : id);
  const alike = (id: string): string =>
    here === lead ? id : (lead.links.layersOf(here.links.nodesOf([id]))[0] ?? "");
  const ids = here.visible.graph.boxes.map((box) => agreed(here, box, layer) ?? "");
  return {
    ...plain(here),
    colour: ids.map((id) => {
      const at = leading.get(alike(id));
      return at === undefined ? null : CATEGORIES[at % CATEGORIES.length]!;
    }),
    badge: ids.map((id) => (own.has(id) ? `L${own.get(id)! + 1}` : null)),
  };
}

type ClassOf = (here: Pictured, id: string) => string;

const layerBox = ({ side, engine, links }: Pictured, id: string): Box | undefined => {
  const layer = side === "node" ? links.layersOf([id])[0] : id;
  return layer === undefined ? undefined : boxesOf(engine).get(layer);
};
/** A node has its own precision where the kernel tells it; else it has that of its layer. */
const precisionOf: ClassOf = (here, id) => {
  const own = here.side === "node" ? here.engine?.precisions : undefined;
  return own && Object.hasOwn(own, id) ? own[id]! : (layerBox(here, id)?.precision ?? "");
};
const streamOf: ClassOf = (here, id) => String(layerBox(here, id)?.stream ?? "");

const indices = new WeakMap<EngineView, Map<string, Box>>();

function boxesOf(engine: EngineView | null): Map<string, Box> {
  if (!engine) return new Map();
  const index = indices.get(engine) ?? new Map(engine.graph.boxes.map((box) => [box.id, box]));
  indices.set(engine, index);
  return index;
}

function byClass(
  title: string,
  here: Pictured,
  all: readonly Pictured[],
  of: ClassOf,
  badge: (name: string) => string,
): Look {
  const classes = (from: Pictured): (string | null)[] =>
    from.visible.graph.boxes.map((box) => agreed(from, box, (id) => of(from, id)) || null);
  const own = classes(here);
  const names = [...new Set(all.flatMap((one) => (one === here ? own : classes(one))))]
    .filter((name) => name !== null)
    .sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  const hue = new Map(names.map((name, i) => [name, CATEGORIES[i % CATEGORIES.length]!]));
  return {
    ...plain(here),
    colour: own.map((name) => (name && hue.get(name)) ?? null),
    badge: own.map((name) => name && badge(name)),
    legend: names.length
      ? {
          kind: "classes",
          title,
          classes: names.map((label) => ({ label, colour: hue.get(label)!, badge: badge(label) })),
        }
      : null,
  };
}
