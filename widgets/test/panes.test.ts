import { signal } from "@preact/signals";
import { afterEach, describe, expect, it } from "vitest";
import type { Graph, ViewState } from "../src/core/contract";
import { START, Study } from "../src/core/state";
import { ariaText, groupOf } from "../src/graph/aria_text";
import { foldAll, toggleAt, unfold } from "../src/graph/folding";
import { trace } from "../src/graph/highlight";
import type { PaneSet } from "../src/graph/paneset";
import { box, engineView, graph, overlay, reading } from "./payloads";

/** A chain through two scopes, one in the other: in → net/a/x → net/a/y → net/b → out, and a loose node. */
const model: Graph = {
  ...graph("model", [
    box({ id: "in", kind: "input" }),
    ...["net/a/x", "net/a/y", "net/b"].map((id) => box({ id })),
    box({ id: "out", kind: "output" }),
    box({ id: "net/loose" }),
  ]),
  edges: [0, 1, 2, 3].map((v) => ({ source: v, target: v + 1, value: `t${v}`, label: "" })),
};
const engine = engineView({
  graph: graph("engine", [box({ id: "A", kind: "layer" }), box({ id: "B", kind: "layer" })]),
  pairs: [
    { node: "net/a/x", layer: "A", evidence: "declared", role: "work" },
    { node: "net/a/y", layer: "A", evidence: "declared", role: "work" },
    { node: "net/b", layer: "B", evidence: "declared", role: "work" },
  ],
  overlays: [overlay({ nodes: { "net/a/x": reading(2, 2), "net/a/y": reading(2, 2), "net/b": reading(1) } })],
});

let end = new AbortController();
afterEach(() => {
  end.abort();
  end = new AbortController();
});

function studyOf(view: Partial<ViewState> = {}): Study {
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
  study.source.value = model;
  study.engine.value = engine;
  return study;
}

const paneSetOf = (study: Study) => ({ study, hint: signal(null) }) as unknown as PaneSet;
const drawnIds = (study: Study): string[] => study.visible("node")!.graph.boxes.map(({ id }) => id);
const nodes = model.boxes.map(({ id }) => id);

describe("folding", () => {
  it("opens every group and folds every group again", () => {
    // Scopes stand in scopes: one click must reach the innermost.
    const study = studyOf({ grouping_nodes: "scopes" });
    foldAll(study, "node", true);
    expect(nodes.every((id) => drawnIds(study).includes(id))).toBe(true);
    foldAll(study, "node", false);
    const { foldable, frames } = study.visible("node")!;
    expect([true, 0]).toEqual([foldable.size > 0, frames.size]);
  });

  it("opens only what stands around a box that is looked for", () => {
    // A hit deep inside comes into view, and the rest of the model stays folded.
    const study = studyOf({ grouping_nodes: "scopes" });
    foldAll(study, "node", false);
    expect(false).toBe(drawnIds(study).includes("net/a/y"));
    unfold(study, "node", "net/a/y");
    expect(true).toBe(drawnIds(study).includes("net/a/y"));
  });

  it("folds the group that a box stands in, and opens it from outside", () => {
    // One key does both, wherever the reader is.
    const study = studyOf({ grouping_nodes: "scopes" });
    foldAll(study, "node", true);
    const group = toggleAt(study, "node", "net/a/x");
    expect(false).toBe(drawnIds(study).includes("net/a/x"));
    expect(group).toBe(toggleAt(study, "node", group!));
    expect(true).toBe(drawnIds(study).includes("net/a/x"));
  });

  it("does nothing where there is no group", () => {
    // The key is harmless in a plain graph.
    expect(null).toBe(toggleAt(studyOf(), "node", "net/b"));
  });
});

describe("tracing", () => {
  it("says what stands out and how many nodes it is", () => {
    // Inputs of the graph are on the way, but they are no nodes.
    const study = studyOf();
    trace(paneSetOf(study), "node", ["net/b"], "up");
    const { ids, words, alone, side } = study.focus.value!;
    expect(["in", "net/a/x", "net/a/y", "net/b"]).toEqual([...ids]);
    expect(["2 nodes upstream of net/b", false, "node"]).toEqual([words, alone, side]);
  });

  it("finds the way between two boxes in either order", () => {
    // Nobody remembers which of the two was clicked first.
    for (const pair of [
      ["net/a/x", "net/b"],
      ["net/b", "net/a/x"],
    ]) {
      const study = studyOf();
      trace(paneSetOf(study), "node", pair, "path");
      expect(["net/a/x", "net/a/y", "net/b"]).toEqual([...study.focus.value!.ids]);
    }
  });

  it("says in words that there is no way", () => {
    // A picture that stays as it was would look like a key that does not work.
    const study = studyOf();
    const paneSet = paneSetOf(study);
    trace(paneSet, "node", ["net/b", "net/loose"], "path");
    expect([null, "No path leads from net/b to net/loose, nor back."]).toEqual([
      study.focus.value,
      paneSet.hint.value?.words,
    ]);
  });

  it("asks for two boxes where there are not two", () => {
    // The next step is named.
    const paneSet = paneSetOf(studyOf());
    trace(paneSet, "node", ["net/b"], "path");
    expect(paneSet.hint.value?.words).toMatch(/^Select two nodes/);
  });

  it("takes a folded group for one end of a path", () => {
    // Its members were selected with one click.
    const study = studyOf({ grouping_nodes: "scopes" });
    foldAll(study, "node", true);
    toggleAt(study, "node", "net/a/x");
    trace(paneSetOf(study), "node", ["net/a/x", "net/a/y", "net/b"], "path");
    expect(["net/a/x", "net/a/y", "net/b"]).toEqual([...study.focus.value!.ids]);
  });
});

describe("what is spoken", () => {
  it("names a group with its members and their sum", () => {
    // Two nodes that took 2 ms together did not take 4.
    const study = studyOf({ grouping_nodes: "scopes" });
    foldAll(study, "node", true);
    const group = toggleAt(study, "node", "net/a/x")!;
    study.select("node", group);
    expect(group).toBe(groupOf(study, "node", study.selected("node"))?.id);
    expect(ariaText(study)).toMatch(/group of 2 nodes, time 2\.00 milliseconds measured$/);
  });

  it("is the box that the arrow keys have come to, before the selection", () => {
    // Who cannot see the picture walks through it by ear.
    const study = studyOf();
    study.select("node", "net/a/x");
    expect(ariaText(study, { side: "node", id: "net/b" })).toMatch(/^Conv net\/b, in layer 2 of 2/);
  });

  it("tells which engine a layer of the third pane belongs to", () => {
    // Two engines may have layers of the same name.
    const study = studyOf({ panes: ["layer", "other"] });
    study.other.value = engineView({ ...engine, variant: "int8@sm86" });
    study.select("other", "B");
    expect(ariaText(study)).toContain("in int8@sm86");
    expect([["net/b"], ["B"]]).toEqual([study.selected("node"), study.selected("layer")]);
  });
});
