import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { CompareVariant, Graph, Side } from "../core/contract";
import { effectsUntil } from "../core/lifetime";
import { type Pointed, SIDES, type Study, sidesInView } from "../core/state";
import type { Stage } from "./draw/stage";
import { Type } from "./draw/text";
import { isDark, onThemeChange, readTheme, type Theme } from "./draw/theme";
import { foldAll } from "./folding";
import { LayoutClient } from "./layout/client";
import { activeMode, type ColourMode, colourField, colourModes, enginesOf, type Look, look } from "./overlay";

/** Where a box is drawn, for a browser test that clicks at a real point. */
interface Point {
  x: number;
  y: number;
}

interface Colours {
  modes: ReadonlySignal<ColourMode[]>;
  mode: ReadonlySignal<string>;
  look: ReadonlySignal<Look | null>;
}

/** What the panes of one widget share besides the study: its root, the layout worker, the theme, and each other. */
export class PaneSet {
  readonly study: Study;
  readonly root: HTMLElement;
  readonly layouts = new LayoutClient();
  readonly theme: Signal<Theme>;
  readonly type: ReadonlySignal<Type>;
  readonly stages: Partial<Record<Side, Stage>> = {};
  readonly sides: ReadonlySignal<readonly Side[]>;
  readonly hidesNodes: ReadonlySignal<boolean>;
  readonly across: ReadonlySignal<boolean>;
  /** Whether the panes stand above each other, by choice or because the widget is narrow. */
  readonly stacked: Signal<boolean> = signal(false);
  readonly hint: Signal<{ side: Side; words: string } | null> = signal(null);
  readonly reading: Signal<Pointed | null> = signal(null);
  readonly hits: Signal<Partial<Record<Side, number>>> = signal({});
  /** How a pane can be coloured, how it is, and what comes of it; worked out anew only when one of these changes. */
  readonly colours: Record<Side, Colours>;
  readonly #graphs = new Map<Side, Graph | null>();
  onFrame: () => void = () => {};

  constructor(study: Study, root: HTMLElement, end: AbortSignal) {
    this.study = study;
    this.root = root;
    this.theme = signal(this.#readTheme());
    this.type = signal(new Type(this.theme.value.font));
    this.colours = {
      node: this.#colours("node"),
      layer: this.#colours("layer"),
      other: this.#colours("other"),
    };
    this.across = computed(() => study.view.value.across);
    const text = computed(() => JSON.stringify(study.view.value.panes));
    this.hidesNodes = computed(() => study.modelless.value && study.engine.value !== null);
    this.sides = computed(() => {
      const panes = new Set<Side>(JSON.parse(text.value));
      return sidesInView([...panes], this.hidesNodes.value);
    });
    onThemeChange(() => {
      this.theme.value = this.#readTheme();
    }, end);
    effectsUntil(
      end,
      () => this.#publishState(),
      () => this.#forgetFocus(),
      () => {
        void study.view.value.selection;
        this.hint.value = null;
        this.reading.value = null;
      },
    );
    end.addEventListener("abort", () => this.layouts.stop());
    this.layouts.onRestart = (why) => {
      const side = this.sides.peek()[0];
      if (side) this.hint.value = { side, words: `The layout stopped (${why}) and was started again` };
    };
    Object.assign(root, {
      rtlabBoxAt: (side: Side, id: string) => this.boxAt(side, id),
      rtlabView: (side: Side) => this.viewOf(side),
    });
  }

  /** Scrolls a box to the middle of its pane and tells where in the page that is; null for an unknown box. */
  boxAt(side: Side, id: string): Point | null {
    const stage = this.stages[side];
    const box = stage?.scene?.index.get(id);
    if (!stage?.scene || box === undefined) return null;
    stage.camera.centreOn(stage.scene.x[box]!, stage.scene.y[box]!);
    const place = stage.place(box)!;
    const { left, top } = stage.origin;
    return { x: left + place.x + place.width / 2, y: top + place.y + place.height / 2 };
  }

  /** The part of a graph that is in view: left, top, width and height in its own units, to the nearest of them. */
  viewOf(side: Side): number[] | null {
    const stage = this.stages[side];
    if (!stage?.scene) return null;
    const { x, y, width, height } = stage.camera.view;
    return [x, y, width, height].map(Math.round);
  }

  /** Shows a side that is not in view, or takes it away; the last one stays. */
  togglePane(side: Side): void {
    const now = this.sides.value;
    const panes = now.includes(side) ? now.filter((one) => one !== side) : [...now, side];
    if (panes.length) this.#show(panes);
  }

  #show(panes: Side[]): void {
    const hidden = this.hidesNodes.value && this.study.view.value.panes.includes("node");
    this.study.change({ panes: hidden ? ["node", ...panes] : panes });
  }

  swap(side: Side): void {
    const panes = [...this.sides.value];
    const at = Math.min(panes.indexOf(side), panes.length - 2);
    if (at < 0) return;
    panes.splice(at, 2, panes[at + 1]!, panes[at]!);
    this.#show(panes);
  }

  zoomToSelection(side: Side): void {
    this.stages[side]?.zoomTo(this.study.selected(side));
  }

  /** Leaves what Escape leaves first: the highlight, then the selection. */
  leave(): boolean {
    const { focus, hover, view } = this.study;
    hover.value = null;
    if (this.hint.value) this.hint.value = null;
    else if (focus.value) focus.value = null;
    else if (SIDES.some((side) => this.study.selected(side, view.value).length)) this.study.clear();
    else return false;
    return true;
  }

  settle(home: HTMLElement): void {
    const { left, top } = home.getBoundingClientRect();
    for (const stage of Object.values(this.stages))
      stage.corner = { x: stage.origin.left - left, y: stage.origin.top - top };
    this.onFrame();
  }

  canFoldLayers(): boolean {
    return this.sides.value.includes("node") && this.study.engine.value !== null;
  }

  toggleLayerFold(): void {
    const on = this.study.view.peek().grouping_nodes === "layers";
    this.study.change({ grouping_nodes: on || !this.canFoldLayers() ? "auto" : "layers" });
    if (!on) foldAll(this.study, "node", false);
  }

  closeOther(explorer?: { send(command: CompareVariant): void }): void {
    if (this.sides.value.includes("other")) this.togglePane("other");
    explorer?.send({ type: "compare", variant: "" });
  }

  focusPane(side: Side): void {
    this.root.querySelector<HTMLElement>(`canvas[data-pane="${side}"]`)?.focus({ preventScroll: true });
  }

  #forgetFocus(): void {
    const { study } = this;
    for (const side of SIDES) {
      const graph = study.whole(side);
      if (this.#graphs.get(side) !== graph && study.focus.peek()?.side === side) study.focus.value = null;
      this.#graphs.set(side, graph);
    }
  }

  #colours(side: Side): Colours {
    const { study } = this;
    const modes = computed(() => colourModes(side, enginesOf(study, side)));
    const coming = computed(() => enginesOf(study, side).some(({ graph }) => graph.later));
    const mode = computed(() => activeMode(modes.value, study.view.value[colourField(side)], coming.value));
    return { modes, mode, look: computed(() => look(study, side, mode.value)) };
  }

  #readTheme(): Theme {
    const dark = isDark();
    this.root.classList.toggle("rt-dark", dark);
    return readTheme(this.root, dark);
  }

  #publishState(): void {
    const { view, graphsDrawn, ready, engine, focus } = this.study;
    const { dataset } = this.root;
    dataset.selection = JSON.stringify(view.value.selection);
    dataset.layers = JSON.stringify(view.value.layers);
    dataset.others = JSON.stringify(view.value.others);
    dataset.variant = engine.value?.variant ?? "";
    dataset.focus = String(focus.value?.ids.size ?? 0);
    dataset.hits = String(Object.values(this.hits.value).reduce((a, b) => a + b, 0));
    dataset.pictured = graphsDrawn.value ? "1" : "0";
    dataset.ready = ready.value ? "1" : "0";
  }
}
