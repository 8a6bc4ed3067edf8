import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Box, Edge, Graph, Grouping } from "../src/core/contract";
import { Mapping } from "../src/core/mapping";
import { arrange, type VisibleGraph } from "../src/graph/visible_graph";
import { box, engineView, graph } from "./payloads";

const none = new Mapping(null);
const edge = (source: number, target: number, value = `${source}`): Edge => ({
  source,
  target,
  value,
  label: "",
});
const draw = (
  of: Graph,
  grouping: Grouping,
  folds: string[] = [],
  only: string[] | null = null,
): VisibleGraph => arrange(of, { grouping, folds: new Set(folds), only: only && new Set(only) }, null, none);
const titles = ({ graph: { boxes } }: VisibleGraph): string[] => boxes.map(({ title }) => title);

/** A chain of blocks between an input and an output: each splits in two and joins again. */
function chain(blocks: number, stem = 0): Graph {
  const boxes: Box[] = [box({ id: "in", kind: "input", op: "input" })];
  const edges: Edge[] = [];
  let last = 0;
  const put = (op: string, from: number[]): number => {
    boxes.push(box({ id: `/net/${op}_${boxes.length}`, op }));
    for (const s of from) edges.push(edge(s, boxes.length - 1));
    return boxes.length - 1;
  };
  for (let k = 0; k < stem; k++) last = put("Gemm", [last]);
  for (let k = 0; k < blocks; k++) {
    const left = put("Relu", [put("Conv", [last])]);
    last = put("Add", [left, put("MaxPool", [last])]);
  }
  boxes.push(box({ id: "out", kind: "output", op: "output" }));
  edges.push(edge(last, boxes.length - 1));
  const rows = [0, 1, 2, 3].map((k) =>
    Array.from({ length: blocks }, (_, block) => 1 + stem + 4 * block + k),
  );
  const repeats = [{ title: `${blocks} × net`, count: blocks, rows }];
  return { ...graph("chain", boxes), edges, repeats };
}

const named = fc
  .record({
    names: fc.array(fc.array(fc.constantFrom("a", "b", "c"), { minLength: 1, maxLength: 4 }), {
      minLength: 1,
      maxLength: 14,
    }),
    ends: fc.array(fc.tuple(fc.nat(13), fc.nat(13)), { maxLength: 30 }),
    folds: fc.array(fc.nat(8), { maxLength: 5 }),
    grouping: fc.constantFrom<Grouping>("none", "scopes", "repeats"),
  })
  .map(({ names, ends, folds, grouping }) => {
    const boxes = names.map((path, i) =>
      box({ id: `n${i}`, title: `/${path.join("/")}/${i}`, op: path[0]! }),
    );
    const edges = ends.flatMap(([s, t]) => (s < boxes.length && t < boxes.length ? [edge(s, t)] : []));
    // Of a repeated block nothing is asked but as many boxes in each copy.
    const half = boxes.length >> 1;
    const twice = {
      title: "2 × half",
      count: 2,
      rows: Array.from({ length: half }, (_, v) => [v, v + half]),
    };
    return { whole: { ...graph("g", boxes), edges, repeats: half ? [twice] : [] }, folds, grouping };
  });

/** Folds of groups that the arrangement really has, chosen by number. */
function folded(whole: Graph, grouping: Grouping, picks: number[]): VisibleGraph {
  const groups = [...draw(whole, grouping).place.keys()].filter((id) => /^(scope|repeat):/.test(id));
  return draw(whole, grouping, groups.length ? picks.map((k) => groups[k % groups.length]!) : []);
}

/** A frame that a position stands in, in any depth, or itself. */
function inside(drawn: VisibleGraph, inner: number, outer: number): boolean {
  for (let v = inner; v >= 0; v = drawn.parent[v]!) if (v === outer) return true;
  return false;
}

describe("folding", () => {
  it("loses no box and no connection, and invents none", () => {
    // What is folded away is still found, selected and connected: by definition over all pairs of boxes.
    fc.assert(
      fc.property(named, ({ whole, folds, grouping }) => {
        const drawn = folded(whole, grouping, folds);
        const at = (id: string): number => drawn.place.get(id)!;
        for (const { id } of whole.boxes) expect(at(id)).toBeGreaterThanOrEqual(0);
        const have = new Set(drawn.graph.edges.map(({ source, target }) => `${source}:${target}`));
        const want = new Set(
          whole.edges
            .map(({ source, target }) => [at(whole.boxes[source]!.id), at(whole.boxes[target]!.id)] as const)
            .filter(([s, t], e) => {
              const self = whole.edges[e]!.source === whole.edges[e]!.target;
              return s === t
                ? self && drawn.graph.boxes[s]!.id === whole.boxes[whole.edges[e]!.source]!.id
                : !inside(drawn, s, t) && !inside(drawn, t, s);
            })
            .map(([s, t]) => `${s}:${t}`),
        );
        expect(want).toEqual(have);
      }),
    );
  });

  it("puts frames before their members and every member inside exactly its groups", () => {
    // The painter draws frames first; the layout grows them around their members.
    fc.assert(
      fc.property(named, ({ whole, folds, grouping }) => {
        const drawn = folded(whole, grouping, folds);
        drawn.parent.forEach((p, v) => {
          expect(p).toBeLessThan(v);
          if (p >= 0) expect(drawn.frames.has(p)).toBe(true);
        });
        for (const f of drawn.frames) expect(drawn.foldable.has(f)).toBe(true);
        const all = drawn.graph.boxes.flatMap(({ id }, v) => (drawn.frames.has(v) ? [] : drawn.members(id)));
        expect(whole.boxes.map(({ id }) => id).sort()).toEqual([...all].sort());
      }),
    );
  });
});

describe("a folded group", () => {
  it("has the family of most of its boxes, and a precision and a stream only where all agree", () => {
    const inside = [
      { family: "pool", precision: "fp16", stream: 1 },
      { family: "matmul", precision: "fp16", stream: 2 },
      { family: "matmul", precision: "fp16", stream: 1 },
    ] as const;
    const whole = graph("g", [
      ...inside.map((part, k) => box({ id: `net/${k}`, ...part })),
      box({ id: "other/1", precision: "int8" }),
      box({ id: "other/2", precision: "fp16", stream: 3 }),
    ]);
    const groups = draw(whole, "scopes").graph.boxes.map(({ family, precision, stream, lines }) => ({
      family,
      precision,
      stream,
      lines,
    }));
    expect(groups).toEqual([
      { family: "matmul", precision: "fp16", stream: 0, lines: ["3 nodes"] },
      { family: "convolution", precision: "", stream: 0, lines: ["2 nodes"] },
    ]);
  });
});

describe("repeated blocks", () => {
  const whole = chain(24, 1);
  const run = "repeat:/net/Conv_2";

  it("become one box that says how many", () => {
    // "x 24" is what a reader wants of an encoder, between what comes before and after it.
    const drawn = draw(whole, "repeats");
    expect(["in", "/net/Gemm_1", "24 × net", "out"]).toEqual(titles(drawn));
    expect([96, 24, ["4 nodes each"]]).toEqual([
      drawn.members(run).length,
      drawn.copies(run),
      drawn.graph.boxes[2]!.lines,
    ]);
  });

  it("open to one block, whose boxes stand for those of all", () => {
    // Nobody reads 24 times the same picture; whatever is selected in the others shows in the one.
    const drawn = draw(whole, "repeats", [run]);
    const inner = drawn.graph.boxes.filter((_, v) => drawn.graph.boxes[drawn.parent[v]!]?.id === run);
    expect(["Conv", "Relu", "MaxPool", "Add"].sort()).toEqual(inner.map(({ op }) => op).sort());
    const first = inner[0]!.id;
    const convs = whole.boxes.flatMap(({ id, op }) => (op === "Conv" ? [id] : []));
    expect([convs, 24, 0]).toEqual([drawn.members(first), drawn.copies(first), drawn.copies(convs[7]!)]);
    expect(new Set([drawn.place.get(first)])).toEqual(new Set(convs.map((id) => drawn.place.get(id))));
    // The last of a copy feeds the first two of the next.
    const at = new Map(drawn.graph.boxes.map(({ op }, v) => [op, v]));
    const back = drawn.graph.edges.filter(
      ({ source, target }) => source === at.get("Add") && target < source,
    );
    expect(["Conv", "MaxPool"]).toEqual(back.map(({ target }) => drawn.graph.boxes[target]!.op));
  });

  it("show in only some boxes, whichever copy was asked for", () => {
    const relu = whole.boxes.filter(({ op }) => op === "Relu").at(-1)!.id;
    expect(["24 × net", "/net/Relu_3"]).toEqual(titles(draw(whole, "repeats", [run], [relu])));
  });
});

describe("engine layers", () => {
  it("frame the nodes that each layer swallowed, open at first", () => {
    // The fused view: ONNX nodes inside of the layer they became.
    const whole = chain(2);
    const ids = whole.boxes.map(({ id }) => id);
    const engine = engineView({
      graph: graph("e", [box({ id: "L1", kind: "layer" }), box({ id: "L2", kind: "layer" })]),
      pairs: [1, 2].map((v) => ({
        node: ids[v]!,
        layer: "L1",
        evidence: "declared" as const,
        role: "work" as const,
      })),
    });
    const drawn = arrange(
      whole,
      { grouping: "layers", folds: new Set(), only: null },
      engine,
      new Mapping(engine),
    );
    const [frame] = drawn.frames;
    expect("layer 1").toBe(drawn.graph.boxes[frame!]!.title);
    expect([ids[1], ids[2]]).toEqual(
      drawn.graph.boxes.flatMap(({ id }, v) => (drawn.parent[v] === frame ? [id] : [])),
    );
  });

  it("hold a node of several layers once, in the first, and run in the order of the graph", () => {
    // The Q of a node may end up in the layer before it; the node itself is not fused with that layer.
    const whole = chain(2);
    const ids = whole.boxes.map(({ id }) => id);
    const made = [
      [2, "L1"],
      [1, "L1"],
      [3, "L2"],
      [3, "L1"],
    ] as const;
    const engine = engineView({
      graph: graph("e", [box({ id: "L1", kind: "layer" }), box({ id: "L2", kind: "layer" })]),
      pairs: made.map(([v, layer]) => ({ node: ids[v]!, layer, evidence: "declared", role: "work" })),
    });
    const arrangement = { grouping: "layers", folds: new Set<string>(), only: null } as const;
    const drawn = arrange(whole, arrangement, engine, new Mapping(engine));
    expect([[ids[1], ids[2]]]).toEqual(
      [...drawn.frames].map((frame) => [...drawn.members(drawn.graph.boxes[frame]!.id)]),
    );
  });
});

describe("bodies", () => {
  const whole = {
    ...graph("g", [
      box({ id: "x", kind: "input" }),
      box({ id: "if", op: "If" }),
      box({ id: "a", parent: 1, body: "then_branch" }),
      box({ id: "b", parent: 1, body: "else_branch" }),
      box({ id: "y", kind: "output" }),
    ]),
    edges: [edge(0, 1), edge(0, 2), edge(1, 4)],
  };

  it("are folded into their node at first", () => {
    // A model with control flow opens as calmly as any other.
    const drawn = draw(whole, "none");
    expect(["x", "if", "y"]).toEqual(titles(drawn));
    expect([1, 1]).toEqual([drawn.place.get("a"), drawn.place.get("b")]);
  });

  it("open in place, each branch in a frame of its own", () => {
    // The value that the branch reads from outside leads into it.
    const drawn = draw(whole, "none", ["if"]);
    expect(["x", "if", "then_branch", "a", "else_branch", "b", "y"]).toEqual(titles(drawn));
    const ends = drawn.graph.edges.map(({ source, target }) => [
      titles(drawn)[source],
      titles(drawn)[target],
    ]);
    expect(ends).toContainEqual(["x", "a"]);
  });
});

describe("only some boxes", () => {
  it("are joined where paths lead from one to the other through boxes left out", () => {
    // A filter must not make connected nodes look unconnected.
    const whole = chain(2);
    const [conv] = whole.boxes.filter(({ op }) => op === "Conv");
    const drawn = draw(whole, "none", [], [conv!.id, "out"]);
    expect([conv!.id, "out"]).toEqual(drawn.graph.boxes.map(({ id }) => id));
    expect([[0, 1, "…"]]).toEqual(
      drawn.graph.edges.map(({ source, target, label }) => [source, target, label]),
    );
  });
});
