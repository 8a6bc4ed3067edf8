import { computed, effect, type ReadonlySignal, type Signal, signal, untracked } from "@preact/signals";
import type { Box, Chip, Findings, Side, ViewState } from "./contract";
import type { Rect } from "./draw/camera";
import { GLYPH, plural } from "./format";
import type { Page } from "./panels";
import type { PaneSet } from "./paneset";
import { afterDrawn, own, type Presenting, WHOLE } from "./presenting";
import { SIDES, type Study } from "./state";

/** What the Explorer has that a tour leads through. */
export interface Toured {
  study: Study;
  paneSet: PaneSet;
  presenting: Presenting;
  saved: boolean;
  end: AbortSignal;
  chips: ReadonlySignal<readonly Chip[]>;
  findings: ReadonlySignal<Findings | null>;
  page: ReadonlySignal<Page>;
  jump(side: Side, id: string): void;
}

/** Boxes of a pane, where they are drawn. */
export interface Boxes {
  side: Side;
  ids: readonly string[];
}

/** What a stop points at: a control or a region by a selector in the widget, or boxes of a pane. */
export type Spot = string | Boxes;

/** One stop of the tour: what it points at, and what is to be seen there. */
export interface Stop {
  name: "graphs" | "fold" | "choice" | "charts" | "why";
  title: string;
  words: string;
  spots: readonly Spot[];
  /** Brings it onto the screen; what the stop before showed is away by then. */
  show(): void;
}

/** A layer of so many nodes fits on the screen, and shows best what a fusion is. */
const BEST = 3;
/** What is shown of a pane may be so large, as a person would zoom to it. */
const LARGEST = 4;
/** Where the browser keeps that its user has seen the offer. */
const KEY = "rtlab.tour";

/** The layer that shows a fusion best: it runs three nodes, or as near to that as there is one, and does nothing else. */
export function example({ engine, links }: Pick<Study, "engine" | "links">): Box | null {
  let best: Box | null = null;
  let least = Number.POSITIVE_INFINITY;
  for (const box of engine.value?.graph.boxes ?? []) {
    if (box.kind !== "layer" || box.slim) continue;
    const run = links.value.runBy(box.id).length;
    const served = links.value.nodesOf([box.id]).length - run;
    // One of a single node shows no fusion; one that stands for none nothing at all.
    const off = run > 1 ? Math.abs(run - BEST) + served : run ? 1000 : 2000;
    if (off < least) [best, least] = [box, off];
  }
  return best;
}

const list = (words: readonly string[]): string =>
  words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;

const counted = (boxes: readonly Box[], kind: Box["kind"]): string =>
  plural(boxes.filter((box) => box.kind === kind).length, kind);

/** The stops that have something to point at, in what is open now. */
export function stopsOf(explorer: Toured): Stop[] {
  const { study, paneSet, saved } = explorer;
  const engine = study.engine.value;
  const shown = example(study);
  const sides = paneSet.sides.value;
  const model = study.source.value;
  const nodes = model !== null && !study.modelless.value;
  const tabs = explorer.page.value.tabs;
  const help = `[data-control="help"]`;
  const present = `[data-control="show"]`;
  const bring = (tab: ViewState["tab"]): void => {
    const { settings } = study.view.peek();
    study.change({ tab, settings: tab === "timing" ? { ...settings, timing: "layers" } : settings });
  };
  const select = (): void => {
    if (!shown) return;
    explorer.jump("layer", shown.id);
    for (const side of sides) paneSet.zoomToSelection(side);
  };
  const run = shown ? study.links.value.runBy(shown.id) : [];
  const boxes: Boxes[] = shown
    ? [
        { side: "node", ids: run },
        { side: "layer", ids: [shown.id] },
      ]
    : [];
  const stops: Stop[] = [];
  if (!model && !engine)
    stops.push({
      name: "graphs",
      title: "Open a model",
      words:
        "Choose a sample, or drop an ONNX file here: its graph stands here then, and its engine beside it.",
      spots: [".rt-start", '[data-control="model"]'],
      show: () => {},
    });
  else if (!engine || !shown)
    stops.push({
      name: "graphs",
      title: "Left the model, right its engine",
      words: nodes
        ? `These are the ${counted(model.boxes, "node")} of the ONNX model. Once Build has made an engine, its layers stand beside them.`
        : "The layers of the engine.",
      spots: ['canvas[data-pane="node"]', '[data-control="build"]'],
      show: () => {},
    });
  else
    stops.push({
      name: "graphs",
      title: nodes ? "Left the model, right its engine" : "The engine",
      words: !nodes
        ? "Each box is a layer, in order of execution. Click one to see what it reads, writes and takes. With the " +
          "ONNX model beside it, you would see which nodes it runs."
        : run.length > 1
          ? `${list(run.map((id) => study.box("node", id)?.op ?? id))} of the model run as one layer of the engine: ` +
            "they are fused. Click any node or layer, and what it became lights up on the other side."
          : "Click any node of the model, or any layer of the engine, and what it became lights up on the other side.",
      spots: boxes.filter(({ side }) => sides.includes(side)),
      show: select,
    });
  if (engine && nodes && shown && paneSet.canMorph())
    stops.push({
      name: "fold",
      title: "Fold nodes into layers",
      words:
        `${counted(model.boxes, "node")} became ${counted(study.whole("layer")?.boxes ?? [], "layer")}. Drag the ` +
        "slider, or press m: what runs as one melts together, and what needs no layer fades. The ⋯ menu can keep " +
        "the nodes grouped so.",
      spots: ['[data-control="morph-bar"]', '[data-control="morph"]'],
      show: () => {
        paneSet.morphing.value = true;
      },
    });
  const scored = explorer.chips.value.some(({ score }) => score !== null);
  const told =
    "Each chip below is a variant: nodes → layers, the time" +
    (scored
      ? ", and what the score lost against the baseline. Where it fell, Why? looks for the reason."
      : ".");
  if (!saved)
    stops.push({
      name: "choice",
      title: "Choose, build, compare",
      words: `Precision, calibrator and target say what Build makes of the model. ${told}`,
      spots: [".rt-choices", ".rt-chips"],
      show: () => {},
    });
  else if (explorer.chips.value.length)
    stops.push({
      name: "choice",
      title: "The variants",
      words: `${told.replace(" below", "")} Click one to see its engine.`,
      spots: [".rt-chips"],
      show: () => {},
    });
  if (engine && shown) {
    const timed = engine.overlays.some(({ unit }) => unit === "ms") && tabs.includes("timing");
    const signs = Object.entries(GLYPH).map(([origin, sign]) => `${sign} ${origin}`);
    stops.push({
      name: "charts",
      title: "What it costs",
      words:
        `Each ${timed ? "bar" : "row"} is a layer: click it, and it is selected above. The sign beside a number ` +
        `says where it is from: ${list(signs)}. The other tabs tell of memory, accuracy, fusion and more.`,
      spots: [".rt-bottom"],
      show: () => {
        bring(timed ? "timing" : "table");
        select();
      },
    });
  }
  const found = explorer.findings.value?.items.length ?? 0;
  const asks = engine && nodes && !saved;
  stops.push({
    name: "why",
    title: found ? "What to change, and why" : "Why, and where to go on",
    words:
      (found ? "Findings say what is worth changing, with evidence and cost. " : "") +
      (asks ? "Select two nodes, or a wire, and ask why they are not one step. " : "") +
      "? has the keys, the terms and this tour; the screen beside it is for full screen and for presenting.",
    spots: [...(found ? [".rt-bottom"] : []), present, help],
    show: () => {
      if (found) bring("findings");
    },
  });
  return stops;
}

/** What leaving puts back. */
interface Before {
  view: ViewState;
  focus: Study["focus"]["value"];
  morphing: boolean;
  places: Partial<Record<Side, Rect>>;
  /** What had the keys. */
  active: Element | null;
}

/** Whether the offer has been answered in this browser; all widgets of a page hear of it. */
const answered: Signal<boolean> = signal(recall());

/** A page from a disk, or in a sandbox, may keep nothing. */
function recall(): boolean {
  try {
    return localStorage.getItem(KEY) !== null;
  } catch {
    return false;
  }
}

/** A tour of a minute through the Explorer, over what is open: it points, and leaves all as it was. */
export class Guide {
  readonly stops: ReadonlySignal<readonly Stop[]>;
  /** The stop at which the tour is; null while there is none. */
  readonly stop: ReadonlySignal<Stop | null>;
  readonly at: Signal<number> = signal(-1);
  /** Whether to ask somebody who was never here. */
  readonly offered: ReadonlySignal<boolean>;
  readonly #explorer: Toured;
  #before: Before | null = null;
  #waiting: () => void = () => {};

  constructor(explorer: Toured) {
    this.#explorer = explorer;
    const { study, presenting } = explorer;
    this.stops = computed(() => (this.at.value < 0 ? [] : stopsOf(explorer)));
    // Where a stop goes, such as when an engine is removed meanwhile, the last one that is left stands for it.
    this.stop = computed(
      () => this.stops.value[Math.min(this.at.value, this.stops.value.length - 1)] ?? null,
    );
    this.offered = computed(
      () =>
        !answered.value &&
        !explorer.saved &&
        this.at.value < 0 &&
        !presenting.on.value &&
        study.pictured.value &&
        study.engine.value !== null,
    );
    let model = study.source.peek();
    const stops = [
      // Of another model nothing that was before means anything.
      effect(() => {
        if (study.source.value !== model) this.#end();
        model = study.source.value;
      }),
      effect(() => {
        if (presenting.on.value) untracked(() => this.leave());
      }),
    ];
    explorer.end.addEventListener("abort", () => {
      for (const stop of stops) stop();
      this.#waiting();
    });
  }

  begin(): void {
    const { study, paneSet, presenting } = this.#explorer;
    this.decline();
    if (this.#before) return;
    if (presenting.on.peek()) presenting.toggle();
    const places: Before["places"] = {};
    for (const side of paneSet.sides.peek()) {
      const stage = paneSet.stages[side];
      if (stage?.scene) places[side] = stage.camera.view;
    }
    this.#before = {
      view: study.view.peek(),
      focus: study.focus.peek(),
      morphing: paneSet.morphing.peek(),
      places,
      active: document.activeElement,
    };
    this.go(0);
  }

  /** Answers the offer with no, for good. */
  decline(): void {
    answered.value = true;
    try {
      localStorage.setItem(KEY, "1");
    } catch {
      // Then it is kept as long as the page.
    }
  }

  /** Shows a stop; beyond the last the tour ends. */
  go(at: number): void {
    const { study, paneSet } = this.#explorer;
    if (!this.#before || at < 0) return;
    this.at.value = at;
    if (at >= this.stops.peek().length) {
      this.leave();
      return;
    }
    study.focus.value = null;
    paneSet.morphing.value = false;
    this.stop.peek()!.show();
  }

  key(key: string): boolean {
    if (this.at.peek() < 0) return false;
    const last = this.stops.peek().length - 1;
    const to = { ArrowRight: this.at.peek() + 1, ArrowLeft: this.at.peek() - 1, Home: 0, End: last }[key];
    if (key === "Escape") this.leave();
    // By an arrow nobody means to leave.
    else if (to !== undefined) this.go(Math.min(to, last));
    else return false;
    return true;
  }

  /** Ends the tour: selection, tab, colours, groups and the place of the graphs are as they were before. */
  leave(): void {
    const before = this.#before;
    if (!before) return;
    this.#end();
    const { study, paneSet } = this.#explorer;
    const now = study.view.peek();
    const { variant, compared, baseline } = now;
    const view = { ...before.view, variant, compared, baseline };
    // Who chose another variant meanwhile has other layers for the same nodes.
    const other = variant !== before.view.variant || compared !== before.view.compared;
    study.change({
      ...view,
      ...(other
        ? {
            anchor: "node",
            layers: study.across("node", "layer", view.selection),
            others: study.across("node", "other", view.selection),
          }
        : {}),
      settings: { ...view.settings, ...own(now.settings) },
    });
    study.focus.value = before.focus;
    paneSet.morphing.value = before.morphing && paneSet.canMorph();
    this.#waiting = afterDrawn(study.ready, () => {
      for (const side of SIDES) {
        const place = before.places[side];
        if (place) paneSet.stages[side]?.camera.fit(place, WHOLE, { largest: LARGEST });
      }
    });
    const active = before.active instanceof HTMLElement && before.active.isConnected ? before.active : null;
    const mine = active && paneSet.root.contains(active) ? active : paneSet.root;
    mine.focus({ preventScroll: true });
  }

  #end(): void {
    this.#waiting();
    this.#before = null;
    this.at.value = -1;
    this.#explorer.paneSet.morphing.value = false;
  }
}
