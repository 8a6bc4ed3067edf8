import type { AnyModel } from "@anywidget/types";
import { computed, effect, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { Bench } from "./bench";
import type { BuildState, Chip, Choice, Controls, Failure, GestureType, Side, Status } from "./contract";
import { EVIDENCE_WORDS, plural, REASON_WORDS, shorten } from "./format";
import { loadPlotly, type Plotly } from "./plotly";
import { spoken } from "./spoken";
import { Study } from "./state";
import { type ExplorerTraits, type Figure, follower, gesture, publish } from "./traits";

/** The largest file that a browser hands to a kernel: Jupyter limits a message to 10 MiB. */
const LARGEST_DROP = 9 * 2 ** 20;

/** Everything the Explorer shows and does: the study on its bench, the choice, the variants, and the gestures. */
export class Lab {
  readonly study: Study;
  readonly bench: Bench;
  readonly end: AbortSignal;
  readonly controls: Signal<Controls>;
  readonly choice: Signal<Choice>;
  readonly chips: Signal<Chip[]>;
  readonly build: Signal<BuildState>;
  readonly status: Signal<Status[]>;
  readonly charts: Signal<Record<string, Figure>>;
  readonly notice: Signal<string>;
  readonly height: Signal<number>;
  /** This is a report: what needs a kernel is left out. */
  readonly saved: boolean;
  readonly alive: Signal<boolean> = signal(true);
  readonly help: Signal<boolean> = signal(false);
  /** The model that was asked for, until the kernel has it or has failed. */
  readonly opening: Signal<string> = signal("");
  readonly width: Signal<number> = signal(1200);
  /** A failure that the browser found itself, or that a red chip tells of; it stands before the kernel's. */
  readonly ownFailure: Signal<Failure | null> = signal(null);
  readonly failure: ReadonlySignal<Failure | null>;
  /** Whether the chosen combination is another than the variant on screen. */
  readonly stale: ReadonlySignal<boolean>;
  /** One sentence about the selection, for the live region and the status line. */
  readonly sentence: ReadonlySignal<string>;
  readonly #model: AnyModel<ExplorerTraits>;
  #plotly: Promise<Plotly> | null = null;

  constructor(model: AnyModel<ExplorerTraits>, root: HTMLElement, end: AbortSignal) {
    this.#model = model;
    this.end = end;
    this.saved = model.get("saved") === true;
    this.study = new Study(model as unknown as ConstructorParameters<typeof Study>[0], end);
    this.bench = new Bench(this.study, root, end);
    const trait = follower(model, end, (error) => this.study.fail(error));
    this.controls = trait("controls");
    this.choice = trait("choice");
    this.chips = trait("chips");
    this.build = trait("build");
    this.status = trait("status");
    this.charts = trait("charts");
    this.notice = trait("notice");
    this.height = trait("height");
    const told = trait("failure");
    this.failure = computed(() => this.ownFailure.value ?? told.value);
    this.stale = computed(() => {
      if (this.saved) return false;
      const shown = this.study.engine.value?.variant;
      const chip = this.chips.value.find(({ id }) => id === shown);
      if (!chip) return false;
      const { precision, calibrator, target } = this.choice.value;
      return chip.label !== (calibrator ? `${precision}·${calibrator}` : precision) || chip.target !== target;
    });
    this.sentence = computed(() => spoken(this.study));
    this.#forgetOpened(told);
  }

  /** Plotly, which the kernel sends when a chart is first drawn. */
  plotly(): Promise<Plotly> {
    this.#plotly ??= loadPlotly(this.#model, this.end);
    return this.#plotly;
  }

  choose(part: Partial<Choice>): void {
    const next = { ...this.choice.value, ...part };
    this.choice.value = next;
    publish(this.#model, "choice", next);
  }

  /** Builds the choice. It travels along, because Jupyter holds trait changes back while the kernel is busy. */
  run(): void {
    this.send("build", JSON.stringify(this.choice.value));
  }

  open(model: string): void {
    this.opening.value = model;
    this.send("open", model);
  }

  /** What was to be opened is on screen, or failed, or was cancelled. */
  #forgetOpened(failure: ReadonlySignal<Failure | null>): void {
    let model = this.choice.peek().model;
    let running = this.build.peek().running;
    let failed = failure.peek();
    const stop = effect(() => {
      const now = {
        model: this.choice.value.model,
        running: this.build.value.running,
        failed: failure.value,
      };
      if (now.model !== model || (running && !now.running) || (now.failed && now.failed !== failed))
        this.opening.value = "";
      ({ model, running, failed } = now);
    });
    this.end.addEventListener("abort", stop);
  }

  send(type: GestureType, value = ""): void {
    gesture(this.#model, { type, value });
  }

  resize(height: number, done: boolean): void {
    this.height.value = height;
    if (done) publish(this.#model, "height", height);
  }

  async drop(file: File): Promise<void> {
    if (file.size > LARGEST_DROP) {
      this.ownFailure.value = {
        kind: "Too large to drop",
        message:
          `"${shorten(file.name, 80)}" has ${Math.ceil(file.size / 2 ** 20)} MiB, and a browser can hand 9 MiB to ` +
          "the kernel. Open the model list and type the file's path instead.",
        details: "",
      };
      return;
    }
    try {
      gesture(this.#model, { type: "drop", value: file.name }, [await file.arrayBuffer()]);
    } catch (error) {
      this.study.fail(error);
    }
  }

  toggleHelp(): void {
    this.help.value = !this.help.value;
  }

  dismiss(): void {
    if (this.ownFailure.value) this.ownFailure.value = null;
    else this.send("dismiss");
  }

  /** Why a node has no layer, or on what evidence it has one. */
  evidenceWords(node: string, layer: string): string {
    const evidence = this.study.links.value.evidence(node, layer);
    return evidence ? EVIDENCE_WORDS[evidence] : "";
  }

  /** How many nodes have no layer, by reason. */
  missingWords(): string[] {
    const counts = new Map<string, number>();
    for (const { reason } of this.study.links.value.reasons)
      counts.set(reason, (counts.get(reason) ?? 0) + 1);
    return [...counts].map(
      ([reason, count]) => `${plural(count, "node")}: ${REASON_WORDS[reason as keyof typeof REASON_WORDS]}`,
    );
  }

  jump(side: Side, id: string): void {
    this.study.select(side, id, { reveal: true });
  }
}
