import type { ExplorerTraits } from "../core/channel";
import type { AskPanel, Command, Panel, Reply, Saved, SavedVariant } from "../core/contract";
import type { Term } from "../core/glossary";
import { fromBase64 } from "../core/payload";

type Listener = (...told: unknown[]) => void;

const hasContent = ({ facts, rows, figures }: Panel): boolean =>
  facts.length > 0 || rows.length > 0 || figures.length > 0;

/**
 * The widget model of a report: what the kernel would hold, from the snapshot in the file. It answers the commands
 * that need no kernel, another variant and one to compare with; the views leave out what it cannot do.
 */
export class StaticModel {
  readonly #saved: Saved;
  readonly #plotly: Uint8Array<ArrayBuffer>;
  readonly #state: ExplorerTraits;
  readonly #listeners = new Map<string, Set<Listener>>();

  constructor(saved: Saved, plotly: Uint8Array<ArrayBuffer>) {
    this.#saved = saved;
    this.#plotly = plotly;
    this.#state = {
      saved: Object.fromEntries(
        saved.variants.map(({ id, panels }) => [id, panels.filter(hasContent).map(({ name }) => name)]),
      ),
      source: fromBase64(saved.source),
      engine: new Uint8Array(),
      other: new Uint8Array(),
      view: saved.view,
      height: 760,
      controls: {
        models: [],
        precisions: [],
        calibrators: [],
        targets: [],
        compilers: [],
        treatments: [],
        sizes: [],
      },
      choice: {
        model: saved.model,
        precision: "",
        calibrator: "",
        target: "",
        backend: "",
        pins: [],
        weights: "channel",
        sparsity: [],
        treatments: [],
        sizes: [],
      },
      chips: saved.chips,
      build: { running: false, phase: "", fraction: null, elapsed: 0 },
      status: [],
      data: { source: "", random: false, inputs: [] },
      failure: null,
      charts: {},
      terms: saved.terms as unknown as readonly Term[],
      notice: "",
      steps: saved.steps,
      inspection: null,
      engine_answer: new Uint8Array(),
      build_answer: new Uint8Array(),
      calibration_answer: new Uint8Array(),
      findings_answer: new Uint8Array(),
      stamp: 0,
    };
    this.#answers(saved.answers);
    this.#show(saved.view.variant);
  }

  get<K extends keyof ExplorerTraits>(name: K): ExplorerTraits[K] {
    return this.#state[name];
  }

  set<K extends keyof ExplorerTraits>(name: K, value: ExplorerTraits[K]): void {
    this.#state[name] = value;
    this.#tell(`change:${name}`);
  }

  /** A report does not change: what was set lasts as long as the page. */
  save_changes(): void {}

  on(event: string, listener: Listener): void {
    this.#listeners.set(event, (this.#listeners.get(event) ?? new Set()).add(listener));
  }

  off(event: string, listener: Listener): void {
    this.#listeners.get(event)?.delete(listener);
  }

  send(command: Command): void {
    if (command.type === "show") this.#show(command.variant);
    if (command.type === "panel") this.#answer(command);
    if (command.type === "plotly") {
      const { buffer, byteOffset, byteLength } = this.#plotly;
      this.#later({ type: "plotly" }, new DataView(buffer, byteOffset, byteLength));
    }
    if (command.type === "compare") {
      const variant = this.#variant(command.variant);
      this.set("other", variant ? fromBase64(variant.engine) : new Uint8Array());
      this.set("view", { ...this.#state.view, compared: variant?.id ?? "" });
    }
  }

  #show(id: string): void {
    const variant = this.#variant(id);
    if (!variant) return;
    this.set("engine", fromBase64(variant.engine));
    this.set("charts", variant.charts as ExplorerTraits["charts"]);
    this.#answers(variant.answers);
    this.set("view", { ...this.#state.view, variant: id });
    this.set("status", variant.status);
  }

  #answers(answers: Record<string, string>): void {
    for (const [name, packed] of Object.entries(answers))
      this.set(`${name}_answer` as "engine_answer", fromBase64(packed));
  }

  #variant(id: string): SavedVariant | undefined {
    return this.#saved.variants.find((other) => other.id === id);
  }

  /** Panels are as they were at first, whatever a step of a presentation has set. */
  #answer({ id, panel: name, variant }: AskPanel): void {
    const panel = this.#variant(variant)?.panels.find((other) => other.name === name);
    if (panel) this.#later({ type: "answer", id, panel });
  }

  #later(reply: Reply, ...buffers: DataView[]): void {
    queueMicrotask(() => this.#tell("msg:custom", reply, buffers));
  }

  #tell(event: string, ...words: unknown[]): void {
    for (const listener of [...(this.#listeners.get(event) ?? [])]) listener(...words);
  }
}
