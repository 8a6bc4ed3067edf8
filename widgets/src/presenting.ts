import { computed, effect, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { Command, Side, Step, ViewState } from "./contract";
import type { Insets, Rect } from "./draw/camera";
import type { PaneSet } from "./paneset";
import { SIDES, START, type Study } from "./state";

/** Who presents: what the Explorer has that a step is made of. */
export interface Presenter {
  study: Study;
  paneSet: PaneSet;
  end: AbortSignal;
  chips: Signal<readonly { id: string; label: string }[]>;
  /** A report: nothing that it lacks can be built. */
  saved: boolean;
  send(command: Command): void;
}

/** Graphs are so much larger for a room than for one reader. */
export const LARGER = 1.3;
/** What belongs to the page and the machine, and not to what is shown. */
const OWN = /^(page|run)\./;
export const WHOLE: Insets = { left: 0, top: 0, right: 0, bottom: 0 };
const LARGEST = 4;

/** What of the settings of a view belongs to the page and the machine. */
export const own = (settings: ViewState["settings"]): ViewState["settings"] =>
  Object.fromEntries(Object.entries(settings).filter(([key]) => OWN.test(key)));

/** Does something once all is drawn, with the panes at the size that they have then. Returns what ends the waiting. */
export function afterDrawn(there: ReadonlySignal<boolean>, then: () => void): () => void {
  let frame = 0;
  const stop = effect(() => {
    if (!there.value) return;
    // Panes that came or went have their size in the next frame, and draw themselves in the one after it.
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      frame = requestAnimationFrame(() => {
        end();
        then();
      });
    });
  });
  const end = (): void => {
    stop();
    cancelAnimationFrame(frame);
  };
  return end;
}

/** What of a view is not as at first, so that the notebook stays small; layers of picked nodes follow from them. */
export function recorded(view: ViewState): Step["view"] {
  const { baseline: _, ...shown } = view;
  const settings = Object.fromEntries(Object.entries(view.settings).filter(([key]) => !OWN.test(key)));
  const follows = view.anchor === "node" ? { layers: [], others: [] } : {};
  const first = START as unknown as Record<string, unknown>;
  return Object.fromEntries(
    Object.entries({ ...shown, settings, ...follows }).filter(
      ([key, value]) => JSON.stringify(value) !== JSON.stringify(first[key]),
    ),
  );
}

/** The view of a step, in which the variants, and what belongs to the page, are those of now. */
export function replayed(step: Step, now: ViewState): ViewState {
  const { variant, compared, baseline } = now;
  const view = { ...START, ...(step.view as Partial<ViewState>) };
  return { ...view, variant, compared, baseline, settings: { ...view.settings, ...own(now.settings) } };
}

/** A list in which what stood at one place stands at another. */
export function moved<T>(list: readonly T[], from: number, to: number): T[] {
  const rest = list.filter((_, at) => at !== from);
  rest.splice(to, 0, list[from]!);
  return rest;
}

/** A value of JSON as Python writes it. */
export function python(value: unknown): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  const pairs = Object.entries(value as object);
  return `{${pairs.map(([key, one]) => `${JSON.stringify(key)}: ${python(one)}`).join(", ")}}`;
}

/** The mode for a room, and its steps: a presenter's list of views that is recorded, put in order and played. */
export class Presenting {
  readonly on: Signal<boolean> = signal(false);
  /** The list of steps is open. */
  readonly listing: Signal<boolean> = signal(false);
  readonly steps: ReadonlySignal<readonly Step[]>;
  /** The step that was played last; -1 before the first. */
  readonly at: Signal<number> = signal(-1);
  /** The sentence of the step on screen, or why it cannot be shown; empty without one. */
  readonly words: ReadonlySignal<string>;
  readonly #presenter: Presenter;
  readonly #publish: (steps: Step[]) => void;
  readonly #steps: Signal<Step[] | undefined>;
  /** How large each graph was for one reader. */
  readonly #scales = new Map<Side, number>();
  /** The step to begin with: the first, or the one that was shown last. */
  #first = 0;
  /** What stops waiting for the picture of a step. */
  #waiting: () => void = () => {};

  constructor(presenter: Presenter, steps: Signal<Step[] | undefined>, publish: (steps: Step[]) => void) {
    this.#presenter = presenter;
    this.#publish = publish;
    this.#steps = steps;
    this.steps = computed(() => steps.value ?? []);
    this.words = computed(() => {
      const step = this.steps.value[this.at.value];
      const lost = step && (this.#missing(step) || this.#gone(step));
      const where = presenter.saved ? "in this report" : step && this.#missing(step) ? "built here" : "here";
      return lost ? `${step.words} (${lost} is not ${where})`.trim() : (step?.words ?? "");
    });
    presenter.end.addEventListener("abort", () => this.#waiting());
  }

  /** Begins with the first step, or with the one that was shown last; or ends. */
  toggle(): void {
    const { stages } = this.#presenter.paneSet;
    this.on.value = !this.on.peek();
    this.listing.value = false;
    for (const side of SIDES) {
      const stage = stages[side];
      if (!stage) continue;
      const { scale } = stage.camera;
      // Steps move the graphs; what stands at the top stays there, since panes lose of their height at the bottom.
      const wanted = this.on.peek() ? scale * LARGER : (this.#scales.get(side) ?? scale / LARGER);
      if (this.on.peek()) this.#scales.set(side, scale);
      stage.zoom(wanted / scale, 0);
    }
    if (this.on.peek() && this.steps.peek().length)
      this.play(Math.min(this.#first, this.steps.peek().length - 1));
  }

  /** Adds what is on screen. */
  record(words: string): void {
    const { study, paneSet } = this.#presenter;
    const places: Step["places"] = {};
    for (const side of paneSet.sides.peek()) {
      const place = paneSet.viewOf(side);
      if (place) places[side] = place;
    }
    this.change([...this.steps.peek(), { words, view: recorded(study.view.peek()), places }]);
    this.at.value = this.steps.peek().length - 1;
  }

  change(steps: readonly Step[]): void {
    this.#steps.value = [...steps];
    this.at.value = Math.min(this.at.peek(), steps.length - 1);
    this.#publish([...steps]);
  }

  /** Shows a step; before the first and after the last is none. */
  play(at: number): void {
    const { study, paneSet, send } = this.#presenter;
    const step = this.steps.peek()[at];
    if (!step) return;
    this.at.value = this.#first = at;
    study.focus.value = null;
    paneSet.morphing.value = false;
    const now = study.view.peek();
    const next = replayed(step, now);
    const follows = (side: Side): string[] => study.across("node", side, next.selection);
    const lost = this.#missing(step) !== "";
    // Layers of an engine that is not there are none of the one on screen.
    if (lost && next.anchor !== "node") Object.assign(next, { layers: [], others: [] });
    study.change(
      next.anchor === "node" ? { ...next, layers: follows("layer"), others: follows("other") } : next,
    );
    if (lost) return;
    const { variant = now.variant, compared = "" } = step.view as Partial<ViewState>;
    if (variant !== now.variant) send.call(this.#presenter, { type: "show", variant });
    if (compared !== now.compared) send.call(this.#presenter, { type: "compare", variant: compared });
    this.#place(step, variant, compared);
  }

  /** Keys of a presentation; a presenter's remote sends those that turn pages. */
  key(key: string): boolean {
    const last = this.steps.peek().length - 1;
    const at = this.at.peek();
    const to = {
      ArrowRight: at + 1,
      PageDown: at + 1,
      ArrowLeft: at - 1,
      PageUp: at - 1,
      Home: 0,
      End: last,
    }[key];
    if (to === undefined || last < 0) return false;
    this.play(to);
    return true;
  }

  /** The variant of a step that is not there; empty where all are. */
  #missing({ view }: Step): string {
    const { variant = "", compared = "" } = view as Partial<ViewState>;
    const there = new Set(this.#presenter.chips.value.map(({ id }) => id));
    return [variant, compared].find((id) => id && !there.has(id)) ?? "";
  }

  /** The first selected node of a step that the model does not have; empty where it has all. */
  #gone({ view }: Step): string {
    const { selection = [] } = view as Partial<ViewState>;
    const { study } = this.#presenter;
    return (study.source.value && selection.find((id) => !study.box("node", id))) ?? "";
  }

  /** Moves the graphs to where they were recorded, once all that the step shows is drawn. */
  #place({ places }: Step, variant: string, compared: string): void {
    const { study, paneSet } = this.#presenter;
    this.#waiting();
    const there = computed(
      () =>
        study.ready.value &&
        (study.engine.value?.variant ?? "") === variant &&
        (!compared || study.other.value?.variant === compared),
    );
    this.#waiting = afterDrawn(there, () => {
      for (const side of SIDES) {
        const [rect, stage] = [rectOf(places[side]), paneSet.stages[side]];
        if (rect) stage?.camera.fit(rect, WHOLE, { largest: LARGEST, glide: true });
        // Who wrote the step in a cell named no place: the selection is shown, or else the whole graph.
        else if (study.selected(side).length) paneSet.zoomToSelection(side);
        else stage?.fit();
      }
    });
  }
}

function rectOf(place: number[] | undefined): Rect | null {
  const [x, y, width, height] = place ?? [];
  return x === undefined || y === undefined || !width || !height ? null : { x, y, width, height };
}
