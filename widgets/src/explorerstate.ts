import type { AnyModel } from "@anywidget/types";
import { batch, computed, effect, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { Asking, type Question } from "./asking";
import { differs, prunable, repinned, repruned } from "./choice";
import {
  type Box,
  type BuildState,
  type Calibrated,
  type Chip,
  type Choice,
  type Command,
  type Controls,
  type DataState,
  type Failure,
  type Findings,
  type Inspection,
  type Link,
  type Panel,
  type Pin,
  type Reply,
  type SaveFile,
  type Side,
  type StageStatus,
  type Status,
  type Summary,
  TABS,
  type Work,
} from "./contract";
import { packedFiles, refused } from "./dropped";
import { EVIDENCE_WORDS, NO_MODEL, plural, REASON_WORDS } from "./format";
import { Guide } from "./guide";
import { LATE_TABS, Late } from "./late";
import { engineSide } from "./overlay";
import { chosenIn, drawnHere, type Page, pageOf, usable } from "./panels";
import { PaneSet } from "./paneset";
import type { Surroundings } from "./parts";
import { loadPlotly, type Plotly } from "./plotly";
import { LARGER, Presenting } from "./presenting";
import { gone, heard } from "./reach";
import { Room } from "./room";
import { spoken } from "./spoken";
import { Study } from "./state";
import { stranded } from "./stranded";
import { ask, type ExplorerTraits, follower, type Plotted, publish } from "./traits";
import { unfold } from "./ui/folding";
import { saveFile } from "./ui/save";

/** Nodes that the selection only passes on its way are not measured. */
const INSPECT_MS = 180;

/** From this width on the accuracy chart stands beside that of the layers. */
const SIDE_BY_SIDE = 900;

/** Everything the Explorer shows and does: the study in its panes, the choice, the variants, and the commands. */
export class ExplorerState {
  readonly study: Study;
  readonly paneSet: PaneSet;
  readonly end: AbortSignal;
  readonly controls: Signal<Controls>;
  readonly choice: Signal<Choice>;
  readonly chips: Signal<Chip[]>;
  readonly build: Signal<BuildState>;
  readonly status: Signal<Status[]>;
  /** What the study runs on. */
  readonly data: Signal<DataState>;
  readonly charts: Signal<Record<string, Plotted>>;
  readonly notice: Signal<string>;
  readonly height: Signal<number>;
  /** The height in pixels; one that nobody chose is what the window has room for. */
  readonly tall: ReadonlySignal<number>;
  readonly room: Room;
  readonly presenting: Presenting;
  readonly guide: Guide;
  readonly inspection: Signal<Inspection | null>;
  /** What calibration has seen; null while nothing was observed. */
  readonly calibration: Signal<Calibrated | null> = signal(null);
  /** What the layers of the engine on screen are; null until that is known. */
  readonly summary: Signal<Summary | null> = signal(null);
  readonly findings: Signal<Findings | null> = signal(null);
  /** The calibrated value that was picked from its table. */
  readonly picked: Signal<string> = signal("");
  /** The pins before they were changed, until the choice is built. */
  readonly pinsBefore: Signal<Pin[] | null> = signal(null);
  /** The treatments before the last change to them, for undo; null until the next choice is built. */
  readonly treatedBefore: Signal<string[] | null> = signal(null);
  /** The variant whose commands are shown. */
  readonly elsewhere: Signal<string> = signal("");
  /** The address of a Netron that the kernel has started. */
  readonly link: Signal<string> = signal("");
  /** This is a report: what needs a kernel is left out. */
  readonly saved: boolean;
  /** Whether the kernel hears what it is asked. */
  readonly alive: ReadonlySignal<boolean> = computed(() => heard(this.study.reach.value));
  /** Whether something was asked of a kernel that is busy with something else. */
  readonly waits: ReadonlySignal<boolean> = computed(
    () => this.study.reach.value === "busy" && this.#unheard.value.size > 0,
  );
  /** What the kernel was doing when it went. */
  readonly lost: Signal<string> = signal("");
  readonly help: Signal<boolean> = signal(false);
  /** The model that was asked for, until the kernel has it or has failed. */
  readonly opening: Signal<string> = signal("");
  readonly width: Signal<number> = signal(1200);
  /** A failure that the browser found itself, or that a red chip tells of; it stands before the kernel's. */
  readonly ownFailure: Signal<Failure | null> = signal(null);
  readonly failure: ReadonlySignal<Failure | null>;
  /** Whether the card stands that names sizes, where nothing failed. */
  readonly sizing: Signal<boolean> = signal(false);
  /** Whether a card stands over the panes: of a failure, or of sizes. */
  readonly told: ReadonlySignal<boolean> = computed(() => this.sizing.value || this.failure.value !== null);
  /** Whether the chosen combination is another than the variant on screen. */
  readonly stale: ReadonlySignal<boolean>;
  /** One sentence about the selection, for the live region and the status line. */
  readonly sentence: ReadonlySignal<string>;
  /** The node whose tensors the panel shows: the only one that is selected. */
  readonly inspected: ReadonlySignal<string> = computed(() => {
    const [only, ...more] = this.study.view.value.anchor === "node" ? this.selectedNodes() : [];
    return only !== undefined && !more.length ? only : "";
  });
  /** The tabs, and the panel in front. */
  readonly page: ReadonlySignal<Page>;
  /** There is room for the chart of the errors beside that of the layers. */
  readonly roomy: ReadonlySignal<boolean>;
  readonly asking: Asking;
  /** The code of tabs, which comes when one is opened, or when nothing is left to draw. */
  readonly late: Late;
  readonly #model: AnyModel<ExplorerTraits>;
  readonly #told: Signal<Failure | null>;
  /** What was asked and not taken up yet. */
  readonly #unheard: Signal<ReadonlySet<Command>> = signal(new Set());
  #plotly: Promise<Plotly> | null = null;
  /** The pins that were chosen here, as text. */
  #pinned = "";
  #treated = "";

  constructor(
    model: AnyModel<ExplorerTraits>,
    root: HTMLElement,
    end: AbortSignal,
    part: Surroundings["part"],
  ) {
    this.#model = model;
    this.end = end;
    this.late = new Late(part);
    const saved = model.get("saved");
    this.saved = saved !== undefined;
    this.study = new Study(model as unknown as ConstructorParameters<typeof Study>[0], end);
    this.paneSet = new PaneSet(this.study, root, end);
    const trait = follower(model, end, (error) => this.study.fail(error));
    this.controls = trait("controls");
    this.choice = trait("choice");
    this.chips = trait("chips");
    this.build = trait("build");
    this.status = trait("status");
    this.data = trait("data");
    this.charts = trait("charts");
    this.notice = trait("notice");
    this.height = trait("height");
    this.room = new Room(root, end, this.width);
    this.presenting = new Presenting(this, trait("steps"), (steps) => publish(model, "steps", steps));
    this.tall = computed(() => {
      const { full, window: whole, fitting } = this.room;
      return full.value ? whole.value : this.height.value || fitting.value;
    });
    this.inspection = trait("inspection");
    const undecoded = [
      this.study.decode(trait("engine_answer"), this.summary),
      this.study.decode(trait("build_answer"), this.study.story),
      this.study.decode(trait("calibration_answer"), this.calibration),
      this.study.decode(trait("findings_answer"), this.findings),
    ];
    this.#told = trait("failure");
    this.failure = computed(() => this.ownFailure.value ?? this.#told.value);
    this.stale = computed(() => {
      if (this.saved) return false;
      const shown = this.study.engine.value?.variant;
      const chip = this.chips.value.find(({ id }) => id === shown);
      return chip !== undefined && differs(this.choice.value, chip);
    });
    this.sentence = computed(() => spoken(this.study, this.paneSet.reading.value));
    this.roomy = computed(() => this.width.value >= SIDE_BY_SIDE * (this.presenting.on.value ? LARGER : 1));
    this.page = computed(() => {
      const { engine, view } = this.study;
      const offered = saved ? saved[view.value.variant] : engine.value?.panels;
      return pageOf(view.value, {
        offered: offered ?? [],
        narrow: !this.roomy.value,
        live: !this.saved,
        calibrated: this.calibration.value !== null,
      });
    });
    // A kernel that is busy or gone sends no code: what tabs need is there before one is opened.
    const ahead = effect(() => {
      if (this.study.pictured.value) for (const name of LATE_TABS) this.late.ask(name);
    });
    // The library of the charts comes when the first engine is drawn: before, it would keep that one waiting.
    // In a report nothing waits for it: it is unpacked while the graphs are laid out.
    const chart = effect(() => {
      const drawn = this.study.pictured.value && this.study.view.value.variant !== "";
      if (drawn || this.saved) this.plotly().catch(() => {});
    });
    const name = effect(() => {
      this.study.titles.value = Object.fromEntries(this.chips.value.map(({ id, label }) => [id, label]));
    });
    this.guide = new Guide(this);
    this.asking = this.#asking(trait("stamp"));
    // The kernel waits with what follows a large engine until that is drawn.
    const tell = effect(() => {
      if (this.study.pictured.value && !this.study.ready.value && !saved) this.send({ type: "pictured" });
    });
    end.addEventListener("abort", tell);
    this.#forgetOpened(this.#told);
    this.#strand();
    this.#inspectSelected();
    // What the kernel pins or treats, as it shows another variant, is not undone here.
    const forget = effect(() => {
      if (JSON.stringify(this.choice.value.pins) !== this.#pinned) this.pinsBefore.value = null;
      if (JSON.stringify(this.choice.value.treatments) !== this.#treated) this.treatedBefore.value = null;
    });
    end.addEventListener("abort", () => {
      for (const dispose of [...undecoded, forget, name, chart, ahead]) dispose();
    });
    const hear = (reply: Reply, buffers: DataView[]): void => {
      if (reply.type === "answer") this.asking.take(reply.id, reply.panel);
      if (reply.type === "link") this.link.value = reply.address;
      if (reply.type === "file" && buffers[0])
        saveFile(reply.name, new Blob([buffers[0] as DataView<ArrayBuffer>]));
    };
    model.on("msg:custom", hear);
    end.addEventListener("abort", () => model.off("msg:custom", hear));
  }

  /** What follows the tab in front, the variant and the settings, and asks the kernel for the panel. */
  #asking(stamp: ReadonlySignal<number>): Asking {
    const { engine, source, view } = this.study;
    // As text, so that a selection, which makes a new view too, is no new question.
    const text = computed(() => {
      const { segment } = this.page.value;
      const variant = engine.value?.variant;
      if (!segment || drawnHere(segment) || !variant || !(this.saved || this.alive.value)) return "null";
      return JSON.stringify({ panel: segment, variant, settings: chosenIn(segment, view.value.settings) });
    });
    const question = computed((): Question | null => JSON.parse(text.value));
    // Panels tell of a second variant too, which need not be on screen.
    const occasion = computed(
      () => `${stamp.value} ${JSON.stringify([view.value.compared, view.value.baseline])}`,
    );
    const asking = new Asking(question, occasion, (asked) => this.send(asked), this.end);
    let model = source.peek();
    const stop = [
      effect(() => {
        if (this.failure.value) asking.giveUp();
      }),
      effect(() => {
        if (source.value !== model) asking.forget();
        model = source.value;
      }),
    ];
    this.end.addEventListener("abort", () => {
      for (const dispose of stop) dispose();
    });
    return asking;
  }

  /** Chooses something in a panel, or with a tab's name the panel that it shows. */
  set(key: string, value: string): void {
    const { settings } = this.study.view.peek();
    this.study.change({ settings: { ...settings, [key]: value } });
  }

  /** Starts the work behind a button of a panel, and shows the panel of the same tab that it fills. */
  work({ work, values }: Work, { name, variant }: Panel): void {
    const both = (panels: readonly string[]): boolean => panels.includes(name) && panels.includes(work);
    const filled = TABS.find(({ panels }) => both(panels));
    if (filled && work !== name) {
      const own = Object.entries(values).map(([key, value]) => [`${work}.${key}`, value]);
      const { settings } = this.study.view.peek();
      this.study.change({ settings: { ...settings, ...Object.fromEntries(own), [filled.name]: work } });
    }
    this.send({ type: "work", work, variant, values });
  }

  /** Selects what a point or a row of a panel stands for, out of any folded group. */
  follow(panel: Panel, key: string, add: boolean): void {
    const link = this.linkOf(panel, key);
    if (!link) return;
    const [node] = link.nodes;
    const [layer] = link.layers;
    if (node !== undefined) unfold(this.study, "node", node);
    if (layer !== undefined) unfold(this.study, "layer", layer);
    this.study.follow(link, add);
  }

  /** What a point or a row stands for in the panes at hand; nothing while the panel is of another variant. */
  linkOf(panel: Panel, key: string): Link | null {
    const link = panel.links[key];
    if (!link || panel.variant !== this.study.engine.value?.variant) return null;
    return usable(link, panel, this.study.view.value.compared);
  }

  /** Why the kernel cannot be asked for anything; empty where it can. */
  unusable(): string {
    if (this.saved) return "A saved report has no kernel: open the study in a notebook";
    if (gone(this.study.reach.value)) return "The kernel is gone: run the cells again";
    return this.alive.value ? "" : "No connection to the kernel: wait until it is back";
  }

  /** Why no work can be started now; empty where it can. */
  busy(): string {
    return this.unusable() || (this.build.value.running ? "Wait until the running work is done" : "");
  }

  /** Why nothing can be built; empty where it can. */
  unbuildable(): string {
    return this.unusable() || (this.study.modelless.value ? NO_MODEL : "");
  }

  /** Shows a variant in a third pane. */
  compare(variant: string): void {
    const { panes } = this.study.view.peek();
    if (!panes.includes("other")) this.study.change({ panes: [...panes, "other"] });
    this.send({ type: "compare", variant });
  }

  /** The selected boxes that are nodes, and not inputs or outputs of the graph. */
  selectedNodes(): string[] {
    return this.study.selected("node").filter((id) => this.study.box("node", id)?.kind === "node");
  }

  /** The selected boxes of the source graph. */
  selectedBoxes(): Box[] {
    return this.selectedNodes().map((id) => this.study.box("node", id)!);
  }

  /** Asks for the selected nodes as a model of their own. */
  extract(): void {
    this.send({ type: "extract", nodes: this.selectedNodes() });
  }

  /** Has the kernel measure the tensors of the node that is selected, each node once in a row. */
  #inspectSelected(): void {
    let timer = 0;
    const stop = effect(() => {
      const id = this.inspected.value;
      clearTimeout(timer);
      if (!id || this.unusable() || this.inspection.peek()?.node === id) return;
      timer = window.setTimeout(() => this.send({ type: "inspect", node: id }), INSPECT_MS);
    });
    this.end.addEventListener("abort", () => {
      clearTimeout(timer);
      stop();
    });
  }

  /** Plotly, which the kernel sends when a chart is first drawn. */
  plotly(): Promise<Plotly> {
    this.#plotly ??= loadPlotly(this.#model, this.end);
    return this.#plotly;
  }

  choose(part: Partial<Choice>): void {
    const next = { ...this.choice.value, ...part };
    this.#pinned = JSON.stringify(next.pins);
    this.#treated = JSON.stringify(next.treatments);
    this.choice.value = next;
    publish(this.#model, "choice", next);
  }

  /** Changes the pins, so that it can be undone. */
  pinAll(pins: Pin[]): void {
    this.pinsBefore.value = this.choice.value.pins;
    this.choose({ pins });
  }

  /** Changes the treatments, so that it can be undone. */
  treat(treatments: string[]): void {
    this.treatedBefore.value = this.choice.value.treatments;
    this.choose({ treatments });
  }

  /** Pins nodes to a precision; with none they are as the variant. */
  pin(boxes: readonly Box[], precision: string): void {
    this.pinAll(repinned(this.choice.value, boxes, precision));
  }

  /** Chooses whether the weights of nodes are pruned to 2:4. */
  prune(boxes: readonly Box[], on: boolean): void {
    const all = (this.study.source.value?.boxes ?? []).filter(prunable);
    this.choose({ sparsity: repruned(this.choice.value.sparsity, boxes, on, all) });
  }

  /** Builds the choice. It travels along, because Jupyter holds trait changes back while the kernel is busy. */
  run(): void {
    this.pinsBefore.value = null;
    this.treatedBefore.value = null;
    this.send({ type: "build", choice: this.choice.value });
  }

  /** How far the variant on screen came; empty for one that was read from files. */
  standings(): readonly StageStatus[] {
    const shown = this.study.engine.value?.variant;
    return this.chips.value.find(({ id }) => id === shown)?.stages ?? [];
  }

  /** Goes on measuring a variant where it stopped, the one on screen by default. */
  measure(variant = this.study.engine.value?.variant ?? ""): void {
    this.send({ type: "measure", variant });
  }

  open(model: string): void {
    this.opening.value = model;
    this.send({ type: "open", path: model });
  }

  /** What a kernel was doing ends with it, and nothing on the page goes on as if it did not. */
  #strand(): void {
    const stop = effect(() => {
      const { value: reach } = this.study.reach;
      if (!heard(reach)) this.#unheard.value = new Set();
      if (!gone(reach)) return;
      const { running, phase } = this.build.peek();
      batch(() => {
        // The pace, and the time that is left, are none any more.
        if (running) this.lost.value = phase.split(" · ", 1)[0]!;
        this.build.value = { running: false, phase: "", fraction: null, elapsed: 0 };
        this.chips.value = stranded(this.chips.peek());
        this.opening.value = "";
        this.link.value = "";
      });
    });
    this.end.addEventListener("abort", stop);
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

  /** Opens the model with other sizes of its inputs, and builds it. */
  resized(shapes: Record<string, number[]>): void {
    this.sizing.value = false;
    this.ownFailure.value = null;
    this.send({ type: "sizes", shapes });
  }

  /** Has a variant's model, its scales or its calibration cache saved as a file. */
  save(variant: string, what: SaveFile["what"]): void {
    this.send({ type: "save", variant, what });
  }

  /** Tells how to build a variant on another machine; only the one on screen has its commands here. */
  buildElsewhere(variant: string): void {
    this.elsewhere.value = variant;
    if (this.study.engine.value?.variant !== variant) this.send({ type: "show", variant });
  }

  closeElsewhere(): void {
    this.elsewhere.value = "";
  }

  send(command: Command, buffers?: ArrayBuffer[]): void {
    this.#unheard.value = new Set([...this.#unheard.peek(), command]);
    ask(this.#model, command, buffers, () => {
      this.#unheard.value = new Set([...this.#unheard.peek()].filter((one) => one !== command));
    });
  }

  resize(height: number, done: boolean): void {
    this.height.value = height;
    if (done) publish(this.#model, "height", height);
  }

  /** Hands files to the kernel, which tells from their content what they are. */
  async drop(files: readonly File[]): Promise<void> {
    if (!files.length) return;
    this.ownFailure.value = refused(files, this.build.value.running, this.unusable());
    if (this.ownFailure.value) return;
    try {
      const { names, buffers } = await packedFiles(files);
      this.send({ type: "drop", names }, buffers);
    } catch (error) {
      // A folder can be dropped too, and a file may be gone by now.
      this.ownFailure.value = {
        kind: "Cannot read the files",
        message: `Cannot read what was dropped: ${error instanceof Error ? error.message : error}. Drop files, not folders.`,
        details: "",
      };
    }
  }

  toggleHelp(): void {
    this.help.value = !this.help.value;
  }

  dismiss(): void {
    if (this.sizing.value) this.sizing.value = false;
    else if (this.ownFailure.value) this.ownFailure.value = null;
    else if (this.alive.value) this.send({ type: "dismiss" });
    else this.#told.value = null;
  }

  /** On what evidence a node belongs to a layer. */
  evidenceWords(side: Side, node: string, layer: string): string {
    const evidence = this.study.linksOf(engineSide(side)).evidence(node, layer);
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

  /** Selects a box and brings it into view, out of any folded group. */
  jump(side: Side, id: string): void {
    unfold(this.study, side, id);
    this.study.select(side, id, { reveal: true });
  }
}
