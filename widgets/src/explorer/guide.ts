import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { Box, Findings, Side, ViewState } from "../core/contract";
import { GLYPH } from "../core/format";
import { effectsUntil } from "../core/lifetime";
import type { Study } from "../core/state";
import type { Page } from "../panels/page";
import { type Presentation, type PresentationContext, pageSettings } from "./presentation";

export interface TourContext extends PresentationContext {
  presentation: Presentation;
  findings: ReadonlySignal<Findings | null>;
  page: ReadonlySignal<Page>;
  jump(side: Side, id: string): void;
}

export interface Stop {
  name: "graphs" | "fold" | "choice" | "charts" | "why";
  title: string;
  text: string;
  /** CSS selectors of the elements that are outlined; those that are not there are skipped. */
  targets: readonly string[];
  /** Brings the targets onto the screen. */
  show?(): unknown;
}

const STORAGE_KEY = "rtlab.tour";

/** A layer that fuses nodes, or else the first one that computes. */
export function exampleLayer({ engine, mapping }: Pick<Study, "engine" | "mapping">): Box | undefined {
  const layers = engine.value?.graph.boxes.filter(({ kind, slim }) => kind === "layer" && !slim) ?? [];
  return layers.find(({ id }) => mapping.value.nodesRun(id).length > 1) ?? layers[0];
}

export function tourStops(context: TourContext): Stop[] {
  const { study, paneSet, saved, chips, findings, page } = context;
  const engine = study.engine.value;
  const model = study.source.value;
  const example = exampleLayer(study);
  const hasNodes = model !== null && !study.modelless.value;
  const found = Boolean(findings.value?.items.length);
  const origins = Object.entries(GLYPH).map(([origin, glyph]) => `${glyph} ${origin}`);
  const stops: (Stop | false)[] = [
    {
      name: "graphs",
      title:
        !model && !engine ? "Open a model" : hasNodes ? "Left the model, right its engine" : "The engine",
      text:
        !model && !engine
          ? "Choose a sample, or drop an ONNX file here. Its graph appears here, and its engine beside it."
          : !example
            ? "Build adds the layers of an engine beside the nodes of the model."
            : hasNodes
              ? "Click any node of the model, or any layer of the engine: what it became is highlighted on the " +
                "other side. Several nodes in one layer are fused."
              : "Each box is a layer, in execution order. Click one to see what it reads, writes and costs.",
      targets: ['canvas[data-pane="layer"]', 'canvas[data-pane="node"]', ".rt-start"],
      show: () => example && context.jump("layer", example.id),
    },
    hasNodes &&
      example !== undefined &&
      paneSet.canMorph() && {
        name: "fold",
        title: "Fold nodes into layers",
        text:
          "Drag the slider, or press m: nodes of one layer move together. The ⋯ menu can keep the nodes grouped " +
          "by layer.",
        targets: ['[data-control="morph-bar"]', '[data-control="morph"]'],
        show: () => {
          paneSet.morphing.value = true;
        },
      },
    (!saved || chips.value.length > 0) && {
      name: "choice",
      title: saved ? "The variants" : "Choose, build, compare",
      text:
        (saved ? "" : "Precision, calibrator and target define the variant that Build makes. ") +
        "Each chip is a variant: nodes → layers, the time and the score. Click one to see its engine.",
      targets: [".rt-choices", ".rt-chips"],
    },
    example !== undefined && {
      name: "charts",
      title: "What it costs",
      text:
        "Click a layer here to select it in the graphs. The sign beside a number is its origin: " +
        `${origins.join(", ")}. The other tabs show memory, accuracy, fusion and more.`,
      targets: [".rt-bottom"],
      show: () => study.change({ tab: page.value.tabs.includes("timing") ? "timing" : "table" }),
    },
    {
      name: "why",
      title: found ? "What to change, and why" : "Where to go on",
      text:
        (found ? "Findings say what is worth changing, with evidence and cost. " : "") +
        (example && hasNodes && !saved
          ? "Select two nodes, or a wire, to ask why they are not fused. "
          : "") +
        "? shows the keys, the terms and this tour.",
      targets: [...(found ? [".rt-bottom"] : []), '[data-control="help"]'],
      show: () => found && study.change({ tab: "findings" }),
    },
  ];
  return stops.filter((stop) => stop !== false);
}

/** Whether the offer was answered in this browser. */
const answered: Signal<boolean> = signal(storage()?.getItem(STORAGE_KEY) != null);

/** A page in a sandbox has no storage: then the answer lasts as long as the page. */
function storage(): Storage | null {
  try {
    return localStorage;
  } catch {
    return null;
  }
}

/** A short tour through the Explorer. At its end selection, tab and settings are as before. */
export class Guide {
  readonly stops: ReadonlySignal<readonly Stop[]>;
  /** The current stop; null without a tour. */
  readonly stop: ReadonlySignal<Stop | null>;
  readonly at: Signal<number> = signal(-1);
  /** Whether to offer the tour to a new user. */
  readonly offered: ReadonlySignal<boolean>;
  readonly #context: TourContext;
  #before: ViewState | null = null;

  constructor(context: TourContext) {
    this.#context = context;
    const { study, presentation } = context;
    this.stops = computed(() => (this.at.value < 0 ? [] : tourStops(context)));
    this.stop = computed(
      () => this.stops.value[Math.min(this.at.value, this.stops.value.length - 1)] ?? null,
    );
    this.offered = computed(
      () =>
        !(answered.value || context.saved || this.stop.value || presentation.on.value) &&
        study.pictured.value &&
        study.engine.value !== null,
    );
    effectsUntil(context.end, () => {
      if (presentation.on.value) this.leave();
    });
  }

  begin(): void {
    this.decline();
    if (this.#before) return;
    if (this.#context.presentation.on.peek()) this.#context.presentation.toggle();
    this.#before = this.#context.study.view.peek();
    this.go(0);
  }

  decline(): void {
    answered.value = true;
    storage()?.setItem(STORAGE_KEY, "1");
  }

  /** Shows a stop; beyond the last the tour ends. */
  go(at: number): void {
    if (!this.#before || at < 0) return;
    this.at.value = at;
    this.#context.paneSet.morphing.value = false;
    if (at < this.stops.peek().length) this.stop.peek()!.show?.();
    else this.leave();
  }

  key(key: string): boolean {
    const at = this.at.peek();
    if (at < 0) return false;
    const last = this.stops.peek().length - 1;
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last }[key];
    if (key === "Escape") this.leave();
    else if (next !== undefined) this.go(Math.min(next, last));
    else return false;
    return true;
  }

  /** Ends the tour and restores the view. */
  leave(): void {
    const before = this.#before;
    if (!before) return;
    this.#before = null;
    this.at.value = -1;
    const { study, paneSet } = this.#context;
    const { variant, compared, settings } = study.view.peek();
    paneSet.morphing.value = false;
    study.change({
      ...before,
      variant,
      compared,
      settings: { ...before.settings, ...pageSettings(settings) },
    });
    study.selectAll(before.anchor, study.selected(before.anchor, before));
    paneSet.root.focus({ preventScroll: true });
  }
}
