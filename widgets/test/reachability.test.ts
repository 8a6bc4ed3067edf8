import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Graph } from "../src/core/contract";
import { downstream, paths, upstream } from "../src/graph/reachability";
import { any, inception } from "./graphs";
import { box, graph } from "./payloads";

const chart = (size: number, edges: readonly (readonly [number, number])[]): Graph => ({
  ...graph(
    "g",
    Array.from({ length: size }, (_, v) => box({ id: String(v) })),
  ),
  edges: edges.map(([source, target]) => ({ source, target, value: "t", label: "" })),
});

/** Reachability by Warshall's closure: slow, and nothing like a search. */
function closure(size: number, edges: readonly (readonly [number, number])[]): boolean[][] {
  const reach = Array.from({ length: size }, (_, a) => Array.from({ length: size }, (_, b) => a === b));
  for (const [a, b] of edges) reach[a]![b] = true;
  for (let k = 0; k < size; k++)
    for (let a = 0; a < size; a++)
      if (reach[a]![k]) for (let b = 0; b < size; b++) reach[a]![b] ||= reach[k]![b]!;
  return reach;
}

describe("trace", () => {
  it("finds exactly what is reachable, cycles included", () => {
    // A node left out of the trace would hide the cause that someone looks for.
    fc.assert(
      fc.property(any, ({ size, edges }) => {
        const g = chart(size, edges);
        const reach = closure(size, edges);
        const all = Array.from({ length: size }, (_, v) => v);
        for (const v of all) {
          expect(all.filter((u) => reach[u]![v]).map(String)).toEqual(upstream(g, [String(v)]));
          expect(all.filter((u) => reach[v]![u]).map(String)).toEqual(downstream(g, [String(v)]));
        }
      }),
      { numRuns: 60 },
    );
  });

  it("finds every box on a path between two, in whichever direction they are given", () => {
    // Who clicks the later box first asks the same question.
    fc.assert(
      fc.property(any, fc.nat(), fc.nat(), ({ size, edges }, p, q) => {
        const [a, b] = [p % size, q % size];
        const reach = closure(size, edges);
        const [from, to] = reach[a]![b] ? [a, b] : [b, a];
        const wanted = reach[from]![to]
          ? Array.from({ length: size }, (_, v) => v).filter((v) => reach[from]![v] && reach[v]![to])
          : [];
        expect(wanted.map(String)).toEqual(paths(chart(size, edges), [String(a)], [String(b)]));
      }),
      { numRuns: 60 },
    );
  });

  it("leaves a body through the node whose body it is", () => {
    // What the branch of an If computes is what the If gives on.
    const g = graph("g", [box({ id: "if" }), box({ id: "inner", parent: 0 }), box({ id: "after" })]);
    g.edges.push({ source: 0, target: 2, value: "t", label: "" });
    expect(["if", "inner", "after"]).toEqual(downstream(g, ["inner"]));
    expect(["if", "inner", "after"]).toEqual(upstream(g, ["after"]));
  });

  it("ignores ids that the graph does not have", () => {
    // A selection may outlive the graph it was made in.
    expect([]).toEqual(upstream(chart(2, [[0, 1]]), ["gone"]));
  });

  it("walks a graph of a hundred thousand boxes without recursion", () => {
    // A recursive search would end in a stack overflow on deep networks.
    const { size, edges } = inception(6000);
    expect(size).toBe(upstream(chart(size, edges), [String(size - 1)]).length);
  });
});
