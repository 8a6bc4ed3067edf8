import type { AnyModel } from "@anywidget/types";
import { batch, computed, effect, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { Box, EngineView, Graph, Side, ViewState } from "./contract";
import { withoutSync } from "./drawn";
import { Links } from "./links";
import { type Bytes, decode } from "./payload";
import { follower, type GraphTraits, publish } from "./traits";

export interface Pointed {
  side: Side;
  id: string;
}

const START: ViewState = {
  selection: [],
  layers: [],
  anchor: "node",
  variant: "",
  baseline: "",
  colour: "",
  colour_nodes: "",
  tab: "timing",
};

/**
 * What all panes read: both graphs, how they relate, and the view. Selection is worked out here from the pairs and
 * then published; pointer and animation never leave the browser.
 */
export class Study {
  readonly source: Signal<Graph | null> = signal(null);
  readonly engine: Signal<EngineView | null> = signal(null);
  readonly view: Signal<ViewState>;
  readonly hover: Signal<Pointed | null> = signal(null);
  /** The selection changed for a reason other than a click in the pane: both sides should come into view. */
  readonly revealed: Signal<{ serial: number; sides: Side[] }> = signal({ serial: 0, sides: [] });
  /** Steps that stand between the present payloads and a finished picture. */
  readonly pending: Signal<number> = signal(0);
  readonly problem: Signal<unknown> = signal(null);
  readonly links: ReadonlySignal<Links> = computed(() => new Links(this.engine.value));
  readonly boxes: Record<Side, ReadonlySignal<Map<string, Box>>> = {
    node: computed(() => byId(this.source.value)),
    layer: computed(() => byId(this.engine.value?.graph ?? null)),
  };
  readonly #drawn = computed(() => this.engine.value && withoutSync(this.engine.value.graph));
  readonly #model: AnyModel<GraphTraits>;
  #published = "";

  constructor(model: AnyModel<GraphTraits>, end: AbortSignal) {
    this.#model = model;
    this.view = signal({ ...START, ...model.get("view") });
    const trait = follower(model, end, (error) => this.fail(error));
    this.#decode(trait("source"), this.source, end);
    this.#decode(trait("engine"), this.engine, end);
    const received = trait("view");
    const stop = [
      effect(() => this.#receive({ ...START, ...received.value })),
      effect(() => this.#rejoin(this.links.value)),
    ];
    end.addEventListener("abort", () => {
      for (const dispose of stop) dispose();
    });
  }

  /** Puts a readable card in the place of the view. */
  fail(error: unknown): void {
    this.problem.value = error;
  }

  /** What a pane draws. */
  graph(side: Side): Graph | null {
    return side === "node" ? this.source.value : this.#drawn.value;
  }

  box(side: Side, id: string): Box | null {
    return this.boxes[side].value.get(id) ?? null;
  }

  selected(side: Side): string[] {
    return side === "node" ? this.view.value.selection : this.view.value.layers;
  }

  /** What the hovered box stands for on the given side. */
  hovered(side: Side): string[] {
    const at = this.hover.value;
    if (!at) return [];
    if (at.side === side) return [at.id];
    const links = this.links.value;
    return side === "layer" ? links.layersOf([at.id]) : links.nodesOf([at.id]);
  }

  /** Points at a box, or at nothing. */
  point(side?: Side, id = ""): void {
    this.hover.value = side ? { side, id } : null;
  }

  /** A click on a box. `add` toggles it in the selection; `reveal` also scrolls the clicked side. */
  select(side: Side, id: string, { add = false, reveal = false } = {}): void {
    const { anchor, selection, layers } = this.view.value;
    const old = anchor === side && add ? (side === "node" ? selection : layers) : [];
    const ids = old.includes(id) ? old.filter((other) => other !== id) : [...old, id];
    this.selectAll(side, ids);
    this.#reveal(reveal ? ["node", "layer"] : [side === "node" ? "layer" : "node"]);
  }

  selectAll(side: Side, ids: string[]): void {
    const links = this.links.value;
    this.change(
      side === "node"
        ? { anchor: "node", selection: ids, layers: links.layersOf(ids) }
        : { anchor: "layer", layers: ids, selection: links.nodesOf(ids) },
    );
  }

  clear(): void {
    this.change({ selection: [], layers: [] });
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

  #reveal(sides: Side[]): void {
    this.revealed.value = { serial: this.revealed.peek().serial + 1, sides };
  }

  /** The kernel changed the view: the side that it did not name follows from the pairs. */
  #receive(next: ViewState): void {
    if (JSON.stringify(next) === this.#published) return;
    const old = this.view.peek();
    const nodes = !same(next.selection, old.selection);
    // Layer ids of another variant mean nothing to the links at hand; its own will join the nodes when they arrive.
    const layers = next.variant === old.variant && !same(next.layers, old.layers);
    if (JSON.stringify(next) !== JSON.stringify(old)) this.view.value = next;
    if (!nodes && !layers) return;
    this.#joinedTo(nodes ? "node" : "layer", this.links.peek());
    this.#reveal(["node", "layer"]);
  }

  /** Another variant: the selected nodes stay, their layers are others. */
  #rejoin(links: Links): void {
    if (links.empty || !this.view.peek().selection.length) return;
    this.#joinedTo("node", links);
    this.#reveal(["layer"]);
  }

  #joinedTo(side: Side, links: Links): void {
    const { selection, layers } = this.view.peek();
    const part: Partial<ViewState> =
      side === "node"
        ? { anchor: "node", layers: links.layersOf(selection) }
        : { anchor: "layer", selection: links.nodesOf(layers) };
    const next = { ...this.view.peek(), ...part };
    const text = JSON.stringify(next);
    if (text === JSON.stringify(this.view.peek())) return;
    this.#published = text;
    this.view.value = next;
    publish(this.#model, "view", next);
  }

  #decode<T>(bytes: ReadonlySignal<Bytes>, into: Signal<T | null>, end: AbortSignal): void {
    let latest = 0;
    const stop = effect(() => {
      const mine = ++latest;
      const received = bytes.value;
      this.pending.value = this.pending.peek() + 1;
      decode<T>(received)
        .then((payload) => {
          if (mine === latest && !end.aborted) into.value = payload;
        })
        .catch((error: unknown) => this.fail(error))
        .finally(() => {
          this.pending.value -= 1;
        });
    });
    end.addEventListener("abort", stop);
  }
}

const byId = (graph: Graph | null): Map<string, Box> => new Map(graph?.boxes.map((box) => [box.id, box]));

const same = (a: readonly string[], b: readonly string[]): boolean =>
  a.length === b.length && a.every((id, i) => id === b[i]);
