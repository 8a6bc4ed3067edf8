import type { AnyModel } from "@anywidget/types";
import { batch, computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { ask, type ExplorerTraits, follower, type Plotted, publish } from "../core/channel";
import { isAlive, isGone } from "../core/connection";
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
  type Reply,
  type Side,
  type StageStatus,
  type Status,
  type StudySaved,
  type Summary,
  TABS,
  type Work,
} from "../core/contract";
import { EVIDENCE_WORDS, NO_MODEL, plural, REASON_WORDS } from "../core/format";
import { effectsUntil } from "../core/lifetime";
import type { Surroundings } from "../core/parts";
import { loadPlotly, type Plotly } from "../core/plotly";
import { Study } from "../core/state";
import { ariaText } from "../graph/aria_text";
import { unfold } from "../graph/folding";
import { engineSide } from "../graph/overlay";
import { PaneSet } from "../graph/paneset";
import { chosenIn, drawnHere, type Page, pageOf, usable } from "../panels/page";
import { PanelRequests, type Question } from "../panels/panel_requests";
import { saveFile } from "../ui/save";
import { differs, prunable, repinned, repruned } from "./choice";
import { openError, readFiles } from "./files";
import { Fullscreen } from "./fullscreen";
import { Guide } from "./guide";
import { withLostWork } from "./kernel_lost";
import { LazyTabs, TAB_PARTS } from "./lazy_tabs";
import { LARGER, Presentation } from "./presentation";

const INSPECT_MS = 180;

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
  readonly data: Signal<DataState>;
  readonly charts: Signal<Record<string, Plotted>>;
  readonly notice: Signal<string>;
  readonly height: Signal<number>;
  readonly pixelHeight: ReadonlySignal<number>;
  readonly fullscreen: Fullscreen;
  readonly presentation: Presentation;
  readonly guide: Guide;
  readonly inspection: Signal<Inspection | null>;
  readonly calibration: Signal<Calibrated | null> = signal(null);
  readonly summary: Signal<Summary | null> = signal(null);
  readonly findings: Signal<Findings | null> = signal(null);
  readonly selectedValue: Signal<string> = signal("");
  readonly commandsOf: Signal<string> = signal("");
  readonly link: Signal<string> = signal("");
  /** Where the study was saved, until the notice is closed. */
  readonly saving: Signal<StudySaved | null> = signal(null);
  /** This is a report: what needs a kernel is left out. */
  readonly saved: boolean;
  readonly alive: ReadonlySignal<boolean> = computed(() => isAlive(this.study.kernelState.value));
  readonly isWaiting: ReadonlySignal<boolean> = computed(
    () => this.study.kernelState.value === "busy" && this.#pendingCommands.value.size > 0,
  );
  readonly lost: Signal<string> = signal("");
  readonly help: Signal<boolean> = signal(false);
  readonly opening: Signal<string> = signal("");
  readonly width: Signal<number> = signal(1200);
  /** A failure that the browser found, or that of a failed chip; it takes precedence over the kernel's. */
  readonly ownFailure: Signal<Failure | null> = signal(null);
  readonly failure: ReadonlySignal<Failure | null>;
  readonly sizing: Signal<boolean> = signal(false);
  readonly cardShown: ReadonlySignal<boolean> = computed(
    () => this.sizing.value || this.failure.value !== null,
  );
  readonly stale: ReadonlySignal<boolean>;
  readonly sentence: ReadonlySignal<string>;
  readonly inspected: ReadonlySignal<string> = computed(() => {
    const [only, ...more] = this.study.view.value.anchor === "node" ? this.selectedNodes() : [];
    return only !== undefined && !more.length ? only : "";
  });
  readonly page: ReadonlySignal<Page>;
  readonly roomy: ReadonlySignal<boolean>;
  readonly requests: PanelRequests;
  /** The code of tabs, which comes when one is opened, or when nothing is left to draw. */
  readonly lazyTabs: LazyTabs;
  readonly #model: AnyModel<ExplorerTraits>;
  readonly #kernelFailure: Signal<Failure | null>;
  readonly #pendingCommands: Signal<ReadonlySet<Command>> = signal(new Set());
  #plotly: Promise<Plotly> | null = null;

  constructor(
    model: AnyModel<ExplorerTraits>,
    root: HTMLElement,
    end: AbortSignal,
    part: Surroundings["part"],
  ) {
    this.#model = model;
    this.end = end;
    this.lazyTabs = new LazyTabs(part);
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
    this.fullscreen = new Fullscreen(root, end, this.width);
    this.presentation = new Presentation(this, trait("steps"), (steps) => publish(model, "steps", steps));
    this.pixelHeight = computed(() => {
      const { on, windowHeight, fittingHeight } = this.fullscreen;
      return on.value ? windowHeight.value : this.height.value || fittingHeight.value;
    });
    this.inspection = trait("inspection");
    this.study.decode(trait("engine_answer"), this.summary);
    this.study.decode(trait("build_answer"), this.study.story);
    this.study.decode(trait("calibration_answer"), this.calibration);
    this.study.decode(trait("findings_answer"), this.findings);
    this.#kernelFailure = trait("failure");
    this.failure = computed(() => this.ownFailure.value ?? this.#kernelFailure.value);
    this.stale = computed(() => {
      if (this.saved) return false;
      const current = this.study.engine.value?.variant;
      const chip = this.chips.value.find(({ id }) => id === current);
      return chip !== undefined && differs(this.choice.value, chip);
    });
    this.sentence = computed(() => ariaText(this.study, this.paneSet.reading.value));
    this.roomy = computed(() => this.width.value >= SIDE_BY_SIDE * (this.presentation.on.value ? LARGER : 1));
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
    const loadTabs = (): void => {
      if (this.study.graphsDrawn.value) for (const name of TAB_PARTS) this.lazyTabs.ask(name);
    };
    // The library of the charts comes when the first engine is drawn: before, it would keep that one waiting.
    // In a report nothing waits for it: it is unpacked while the graphs are laid out.
    const loadCharts = (): void => {
      const ready = this.study.graphsDrawn.value && this.study.view.value.variant !== "";
      if (ready || this.saved) this.plotly().catch(() => {});
    };
    const nameVariants = (): void => {
      this.study.titles.value = Object.fromEntries(this.chips.value.map(({ id, label }) => [id, label]));
    };
    this.guide = new Guide(this);
    this.requests = this.#asking(trait("stamp"));
    this.#clearOpening(this.#kernelFailure);
    this.#endLostWork();
    this.#inspectSelected();
    effectsUntil(end, loadTabs, loadCharts, nameVariants);
    const hear = (reply: Reply, buffers: DataView[]): void => {
      if (reply.type === "answer") this.requests.take(reply.id, reply.panel);
      if (reply.type === "link") this.link.value = reply.address;
      if (reply.type === "saved") this.saving.value = reply;
      if (reply.type === "file" && buffers[0])
        saveFile(reply.name, new Blob([buffers[0] as DataView<ArrayBuffer>]));
    };
    model.on("msg:custom", hear);
    end.addEventListener("abort", () => model.off("msg:custom", hear));
  }

  /** What follows the tab in front, the variant and the settings, and asks the kernel for the panel. */
  #asking(stamp: ReadonlySignal<number>): PanelRequests {
    const { engine, source, view } = this.study;
    // As text, so that a selection, which makes a new view too, is no new question.
    const text = computed(() => {
      const { segment } = this.page.value;
      const variant = engine.value?.variant;
      if (!segment || drawnHere(segment) || !variant || !(this.saved || this.alive.value)) return "null";
      return JSON.stringify({ panel: segment, variant, settings: chosenIn(segment, view.value.settings) });
    });
    const question = computed((): Question | null => JSON.parse(text.value));
    const occasion = computed(
      () => `${stamp.value} ${JSON.stringify([view.value.compared, view.value.baseline])}`,
    );
    const asking = new PanelRequests(question, occasion, (request) => this.send(request), this.end);
    let model = source.peek();
    effectsUntil(
      this.end,
      () => {
        if (this.failure.value) asking.cancel();
      },
      () => {
        if (source.value !== model) asking.clear();
        model = source.value;
      },
    );
    return asking;
  }

  /** Chooses something in a panel, or with a tab's name the panel that it shows. */
  set(key: string, value: string): void {
    const { settings } = this.study.view.peek();
    this.study.change({ settings: { ...settings, [key]: value } });
  }

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

  /** Selects the nodes and layers of a point or a row of a panel, and opens their groups. */
  follow(panel: Panel, key: string, add: boolean): void {
    const link = this.linkOf(panel, key);
    if (!link) return;
    const [node] = link.nodes;
    const [layer] = link.layers;
    if (node !== undefined) unfold(this.study, "node", node);
    if (layer !== undefined) unfold(this.study, "layer", layer);
    this.study.follow(link, add);
  }

  /** The nodes and layers of a point or a row; null while the panel is of another variant. */
  linkOf(panel: Panel, key: string): Link | null {
    const link = panel.links[key];
    if (!link || panel.variant !== this.study.engine.value?.variant) return null;
    return usable(link, panel, this.study.view.value.compared);
  }

  unusable(): string {
    if (this.saved) return "A saved report has no kernel: open the study in a notebook";
    if (isGone(this.study.kernelState.value)) return "The kernel is gone: run the cells again";
    return this.alive.value ? "" : "No connection to the kernel: wait until it is back";
  }

  busy(): string {
    return this.unusable() || (this.build.value.running ? "Wait until the running work is done" : "");
  }

  unbuildable(): string {
    return this.unusable() || (this.study.modelless.value ? NO_MODEL : "");
  }

  compare(variant: string): void {
    const { panes } = this.study.view.peek();
    if (!panes.includes("other")) this.study.change({ panes: [...panes, "other"] });
    this.send({ type: "compare", variant });
  }

  selectedNodes(): string[] {
    return this.study.selected("node").filter((id) => this.study.box("node", id)?.kind === "node");
  }

  /** Has the kernel measure the tensors of the node that is selected, each node once in a row. */
  #inspectSelected(): void {
    let timer = 0;
    effectsUntil(this.end, () => {
      const id = this.inspected.value;
      clearTimeout(timer);
      if (!id || this.unusable() || this.inspection.peek()?.node === id) return;
      timer = window.setTimeout(() => this.send({ type: "inspect", node: id }), INSPECT_MS);
    });
    this.end.addEventListener("abort", () => clearTimeout(timer));
  }

  plotly(): Promise<Plotly> {
    this.#plotly ??= loadPlotly(this.#model, this.end);
    return this.#plotly;
  }

  choose(part: Partial<Choice>): void {
    const next = { ...this.choice.value, ...part };
    this.choice.value = next;
    publish(this.#model, "choice", next);
  }

  pin(boxes: readonly Box[], precision: string): void {
    this.choose({ pins: repinned(this.choice.value, boxes, precision) });
  }

  prune(boxes: readonly Box[], on: boolean): void {
    const all = (this.study.source.value?.boxes ?? []).filter(prunable);
    this.choose({ sparsity: repruned(this.choice.value.sparsity, boxes, on, all) });
  }

  /** Builds the choice. It travels along, because Jupyter holds trait changes back while the kernel is busy. */
  run(): void {
    this.send({ type: "build", choice: this.choice.value });
  }

  stageStatuses(): readonly StageStatus[] {
    const current = this.study.engine.value?.variant;
    return this.chips.value.find(({ id }) => id === current)?.stages ?? [];
  }

  measure(variant = this.study.engine.value?.variant ?? ""): void {
    this.send({ type: "measure", variant });
  }

  open(model: string): void {
    this.opening.value = model;
    this.send({ type: "open", path: model });
  }

  #endLostWork(): void {
    effectsUntil(this.end, () => {
      const reach = this.study.kernelState.value;
      if (!isAlive(reach)) this.#pendingCommands.value = new Set();
      if (!isGone(reach)) return;
      const { running, phase } = this.build.peek();
      batch(() => {
        // The pace, and the time that is left, are none any more.
        if (running) this.lost.value = phase.split(" · ", 1)[0]!;
        this.build.value = { running: false, phase: "", fraction: null, elapsed: 0 };
        this.chips.value = withLostWork(this.chips.peek());
        this.opening.value = "";
        this.link.value = "";
      });
    });
  }

  /** What was to be opened is on screen, or failed, or was cancelled. */
  #clearOpening(failure: ReadonlySignal<Failure | null>): void {
    let model = this.choice.peek().model;
    let running = this.build.peek().running;
    let failed = failure.peek();
    effectsUntil(this.end, () => {
      const now = {
        model: this.choice.value.model,
        running: this.build.value.running,
        failed: failure.value,
      };
      if (now.model !== model || (running && !now.running) || (now.failed && now.failed !== failed))
        this.opening.value = "";
      ({ model, running, failed } = now);
    });
  }

  resized(sizes: Record<string, number>): void {
    this.sizing.value = false;
    this.ownFailure.value = null;
    this.send({ type: "sizes", sizes });
  }

  /** Builds the choice at sizes of its own, such as one step of a decoder beside the prefill. */
  buildAt(sizes: string[]): void {
    this.sizing.value = false;
    this.ownFailure.value = null;
    this.choose({ sizes });
    this.run();
  }

  save(variant: string): void {
    this.send({ type: "save", variant });
  }

  showCommands(variant: string): void {
    this.commandsOf.value = variant;
    if (this.study.engine.value?.variant !== variant) this.send({ type: "show", variant });
  }

  send(command: Command, buffers?: ArrayBuffer[]): void {
    this.#pendingCommands.value = new Set([...this.#pendingCommands.peek(), command]);
    ask(this.#model, command, buffers, () => {
      this.#pendingCommands.value = new Set(
        [...this.#pendingCommands.peek()].filter((one) => one !== command),
      );
    });
  }

  resize(height: number, done: boolean): void {
    this.height.value = height;
    if (done) publish(this.#model, "height", height);
  }

  async drop(files: readonly File[]): Promise<void> {
    if (!files.length) return;
    this.ownFailure.value = openError(files, this.build.value.running, this.unusable());
    if (this.ownFailure.value) return;
    try {
      const { names, buffers } = await readFiles(files);
      this.send({ type: "drop", names }, buffers);
    } catch (error) {
      this.ownFailure.value = {
        kind: "Cannot read the files",
        message: `Cannot read what was dropped: ${error instanceof Error ? error.message : error}. Drop files, not folders.`,
        details: "",
        until: [],
        rewrites: [],
        variant: "",
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
    else this.#kernelFailure.value = null;
  }

  evidenceWords(side: Side, node: string, layer: string): string {
    const evidence = this.study.mappingOf(engineSide(side)).evidence(node, layer);
    return evidence ? EVIDENCE_WORDS[evidence] : "";
  }

  missingWords(): string[] {
    const counts = new Map<string, number>();
    for (const { reason } of this.study.mapping.value.reasons)
      counts.set(reason, (counts.get(reason) ?? 0) + 1);
    return [...counts].map(
      ([reason, count]) => `${plural(count, "node")}: ${REASON_WORDS[reason as keyof typeof REASON_WORDS]}`,
    );
  }

  jump(side: Side, id: string): void {
    unfold(this.study, side, id);
    this.study.select(side, id, { reveal: true });
  }
}
