import type { AnyModel } from "@anywidget/types";
import { batch, computed, type ReadonlySignal, type Signal, signal, untracked } from "@preact/signals";
import { arrange, type VisibleGraph, withoutSync } from "../graph/visible_graph";
import { fusedAfter, lastJoin } from "./build_log";
import { follower, type GraphTraits, publish } from "./channel";
import { isGone, type KernelState, watchKernel } from "./connection";
import type {
  Box,
  BuildStory,
  EngineView,
  Graph,
  Grouping,
  Later,
  Link,
  Pair,
  Side,
  ViewState,
} from "./contract";
import { effectsUntil } from "./lifetime";
import { Mapping } from "./mapping";
import { type Bytes, decode } from "./payload";

export interface Pointed {
  side: Side;
  id: string;
}

export const START: ViewState = {
  selection: [],
  layers: [],
  others: [],
  anchor: "node",
  variant: "",
  compared: "",
  baseline: "",
  colour: "",
  colour_nodes: "",
  tab: "",
  panes: ["node", "layer"],
  stacked: false,
  across: false,
  follow: false,
  grouping: "auto",
  grouping_nodes: "auto",
  folds: [],
  step: 0,
  settings: {},
};

export const SIDES: readonly Side[] = ["node", "layer", "other"];

export function sidesInView(panes: readonly Side[], modelless: boolean): readonly Side[] {
  const possible = (list: readonly Side[]): Side[] =>
    list.filter((side) => SIDES.includes(side) && !(modelless && side === "node"));
  const valid = possible(panes);
  return valid.length ? valid : possible(START.panes);
}

/** Highlighted boxes, while the rest of their pane is pale: hits of a filter, a trace, a path. */
export interface Focus {
  side: Side;
  ids: ReadonlySet<string>;
  words: string;
  alone: boolean;
}

export type EngineSide = Exclude<Side, "node">;

const computedBySide = <T>(of: (side: Side) => T): Record<Side, ReadonlySignal<T>> => ({
  node: computed(() => of("node")),
  layer: computed(() => of("layer")),
  other: computed(() => of("other")),
});

/**
 * What all panes read: the source graph, one or two engines, how they relate, and the view. Selection is worked out
 * here from the pairs and then published; pointer and animation never leave the browser.
 */
export class Study {
  readonly source: Signal<Graph | null> = signal(null);
  readonly engine: Signal<EngineView | null> = signal(null);
  readonly other: Signal<EngineView | null> = signal(null);
  readonly story: Signal<BuildStory | null> = signal(null);
  readonly view: Signal<ViewState>;
  readonly titles: Signal<Readonly<Record<string, string>>> = signal({});
  readonly hover: Signal<Pointed | null> = signal(null);
  readonly focus: Signal<Focus | null> = signal(null);
  /** The selection changed for a reason other than a click in the pane: these sides should come into view. */
  readonly revealRequest: Signal<{ serial: number; sides: readonly Side[] }> = signal({
    serial: 0,
    sides: [],
  });
  readonly pending: Signal<number> = signal(0);
  readonly problem: Signal<unknown> = signal(null);
  readonly kernelState: Signal<KernelState> = signal("free");
  /** There is an engine without its ONNX model. */
  readonly modelless: ReadonlySignal<boolean> = computed(() => this.source.value?.boxes.length === 0);
  /** The kernel has named the engine of the second pane, and is still working out what there is to see of it. */
  readonly preparing: ReadonlySignal<boolean> = computed(
    () => this.view.value.variant !== "" && this.engine.value === null && !isGone(this.kernelState.value),
  );
  /** Everything that was announced is drawn; what follows a large graph may still be on its way. */
  readonly graphsDrawn: ReadonlySignal<boolean> = computed(
    () => this.pending.value === 0 && this.source.value !== null && !this.preparing.value,
  );
  readonly ready: ReadonlySignal<boolean> = computed(
    () => this.graphsDrawn.value && !SIDES.some((side) => this.isLoading(side)),
  );
  readonly mapping: ReadonlySignal<Mapping> = computed(() => cachedMapping(this.engine.value));
  readonly boxes: Record<Side, ReadonlySignal<Map<string, Box>>> = computedBySide((side) =>
    byId(this.#graph(side)),
  );
  readonly #otherMapping = computed(() => cachedMapping(this.other.value));
  readonly #completions: Signal<number> = signal(0);
  // As text, so that a selection, which makes a new view too, does not fold anew.
  readonly #foldText = computed(() => JSON.stringify(this.view.value.folds));
  readonly #folds = computed(() => new Set<string>(JSON.parse(this.#foldText.value)));
  readonly #grouping = computedBySide((side): Grouping => {
    const { grouping, grouping_nodes } = this.view.value;
    const chosen = side === "node" ? grouping_nodes : grouping;
    return chosen !== "auto" ? chosen : this.#whole[side].value?.folded ? "repeats" : "none";
  });
  readonly #lastJoin = computed(() => lastJoin(this.story.value, this.view.value.step));
  readonly #fused = computed(() => fusedAfter(this.story.value, this.#lastJoin.value));
  // What follows a picture makes a new engine, but leaves its graph.
  readonly #graphs = {
    layer: computed(() => this.engine.value?.graph ?? null),
    other: computed(() => this.other.value?.graph ?? null),
  };
  readonly #whole: Record<Side, ReadonlySignal<Graph | null>> = {
    node: this.source,
    layer: computed(() => this.#graphs.layer.value && withoutSync(this.#graphs.layer.value)),
    other: computed(() => this.#graphs.other.value && withoutSync(this.#graphs.other.value)),
  };
  readonly #only: Record<Side, ReadonlySignal<ReadonlySet<string> | null>> = computedBySide((side) =>
    this.#alone(side),
  );
  readonly #visible: Record<Side, ReadonlySignal<VisibleGraph | null>> = computedBySide((side) =>
    this.#arranged(side),
  );
  readonly #model: AnyModel<GraphTraits>;
  readonly #end: AbortSignal;
  #published = "";

  constructor(model: AnyModel<GraphTraits>, end: AbortSignal) {
    this.#model = model;
    this.#end = end;
    this.view = signal({ ...START, ...model.get("view") });
    const trait = follower(model, end, (error) => this.fail(error));
    const later: Record<EngineSide, Signal<Later | null>> = { layer: signal(null), other: signal(null) };
    watchKernel(model as AnyModel, end, (reach) => {
      this.kernelState.value = reach;
    });
    const received = trait("view");
    this.decode(trait("source"), this.source);
    this.decode(trait("engine"), this.engine);
    this.decode(trait("other"), this.other);
    this.decode(trait("engine_later"), later.layer, false);
    this.decode(trait("other_later"), later.other, false);
    effectsUntil(
      end,
      () => this.#complete("layer", later.layer.value),
      () => this.#complete("other", later.other.value),
      () => this.#receive({ ...START, ...received.value }),
      () => this.#rejoin(this.mapping.value, "layer"),
      () => this.#rejoin(this.#otherMapping.value, "other"),
    );
  }

  fail(error: unknown): void {
    this.problem.value = error;
  }

  visible(side: Side): VisibleGraph | null {
    return this.#visible[side].value;
  }

  grouping(side: Side): Grouping {
    return this.#grouping[side].value;
  }

  whole(side: Side): Graph | null {
    return this.#whole[side].value;
  }

  variantTitle(variant = ""): string {
    return this.titles.value[variant] ?? variant;
  }

  isLoading(side: Side): boolean {
    return this.#graph(side)?.later ?? false;
  }

  loadingText(what: string): string {
    const late = isGone(this.kernelState.value) ? "did not arrive before the kernel was gone" : "are loading";
    return `${what} ${late}.`;
  }

  engineOf(side: EngineSide): EngineView | null {
    return side === "layer" ? this.engine.value : this.other.value;
  }

  mappingOf(side: EngineSide): Mapping {
    return side === "layer" ? this.mapping.value : this.#otherMapping.value;
  }

  /** A box by its id; that of a group exists only where it is drawn. */
  box(side: Side, id: string): Box | null {
    const own = this.boxes[side].value.get(id);
    if (own) return own;
    const visible = this.visible(side);
    const box = visible?.graph.boxes[visible.place.get(id) ?? -1];
    return box?.id === id ? box : null;
  }

  members(side: Side, id: string): readonly string[] {
    return this.visible(side)?.members(id) ?? [id];
  }

  selected(side: Side, view: ViewState = this.view.value): string[] {
    return view[FIELD[side]];
  }

  hovered(side: Side): string[] {
    const at = this.hover.value;
    if (!at) return [];
    const ids = [...this.members(at.side, at.id)];
    return at.side === side ? [at.id] : this.across(at.side, side, ids);
  }

  across(from: Side, to: Side, ids: readonly string[]): string[] {
    if (from === to) return [...ids];
    const nodes = from === "node" ? ids : this.mappingOf(from).nodesOf(ids);
    return to === "node" ? [...nodes] : this.mappingOf(to).layersOf(nodes);
  }

  point(side?: Side, id = ""): void {
    this.hover.value = side ? { side, id } : null;
  }

  /** A click on a box. `add` toggles it in the selection; `reveal` also scrolls the clicked side. */
  select(side: Side, id: string, { add = false, reveal = false } = {}): void {
    const old = new Set(this.view.value.anchor === side && add ? this.selected(side) : []);
    const ids = this.members(side, id);
    const all = ids.every((one) => old.has(one));
    for (const one of ids) {
      if (all) old.delete(one);
      else old.add(one);
    }
    this.selectAll(side, [...old]);
    this.#reveal(reveal ? SIDES : SIDES.filter((other) => other !== side));
  }

  selectAll(side: Side, ids: string[]): void {
    this.change(this.#joined(side, ids));
  }

  reveal(side: Side, ids: readonly string[]): void {
    this.selectAll(side, [...ids]);
    this.#reveal(SIDES);
  }

  /** Selects the nodes and layers of a point or a row of a panel. `add` toggles them in the selection. */
  follow({ nodes, layers, others }: Link, add = false): void {
    const existing = (side: Side, ids: readonly string[]): string[] =>
      ids.filter((id) => this.boxes[side].value.has(id));
    const target = {
      node: existing("node", nodes),
      layer: existing("layer", layers),
      other: existing("other", others),
    };
    // What the panel leaves open follows from the pairs.
    if (!target.node.length) target.node = this.across("layer", "node", target.layer);
    if (!target.layer.length) target.layer = this.across("node", "layer", target.node);
    if (!target.other.length) target.other = this.across("node", "other", target.node);
    if (!SIDES.some((side) => target[side].length)) return;
    const merged = (side: Side): string[] => {
      const old = this.selected(side);
      return add ? [...new Set([...old, ...target[side]])] : target[side];
    };
    const all = SIDES.every((side) => target[side].every((id) => this.selected(side).includes(id)));
    const without = (side: Side): string[] => this.selected(side).filter((id) => !target[side].includes(id));
    const next = add && all ? without : merged;
    this.change({
      anchor: target.node.length ? "node" : target.layer.length ? "layer" : "other",
      selection: next("node"),
      layers: next("layer"),
      others: next("other"),
    });
    this.#reveal(SIDES);
  }

  replay(step: number): void {
    const nodes = this.story.value?.steps[step - 1]?.nodes ?? [];
    const existing = nodes.filter((id) => this.boxes.node.value.has(id));
    this.change({ step, ...this.#joined("node", existing) });
    this.#reveal(SIDES);
  }

  clear(): void {
    this.focus.value = null;
    this.change({ selection: [], layers: [], others: [] });
  }

  toggle(group: string): void {
    const folds = new Set(this.view.value.folds);
    if (!folds.delete(group)) folds.add(group);
    this.change({ folds: [...folds] });
  }

  change(part: Partial<ViewState>): void {
    const next = { ...this.view.value, ...part };
    const text = JSON.stringify(next);
    if (text === JSON.stringify(this.view.value)) return;
    this.#published = text;
    batch(() => {
      this.view.value = next;
    });
    publish(this.#model, "view", next);
  }

  #arranged(side: Side): VisibleGraph | null {
    const graph = this.#whole[side].value;
    if (!graph) return null;
    const grouping = this.grouping(side);
    const byLayer = side === "node" && grouping === "layers" ? this.engine.value : null;
    const links = byLayer ? this.mapping.value : this.mapping.peek();
    const fused = side === "node" && grouping === "replay" ? this.#fused.value : [];
    const arrangement = { grouping, folds: this.#folds.value, only: this.#only[side].value, fused };
    return arrange(graph, arrangement, byLayer, links);
  }

  /** The graph of a side as received; its readers are notified when the details of its boxes arrive. */
  #graph(side: Side): Graph | null {
    void this.#completions.value;
    return side === "node" ? this.source.value : (this.engineOf(side)?.graph ?? null);
  }

  /**
   * Puts what follows a picture in its place: once for a large graph, and again as numbers are measured. The graph
   * stays the one that is drawn.
   */
  #complete(side: EngineSide, later: Later | null): void {
    const engine = side === "layer" ? this.engine : this.other;
    const view = engine.value;
    if (!view || !later || later.of !== view.variant || completed.get(view.graph) === later) return;
    completed.set(view.graph, later);
    later.boxes.forEach((fields, at) => {
      Object.assign(view.graph.boxes[at]!, fields);
    });
    view.graph.later = false;
    batch(() => {
      this.#completions.value = this.#completions.peek() + 1;
      engine.value = { ...view, overlays: later.overlays };
    });
  }

  #alone(side: Side): ReadonlySet<string> | null {
    const focus = this.focus.value;
    return focus?.alone && focus.side === side ? focus.ids : null;
  }

  #joined(anchor: Side, ids: string[]): Partial<ViewState> {
    return {
      anchor,
      selection: this.across(anchor, "node", ids),
      layers: this.across(anchor, "layer", ids),
      others: this.across(anchor, "other", ids),
    };
  }

  #reveal(sides: readonly Side[]): void {
    this.revealRequest.value = { serial: this.revealRequest.peek().serial + 1, sides };
  }

  /** The kernel changed the view: the sides that it did not name follow from the pairs. */
  #receive(next: ViewState): void {
    if (JSON.stringify(next) === this.#published) return;
    // From here on the kernel may well go back to what was once published here.
    this.#published = "";
    const old = this.view.peek();
    const nodes = !same(next.selection, old.selection);
    // Layers of picked nodes only follow, and the kernel has another order of them. Those of another variant mean
    // nothing to the links at hand; its own will join the nodes when they arrive.
    const layers = next.anchor === "layer" && next.variant === old.variant && !same(next.layers, old.layers);
    if (JSON.stringify(next) !== JSON.stringify(old)) this.view.value = next;
    if (!nodes && !layers) return;
    this.#rejoined(nodes ? "node" : "layer");
    this.#reveal(SIDES);
  }

  /** Another variant: the selected nodes stay, their layers are others. */
  #rejoin(links: Mapping, side: EngineSide): void {
    if (links.empty || !this.view.peek().selection.length) return;
    this.#rejoined("node");
    this.#reveal([side]);
  }

  #rejoined(anchor: Side): void {
    const view = this.view.peek();
    const next = { ...view, ...untracked(() => this.#joined(anchor, this.selected(anchor, view))) };
    const text = JSON.stringify(next);
    if (text === JSON.stringify(view)) return;
    this.#published = text;
    this.view.value = next;
    publish(this.#model, "view", next);
  }

  /**
   * Unpacks what the kernel delivers, the latest that came; if it is `drawn`, the view counts as pending meanwhile.
   */
  decode<T>(bytes: ReadonlySignal<Bytes | undefined>, into: Signal<T | null>, counts = true): void {
    const pending = counts ? this.pending : signal(0);
    let latest = 0;
    this.#end.addEventListener("abort", () => {
      latest = 0;
    });
    effectsUntil(this.#end, () => {
      const serial = ++latest;
      const received = bytes.value;
      pending.value = pending.peek() + 1;
      decode<T>(received)
        .then((payload) => {
          if (serial === latest) into.value = payload;
        })
        .catch((error: unknown) => this.fail(error))
        .finally(() => {
          pending.value -= 1;
        });
    });
  }
}

const FIELD = { node: "selection", layer: "layers", other: "others" } as const;

const completed = new WeakMap<Graph, Later>();
const mappings = new WeakMap<readonly Pair[], Mapping>();

/** The relation of an engine, which stays the same when its numbers follow. */
function cachedMapping(engine: EngineView | null): Mapping {
  const mapping = (engine && mappings.get(engine.pairs)) ?? new Mapping(engine);
  if (engine) mappings.set(engine.pairs, mapping);
  return mapping;
}

const byId = (graph: Graph | null): Map<string, Box> => new Map(graph?.boxes.map((box) => [box.id, box]));

const same = (a: readonly string[], b: readonly string[]): boolean =>
  a.length === b.length && a.every((id, i) => id === b[i]);
