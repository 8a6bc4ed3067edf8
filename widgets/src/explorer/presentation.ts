import { computed, effect, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { Command, Side, Step, ViewState } from "../core/contract";
import { SIDES, START, type Study } from "../core/state";
import type { PaneSet } from "../graph/paneset";

export interface PresentationContext {
  study: Study;
  paneSet: PaneSet;
  end: AbortSignal;
  chips: Signal<readonly { id: string; label: string }[]>;
  saved: boolean;
  send(command: Command): void;
}

export const LARGER = 1.3;
const NO_INSETS = { left: 0, top: 0, right: 0, bottom: 0 };
const MAX_SCALE = 4;
const isPageSetting = (key: string): boolean => /^(page|run)\./.test(key);

/** The settings of a view that belong to the page and the machine, and not to what is shown. */
export const pageSettings = (settings: ViewState["settings"]): ViewState["settings"] =>
  Object.fromEntries(Object.entries(settings).filter(([key]) => isPageSetting(key)));

/** The fields of a view that differ from the initial view. Layers of selected nodes follow from the mapping. */
export function viewChanges({ baseline: _, ...view }: ViewState): Step["view"] {
  const settings = Object.fromEntries(Object.entries(view.settings).filter(([key]) => !isPageSetting(key)));
  const derived = view.anchor === "node" ? { layers: [], others: [] } : {};
  const initial = START as unknown as Record<string, unknown>;
  return Object.fromEntries(
    Object.entries({ ...view, settings, ...derived }).filter(
      ([key, value]) => JSON.stringify(value) !== JSON.stringify(initial[key]),
    ),
  );
}

/** The view of a step; variants and page settings are those of the current view. */
export function viewOfStep(step: Step, { variant, compared, baseline, settings }: ViewState): ViewState {
  const view = { ...START, ...(step.view as Partial<ViewState>) };
  return { ...view, variant, compared, baseline, settings: { ...view.settings, ...pageSettings(settings) } };
}

/** The presentation mode and its steps: views that are recorded, ordered and played as slides. */
export class Presentation {
  readonly on: Signal<boolean> = signal(false);
  readonly listing: Signal<boolean> = signal(false);
  readonly steps: ReadonlySignal<readonly Step[]>;
  readonly at: Signal<number> = signal(-1);
  /** The sentence of the current step, and what of it is missing here. */
  readonly caption: ReadonlySignal<string>;
  readonly #context: PresentationContext;
  readonly #publish: (steps: Step[]) => void;
  readonly #steps: Signal<Step[] | undefined>;
  #cancelPlacing: () => void = () => {};

  constructor(
    context: PresentationContext,
    steps: Signal<Step[] | undefined>,
    publish: (steps: Step[]) => void,
  ) {
    this.#context = context;
    this.#publish = publish;
    this.#steps = steps;
    this.steps = computed(() => steps.value ?? []);
    this.caption = computed(() => {
      const step = this.steps.value[this.at.value];
      const { selection = [] } = (step?.view ?? {}) as Partial<ViewState>;
      const { study } = context;
      const node = study.source.value && selection.find((id) => !study.box("node", id));
      const missing = (step && this.#missingVariant(step)) || node;
      return step && missing
        ? `${step.words} (${missing} is not ${context.saved ? "in this report" : "here"})`.trim()
        : (step?.words ?? "");
    });
    context.end.addEventListener("abort", () => this.#cancelPlacing());
  }

  /** Begins with the step that was played last, or with the first; or ends. */
  toggle(): void {
    this.on.value = !this.on.peek();
    this.listing.value = false;
    if (this.on.peek()) this.play(Math.max(0, this.at.peek()));
  }

  record(words: string): void {
    const { study, paneSet } = this.#context;
    const places = Object.fromEntries(
      paneSet.sides.peek().flatMap((side) => {
        const place = paneSet.viewOf(side);
        return place ? [[side, place]] : [];
      }),
    );
    this.change([...this.steps.peek(), { words, view: viewChanges(study.view.peek()), places }]);
    this.at.value = this.steps.peek().length - 1;
  }

  change(steps: readonly Step[]): void {
    this.#steps.value = [...steps];
    this.at.value = Math.min(this.at.peek(), steps.length - 1);
    this.#publish([...steps]);
  }

  play(at: number): void {
    const { study, send } = this.#context;
    const step = this.steps.peek()[at];
    if (!step) return;
    this.at.value = at;
    study.focus.value = null;
    const view = study.view.peek();
    const next = viewOfStep(step, view);
    const missing = this.#missingVariant(step) !== "";
    if (next.anchor === "node") {
      next.layers = study.across("node", "layer", next.selection);
      next.others = study.across("node", "other", next.selection);
      // Layers of a missing engine are none of the one on screen.
    } else if (missing) Object.assign(next, { layers: [], others: [] });
    study.change(next);
    if (missing) return;
    const { variant = view.variant, compared = "" } = step.view as Partial<ViewState>;
    if (variant !== view.variant) send.call(this.#context, { type: "show", variant });
    if (compared !== view.compared) send.call(this.#context, { type: "compare", variant: compared });
    this.#place(step, variant, compared);
  }

  /** Keys of a presentation; a presenter's remote sends PageUp and PageDown. */
  key(key: string): boolean {
    const at = this.at.peek();
    const last = this.steps.peek().length - 1;
    const [next, previous] = [at + 1, at - 1];
    const to = {
      ArrowRight: next,
      PageDown: next,
      ArrowLeft: previous,
      PageUp: previous,
      Home: 0,
      End: last,
    }[key];
    if (to === undefined || last < 0) return false;
    this.play(to);
    return true;
  }

  #missingVariant({ view }: Step): string {
    const { variant = "", compared = "" } = view as Partial<ViewState>;
    const available = new Set(this.#context.chips.value.map(({ id }) => id));
    return [variant, compared].find((id) => id && !available.has(id)) ?? "";
  }

  /** Moves the graphs to their recorded places, once the variants of the step are drawn. */
  #place({ places }: Step, variant: string, compared: string): void {
    const { study, paneSet } = this.#context;
    this.#cancelPlacing();
    let frame = 0;
    const fit = (side: Side): void => {
      const [x, y, width, height] = places[side] ?? [];
      const stage = paneSet.stages[side];
      if (x !== undefined && y !== undefined && width && height)
        stage?.camera.fit({ x, y, width, height }, NO_INSETS, { largest: MAX_SCALE, glide: true });
      else if (study.selected(side).length) paneSet.zoomToSelection(side);
      else stage?.fit();
    };
    const stop = effect(() => {
      const ready =
        study.ready.value &&
        (study.engine.value?.variant ?? "") === variant &&
        (!compared || study.other.value?.variant === compared);
      cancelAnimationFrame(frame);
      // New panes have their size in the next frame, and are drawn in the one after it.
      if (ready)
        frame = requestAnimationFrame(() => {
          frame = requestAnimationFrame(() => {
            this.#cancelPlacing();
            SIDES.forEach(fit);
          });
        });
    });
    this.#cancelPlacing = () => {
      stop();
      cancelAnimationFrame(frame);
    };
  }
}
