import type { Gesture, Saved } from "./contract";
import { fromBase64 } from "./payload";
import type { ExplorerTraits } from "./traits";

/**
 * The widget model of a report: what the kernel would hold, from the snapshot in the file. It answers the gestures
 * that need no kernel, another variant and one to compare with; the views leave out what it cannot do.
 */
export class StaticModel {
  readonly #saved: Saved;
  readonly #state: ExplorerTraits;
  readonly #listeners = new Map<string, Set<() => void>>();

  constructor(saved: Saved) {
    this.#saved = saved;
    this.#state = {
      saved: true,
      source: fromBase64(saved.source),
      engine: new Uint8Array(),
      other: new Uint8Array(),
      view: saved.view,
      height: 760,
      controls: { models: [], precisions: [], calibrators: [], targets: [] },
      choice: {
        model: saved.model,
        precision: "",
        calibrator: "",
        target: "",
        backend: "",
        pins: [],
        weights: "channel",
        sparsity: [],
      },
      chips: saved.chips,
      build: { running: false, phase: "", fraction: null, since: 0 },
      status: [],
      failure: null,
      charts: {},
      notice: "",
      inspection: null,
      calibration: fromBase64(saved.calibration),
      findings: { items: [], note: "" },
      story: new Uint8Array(),
    };
    this.#show(saved.view.variant);
  }

  get<K extends keyof ExplorerTraits>(name: K): ExplorerTraits[K] {
    return this.#state[name];
  }

  set<K extends keyof ExplorerTraits>(name: K, value: ExplorerTraits[K]): void {
    this.#state[name] = value;
    for (const listener of [...(this.#listeners.get(`change:${name}`) ?? [])]) listener();
  }

  /** A report does not change: what was set lasts as long as the page. */
  save_changes(): void {}

  on(event: string, listener: () => void): void {
    this.#listeners.set(event, (this.#listeners.get(event) ?? new Set()).add(listener));
  }

  off(event: string, listener: () => void): void {
    this.#listeners.get(event)?.delete(listener);
  }

  send({ type, value }: Gesture): void {
    if (type === "show") this.#show(value);
    if (type === "compare") {
      const variant = this.#saved.variants.find(({ id }) => id === value);
      this.set("other", variant ? fromBase64(variant.engine) : new Uint8Array());
      this.set("view", { ...this.#state.view, compared: variant?.id ?? "" });
    }
  }

  #show(id: string): void {
    const variant = this.#saved.variants.find((other) => other.id === id);
    if (!variant) return;
    this.set("engine", fromBase64(variant.engine));
    this.set("story", fromBase64(variant.story));
    this.set("view", { ...this.#state.view, variant: id });
    this.set("status", variant.status);
  }
}
