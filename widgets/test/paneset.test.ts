import { afterEach, beforeEach, describe, expect, it, test, vi } from "vitest";
import type { ViewState } from "../src/core/contract";
import { START, Study } from "../src/core/state";
import { PaneSet } from "../src/graph/paneset";
import { stubCanvas, theme } from "./canvas";
import { box, engineView, graph } from "./payloads";

vi.mock("../src/graph/layout/client", () => ({ LayoutClient: class {} }));
vi.mock("../src/graph/draw/theme", () => ({
  isDark: () => true,
  onThemeChange: () => {},
  readTheme: () => theme,
}));

let end = new AbortController();
beforeEach(stubCanvas);
afterEach(() => {
  vi.unstubAllGlobals();
  end = new AbortController();
});

function paneSet(view: Partial<ViewState> = {}, nodes = ["x"]) {
  const state = { view: { ...START, ...view }, source: null, engine: null, other: null, height: 500 };
  const deaf = () => undefined;
  const quiet = {
    get: (name: keyof typeof state) => state[name],
    set: deaf,
    save_changes: deaf,
    on: deaf,
    off: deaf,
  };
  const study = new Study(quiet as unknown as ConstructorParameters<typeof Study>[0], end.signal);
  study.source.value = graph(
    "model",
    nodes.map((id) => box({ id })),
  );
  study.engine.value = engineView({ graph: graph("engine", [box({ id: "A", kind: "layer" })]) });
  const root = { dataset: {}, classList: { toggle: deaf } } as unknown as HTMLElement;
  return { panes: new PaneSet(study, root, end.signal), study, root };
}

test.each([
  ["node", ["layer", "node", "other"]],
  ["layer", ["node", "other", "layer"]],
  ["other", ["node", "other", "layer"]],
] as const)("swapping %s changes places with its neighbour", (side, order) => {
  const { panes } = paneSet({ panes: ["node", "layer", "other"] });
  panes.swap(side);
  expect(panes.sides.value).toEqual(order);
});

describe("panes in view", () => {
  it("come and go, but for the last one", () => {
    const { panes } = paneSet({ panes: ["node", "layer"] });
    panes.togglePane("other");
    expect(panes.sides.value).toEqual(["node", "layer", "other"]);
    for (const side of ["node", "other", "layer"] as const) panes.togglePane(side);
    expect(panes.sides.value).toEqual(["layer"]);
  });

  it("keep the place of nodes while there is no model", () => {
    const { panes, study } = paneSet({ panes: ["node", "layer"] }, []);
    expect(panes.sides.value).toEqual(["layer"]);
    panes.togglePane("other");
    expect(study.view.value.panes).toEqual(["node", "layer", "other"]);
  });

  it("fold nodes into layers where there is an engine, and back", () => {
    const { panes, study } = paneSet({ panes: ["node", "layer"] });
    expect(panes.canFoldLayers()).toBe(true);
    const groupings = [0, 1].map(() => {
      panes.toggleLayerFold();
      return study.view.value.grouping_nodes;
    });
    expect(groupings).toEqual(["layers", "auto"]);
    study.engine.value = null;
    expect(panes.canFoldLayers()).toBe(false);
  });

  it("are left step by step: hint, focus, selection", () => {
    const { panes, study } = paneSet({ selection: ["x"] });
    study.focus.value = { side: "node", ids: new Set(["x"]), words: "", alone: false };
    panes.hint.value = { side: "node", words: "" };
    const now = () => [
      panes.hint.value !== null,
      study.focus.value !== null,
      study.view.value.selection.length > 0,
    ];
    const all = [true, true, true];
    for (let left = 0; left < 3; left++) {
      expect(now()).toEqual(all.map((_, k) => k >= left));
      expect(panes.leave()).toBe(true);
    }
    expect(panes.leave()).toBe(false);
  });

  it("say on the page what is selected and how much was found", () => {
    const { panes, root } = paneSet({ selection: ["x"] });
    panes.hits.value = { node: 2, layer: 3 };
    expect(root.dataset).toMatchObject({ selection: '["x"]', hits: "5", focus: "0", variant: "fp32@sm86" });
  });
});
