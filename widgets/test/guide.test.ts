import { signal } from "@preact/signals";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Box, Chip, EngineView, Findings, ViewState } from "../src/core/contract";
import { START, Study } from "../src/core/state";
import { exampleLayer, Guide, type TourContext, tourStops } from "../src/explorer/guide";
import type { PaneSet } from "../src/graph/paneset";
import type { Page } from "../src/panels/page";
import { box, engineView, graph, overlay } from "./payloads";

let end = new AbortController();
beforeEach(() => {
  vi.stubGlobal("requestAnimationFrame", (then: () => void) => setTimeout(then, 0));
  vi.stubGlobal("cancelAnimationFrame", (at: number) => clearTimeout(at));
  vi.stubGlobal("HTMLElement", class {});
  vi.stubGlobal("document", { activeElement: null });
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
  const paneSet = {
    root: { contains: () => true, focus: deaf },
    canFoldLayers: () => nodes.length > 0 && of !== null,
  } as unknown as PaneSet;
  const presentation = { on: signal(false), toggle: deaf };
  const chip = { id: "fp32", score: scored ? 98 : null } as Chip;
  const tabs = ["timing", "memory", "findings", "table"] as const;
  const it = {
    study,
    paneSet,
    presentation,
    saved,
    end: end.signal,
    chips: signal(of ? [chip] : []),
    findings: signal({ items: Array(found).fill({}), note: "" } as unknown as Findings),
    page: signal({ tabs: [...tabs], tab: "timing", segments: [], segment: null } as unknown as Page),
    jump: (side: "node" | "layer", id: string) => study.select(side, id),
  } as unknown as TourContext;
  /** What the kernel has sent, which is nothing, has been taken in; then comes what is open. */
  const sent = async (): Promise<void> => {
    await new Promise((then) => setTimeout(then, 10));
    load();
  };
  return { it, study, sent };
}

const names = (open: Open): string[] => tourStops(toured(open).it).map(({ name }) => name);

describe("the example of a fusion", () => {
  it("is the first layer that runs several nodes", () => {
    expect("more").toBe(exampleLayer(toured().study)?.id);
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
    const [, , choice] = tourStops(toured({ saved: true }).it);
    expect("The variants").toBe(choice!.title);
  });
});

describe("a tour", () => {
  it("shows a fusion, then the bars, and puts all back", async () => {
    const view = {
      selection: ["a"],
      layers: ["one"],
      tab: "memory",
      settings: { "page.split": "30.00" },
    } as const;
    const open = toured({ view: { ...view, selection: ["a"], layers: ["one"] } });
    const { it: explorer, study, sent } = open;
    await sent();
    const guide = new Guide(explorer);
    const before = study.view.value;
    guide.begin();
    expect(["more"]).toEqual(study.view.value.layers);
    guide.key("ArrowRight");
    guide.key("ArrowRight");
    guide.key("ArrowRight");
    expect("timing").toBe(study.view.value.tab);
    // What belongs to the page is as its user has it by now.
    study.change({ settings: { ...study.view.value.settings, "page.split": "50.00" } });
    expect(guide.key("Escape")).toBe(true);
    expect({ ...before, settings: { "page.split": "50.00" } }).toEqual(study.view.value);
    expect(guide.stop.value).toBe(null);
    expect(guide.key("Escape")).toBe(false);
  });
});
