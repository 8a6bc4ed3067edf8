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
  targets: readonly string[];
  show?(): unknown;
}

export function exampleLayer({ engine, mapping }: Pick<Study, "engine" | "mapping">): Box | undefined {
  const layers = engine.value?.graph.boxes.filter(({ kind, slim }) => kind === "layer" && !slim) ?? [];
  return layers.find(({ id }) => mapping.value.nodesRun(id).length > 1) ?? layers[0];
}

export function tourStops(context: TourContext): Stop[] {
  const { study, paneSet, saved, chips, findings, page } = context;
  const example = exampleLayer(study);
  const hasNodes = study.source.value !== null && !study.modelless.value;
  const hasFindings = Boolean(findings.value?.items.length);
  const origins = Object.entries(GLYPH).map(([origin, glyph]) => `${glyph} ${origin}`);
  const stops: (Stop | false)[] = [
    {
      name: "graphs",
      title: hasNodes ? "Left the model, right its engine" : "The graphs",
      text: example
        ? "Click any node or layer: what it became is highlighted on the other side. Several nodes in one layer " +
          "are fused."
        : "Open a sample, or drop an ONNX file here. Build adds the layers of an engine beside its nodes.",
      targets: ['canvas[data-pane="layer"]', 'canvas[data-pane="node"]', ".rt-start"],
      show: () => example && context.jump("layer", example.id),
    },
    hasNodes &&
      example !== undefined &&
      paneSet.canFoldLayers() && {
        name: "fold",
        title: "Fold nodes into layers",
        text: "Press m, or this button: the nodes of each layer become one box. The ⋯ menu offers other groups.",
        targets: ['[data-control="fold-layers"]'],
      },
    (!saved || chips.value.length > 0) && {
      name: "choice",
      title: saved ? "The variants" : "Choose, build, compare",
      text:
        (saved ? "" : "Precision, calibrator and target define the variant that Build makes. ") +
        "Each row is a variant with its times and its score. Click one to see its engine.",
      targets: [".rt-choices", ".rt-variants"],
    },
    example !== undefined && {
      name: "charts",
      title: "What it costs",
      text:
        "A tab opens its charts, and folds them again. Click a layer here to select it in the graphs. The sign beside a number is its origin: " +
        `${origins.join(", ")}. The other tabs show memory, accuracy, fusion and more.`,
      targets: [".rt-bottom"],
      show: () => study.change({ tab: page.value.tabs.includes("timing") ? "timing" : "table" }),
    },
    {
      name: "why",
      title: hasFindings ? "What to change, and why" : "Where to go on",
      text:
        (hasFindings ? "Findings say what is worth changing, with evidence and cost. " : "") +
        (example && hasNodes && !saved
          ? "Select two nodes, or a wire, to ask why they are not fused. "
          : "") +
        "? shows the keys, the terms and this tour.",
      targets: [...(hasFindings ? [".rt-bottom"] : []), '[data-control="help"]'],
      show: () => hasFindings && study.change({ tab: "findings" }),
    },
  ];
  return stops.filter((stop) => stop !== false);
}

/** A short tour through the Explorer. At its end selection, tab and settings are as before. */
export class Guide {
  readonly stops: ReadonlySignal<readonly Stop[]>;
  /** The current stop; null without a tour. */
  readonly stop: ReadonlySignal<Stop | null>;
  readonly at: Signal<number> = signal(-1);
  readonly #context: TourContext;
  #before: ViewState | null = null;

  constructor(context: TourContext) {
    this.#context = context;
    this.stops = computed(() => (this.at.value < 0 ? [] : tourStops(context)));
    this.stop = computed(
      () => this.stops.value[Math.min(this.at.value, this.stops.value.length - 1)] ?? null,
    );
    effectsUntil(context.end, () => {
      if (context.presentation.on.value) this.leave();
    });
  }

  begin(): void {
    if (this.#before) return;
    if (this.#context.presentation.on.peek()) this.#context.presentation.toggle();
    this.#before = this.#context.study.view.peek();
    this.go(0);
  }

  go(at: number): void {
    if (!this.#before || at < 0) return;
    this.at.value = at;
    if (at < this.stops.peek().length) this.stop.peek()!.show?.();
    else this.leave();
  }

  key(key: string): boolean {
    const at = this.at.peek();
    const next = { ArrowRight: Math.min(at + 1, this.stops.peek().length - 1), ArrowLeft: at - 1 }[key];
    if (at < 0 || (key !== "Escape" && next === undefined)) return false;
    if (next === undefined) this.leave();
    else this.go(next);
    return true;
  }

  leave(): void {
    const before = this.#before;
    if (!before) return;
    this.#before = null;
    this.at.value = -1;
    const { study, paneSet } = this.#context;
    const { variant, compared, settings } = study.view.peek();
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
