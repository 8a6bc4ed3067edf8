import { describe, expect, it } from "vitest";
import { Mapping } from "../src/core/mapping";
import { arrange, syncSteps, withoutSync } from "../src/graph/visible_graph";
import { box, graph } from "./payloads";

const layer = (id: string, node = "") =>
  box({
    id,
    kind: "layer",
    chips: node ? [{ op: "Conv", family: "convolution", node, role: "work", title: "Conv" }] : [],
  });
const edge = (source: number, target: number) => ({ source, target, value: "t", label: "" });

const engine = {
  ...graph("engine", [layer("wait"), layer("a", "n"), layer("signal"), layer("move"), layer("lone", "m")]),
  subtitle: "sm86 · 3 layers and 2 sync or jump entries",
  edges: [edge(1, 3)],
};

describe("sync layers", () => {
  it("are those without a node and without a tensor", () => {
    // A layout move has tensors, and a layer that lost its tensors still has its node: both are drawn.
    expect(["wait", "signal"]).toEqual([...syncSteps(engine)]);
  });

  it("are left out of the picture, and edges still join the same boxes", () => {
    const drawn = withoutSync(engine);
    expect(["a", "move", "lone"]).toEqual(drawn.boxes.map(({ id }) => id));
    const [only] = drawn.edges;
    expect(["a", "move"]).toEqual([drawn.boxes[only!.source]!.id, drawn.boxes[only!.target]!.id]);
  });

  it("cannot be told in a graph without tensors", () => {
    // Names alone are still worth a picture.
    const names = { ...engine, edges: [] };
    expect(names).toBe(withoutSync(names));
  });
});

describe("an open node with a body", () => {
  it("has no edge to what stands in it, in either direction, and keeps those to what stands beside it", () => {
    const nested = {
      ...graph("g", [
        box({ id: "before" }),
        box({ id: "loop" }),
        box({ id: "inner", parent: 1 }),
        box({ id: "after" }),
      ]),
      edges: [edge(0, 1), edge(1, 2), edge(2, 1), edge(1, 3)],
    };
    const ends = (folds: string[]): string[] => {
      const { boxes, edges } = arrange(
        nested,
        { grouping: "none", folds: new Set(folds), only: null },
        null,
        new Mapping(null),
      ).graph;
      return edges.map(({ source, target }) => `${boxes[source]!.id} → ${boxes[target]!.id}`);
    };
    expect(ends(["loop"])).toEqual(["before → loop", "loop → after"]);
    expect(ends([])).toEqual(["before → loop", "loop → after"]);
  });
});
