import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Box, Edge, Graph, Grouping } from "../src/core/contract";
import { Mapping } from "../src/core/mapping";
import { repeats } from "../src/graph/groups";
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
  return { ...graph("chain", boxes), edges };
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
    return { whole: { ...graph("g", boxes), edges }, folds, grouping };
  });

/** Folds of groups that the arrangement really has, chosen by number. */
function folded(whole: Graph, grouping: Grouping, picks: number[]): VisibleGraph {
  const groups = [...draw(whole, grouping).place.keys()].filter((id) => /^(scope|repeat|block):/.test(id));
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
                ? self && drawn.graph.boxes[s]!.kind !== "group"
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

  it("of everything open gives the graph's own boxes and edges", () => {
    // Opening all groups brings the whole picture back.
    const whole = chain(5, 2);
    const ids = [...draw(whole, "repeats").place.keys()];
    const drawn = draw(
      whole,
      "repeats",
      ids.filter((id) => /^(repeat|block):/.test(id)),
    );
    expect(whole.boxes.length).toBe(drawn.graph.boxes.filter(({ kind }) => kind !== "group").length);
    expect(whole.edges.length).toBe(drawn.graph.edges.length);
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
  it("become one box that says how many", () => {
    // "x 24" is what a reader wants of an encoder, between what comes before and after it.
    expect(["in", "/net/Gemm_1", "24 × net", "out"]).toEqual(titles(draw(chain(24, 1), "repeats")));
  });

  it("are called what their names have in common", () => {
    // "24 × encoder/layer", not the name of the first of them.
    const whole = chain(4);
    const boxes = whole.boxes.map((each, i) => ({
      ...each,
      title: each.kind === "node" ? `/encoder/layer.${Math.floor((i - 1) / 4)}/${each.op}` : each.title,
    }));
    expect("4 × encoder/layer").toBe(titles(draw({ ...whole, boxes }, "repeats"))[1]);
  });

  it("open to their copies, and a copy to its nodes", () => {
    // One step at a time: the run, a block, its nodes.
    const whole = chain(3);
    const run = draw(whole, "repeats").graph.boxes[1]!.id;
    const opened = draw(whole, "repeats", [run]);
    const blocks = opened.graph.boxes.filter(({ op }) => op === "block");
    expect(3).toBe(blocks.length);
    const one = draw(whole, "repeats", [run, blocks[1]!.id]);
    const inner = one.graph.boxes.filter((_, v) => one.graph.boxes[one.parent[v]!]?.id === blocks[1]!.id);
    expect(["Conv", "Relu", "MaxPool", "Add"].sort()).toEqual(inner.map(({ op }) => op).sort());
  });

  it("of one name are numbered, runs as well as copies", () => {
    // Three times "net" tells nobody which is which: of two runs each, and of the copies in one.
    const whole = chain(6);
    const odd = whole.boxes.findIndex(({ op }, i) => op === "MaxPool" && i > 12);
    const boxes = whole.boxes.map((each, i) => (i === odd ? { ...each, op: "AveragePool" } : each));
    const broken = { ...whole, boxes };
    const runs = draw(broken, "repeats").graph.boxes.filter(({ op }) => op === "repeat");
    const opened = draw(broken, "repeats", [runs[0]!.id]);
    const named = opened.graph.boxes.filter(({ op }) => op === "block").map(({ title }) => title);
    expect(["net · 1 of 3", "net · 2 of 3", "net · 3 of 3"]).toEqual(named);
    // Four blocks, one that is another, and four again: two runs of the same name.
    const twice = chain(9);
    const middle = twice.boxes.findIndex(({ op }, i) => op === "MaxPool" && i > 16);
    const two = twice.boxes.map((each, i) => (i === middle ? { ...each, op: "AveragePool" } : each));
    expect(["4 × net · 1 of 2", "4 × net · 2 of 2"]).toEqual(
      titles(draw({ ...twice, boxes: two }, "repeats")).filter((title) => title.includes("×")),
    );
  });

  it("of another operator break the run", () => {
    // Blocks that differ in one operator are not the same block.
    const whole = chain(6);
    const odd = whole.boxes.findIndex(({ op }, i) => op === "MaxPool" && i > 12);
    const boxes = whole.boxes.map((each, i) => (i === odd ? { ...each, op: "AveragePool" } : each));
    const drawn = draw({ ...whole, boxes }, "repeats");
    expect(["3 × net", "2 × net"]).toEqual(titles(drawn).filter((title) => title.includes("×")));
  });

  it("are runs of equal stretches that do not overlap", () => {
    // Against the definition, on any sequence.
    fc.assert(
      fc.property(fc.array(fc.nat(2), { maxLength: 40 }), (sign) => {
        let end = 0;
        for (const { start, period, count } of repeats(
          sign,
          sign.map(() => 3),
        )) {
          expect(start).toBeGreaterThanOrEqual(end);
          end = start + period * count;
          const words = Array.from({ length: count }, (_, k) =>
            sign.slice(start + k * period, start + (k + 1) * period).join(),
          );
          expect(1).toBe(new Set(words).size);
          expect(count).toBeGreaterThan(1);
          expect(period).toBe(words[0]!.split(",").length);
        }
      }),
    );
  });

  it("with a period of several stretches are found as one block", () => {
    // Attention and feed-forward together are one layer of a transformer.
    expect([{ start: 1, period: 2, count: 4 }]).toEqual(
      repeats([9, 1, 2, 1, 2, 1, 2, 1, 2, 8], Array(10).fill(4)),
    );
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
