import { signal } from "@preact/signals";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Box, Chip, EngineView, Findings, ViewState } from "../src/contract";
import { example, Guide, stopsOf, type Toured } from "../src/guide";
import type { Page } from "../src/panels";
import type { PaneSet } from "../src/paneset";
import { START, Study } from "../src/state";
import { box, engineView, graph, overlay } from "./payloads";

let end = new AbortController();
beforeEach(() => {
  vi.stubGlobal("requestAnimationFrame", (then: () => void) => setTimeout(then, 0));
  vi.stubGlobal("cancelAnimationFrame", (at: number) => clearTimeout(at));
  vi.stubGlobal("HTMLElement", class {});
  vi.stubGlobal("document", { activeElement: null });
  const kept = new Map<string, string>();
  vi.stubGlobal("localStorage", {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => void kept.set(key, value),
  });
});
afterEach(() => {
  end.abort();
  end = new AbortController();
  vi.unstubAllGlobals();
});

const layer = (id: string, part: Partial<Box> = {}): Box => box({ id, kind: "layer", ...part });
const pair = (node: string, of: string, role: "work" | "Q" = "work") =>
  ({ node, layer: of, evidence: "declared", role }) as const;
/** A reformat, a layer of one node, one of three, and one of three that serves a fourth. */
const engine = engineView({
  variant: "fp32",
  graph: graph("engine", [layer("move", { slim: true }), layer("one"), layer("more"), layer("three")]),
  pairs: [
    ...["a", "b", "c"].map((node) => pair(node, "move")),
    pair("a", "one"),
    ...["e", "f", "g"].map((node) => pair(node, "more")),
    pair("a", "more", "Q"),
    ...["b", "c", "d"].map((node) => pair(node, "three")),
  ],
  overlays: [overlay({ id: "time", unit: "ms", origin: "measured" })],
});
const NODES = ["a", "b", "c", "d", "e", "f", "g"];

interface Open {
  engine?: EngineView | null;
  nodes?: readonly string[];
  model?: boolean;
  saved?: boolean;
  scored?: boolean;
  found?: number;
  view?: Partial<ViewState>;
}

function toured({
  engine: of = engine,
  nodes = NODES,
  model = true,
  saved = false,
  scored = false,
  found = 0,
  view = {},
}: Open = {}) {
  const state = {
    view: { ...START, variant: of ? "fp32" : "", ...view },
    source: null,
    engine: null,
    other: null,
  };
  const deaf = () => undefined;
  const quiet = {
    get: (name: keyof typeof state) => state[name],
    set: deaf,
    save_changes: deaf,
    on: deaf,
    off: deaf,
  };
  const study = new Study(quiet as unknown as ConstructorParameters<typeof Study>[0], end.signal);
  const load = (): void => {
    study.source.value = model
      ? graph(
          "model",
          nodes.map((id) => box({ id, op: `Op${id}` })),
        )
      : null;
    study.engine.value = of;
  };
  load();
  const morphing = signal(false);
  const fitted: unknown[] = [];
  const camera = {
    view: { x: 1, y: 2, width: 30, height: 40 },
    fit: (rect: unknown) => void fitted.push(rect),
  };
  const zoomed: string[] = [];
  const paneSet = {
    root: { contains: () => true, focus: deaf },
    stages: { node: { scene: {}, camera }, layer: { scene: {}, camera } },
    sides: signal(nodes.length ? ["node", "layer"] : ["layer"]),
    morphing,
    canMorph: () => nodes.length > 0 && of !== null,
    zoomToSelection: (side: string) => void zoomed.push(side),
  } as unknown as PaneSet;
  const presenting = { on: signal(false), toggle: deaf };
  const chip = { id: "fp32", score: scored ? 98 : null } as Chip;
  const tabs = ["timing", "memory", "findings", "table"] as const;
  const it = {
    study,
    paneSet,
    presenting,
    saved,
    end: end.signal,
    chips: signal(of ? [chip] : []),
    findings: signal({ items: Array(found).fill({}), note: "" } as unknown as Findings),
    page: signal({ tabs: [...tabs], tab: "timing", segments: [], segment: null } as unknown as Page),
    jump: (side: "node" | "layer", id: string) => study.select(side, id),
  } as unknown as Toured;
  /** What the kernel has sent, which is nothing, has been taken in; then comes what is open. */
  const sent = async (): Promise<void> => {
    await new Promise((then) => setTimeout(then, 10));
    load();
  };
  return { it, study, morphing, fitted, zoomed, presenting, sent };
}

const names = (open: Open): string[] => stopsOf(toured(open).it).map(({ name }) => name);

describe("the example of a fusion", () => {
  it("is a layer that runs three nodes and does nothing else", () => {
    expect("three").toBe(example(toured().study)?.id);
  });
});

describe("stops of the tour", () => {
  it("are five where there is a model and its engine", () => {
    expect(["graphs", "fold", "choice", "charts", "why"]).toEqual(names({}));
  });

  it("leave out what is not there", () => {
    // No engine to fold into and no bars; files without a model have no nodes; a report builds nothing.
    expect(["graphs", "choice", "why"]).toEqual(names({ engine: null }));
    expect(["graphs", "choice", "charts", "why"]).toEqual(names({ nodes: [] }));
    expect(["graphs", "choice", "why"]).toEqual(names({ engine: null, model: false }));
    const [, , choice] = stopsOf(toured({ saved: true }).it);
    expect([".rt-chips"]).toEqual(choice!.spots);
  });
});

describe("a tour", () => {
  it("shows a fusion, then the morph, then the bars, and puts all back", async () => {
    const view = {
      selection: ["a"],
      layers: ["one"],
      tab: "memory",
      settings: { "page.split": "30.00" },
    } as const;
    const {
      it: explorer,
      study,
      morphing,
      fitted,
      zoomed,
      sent,
    } = toured({ view: { ...view, selection: ["a"], layers: ["one"] } });
    await sent();
    const guide = new Guide(explorer);
    const before = study.view.value;
    guide.begin();
    expect([["three"], ["b", "c", "d"]]).toEqual([study.view.value.layers, study.view.value.selection]);
    expect(["node", "layer"]).toEqual(zoomed);
    guide.key("ArrowRight");
    expect(morphing.value).toBe(true);
    guide.key("ArrowRight");
    expect(morphing.value).toBe(false);
    guide.key("ArrowRight");
    expect("timing").toBe(study.view.value.tab);
    // What belongs to the page is as its user has it by now.
    study.change({ settings: { ...study.view.value.settings, "page.split": "50.00" } });
    expect(guide.key("Escape")).toBe(true);
    expect({ ...before, settings: { "page.split": "50.00" } }).toEqual(study.view.value);
    await vi.waitFor(() => expect(fitted.length).toBe(2));
    expect([
      { x: 1, y: 2, width: 30, height: 40 },
      { x: 1, y: 2, width: 30, height: 40 },
    ]).toEqual(fitted);
    expect(guide.stop.value).toBe(null);
    expect(guide.key("Escape")).toBe(false);
  });
});
