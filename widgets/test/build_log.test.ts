import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { contestShown, fusedAfter, lastJoin, marginWords, passAt, replayable } from "../src/core/build_log";
import type { BuildStory, Contest } from "../src/core/contract";
import { Mapping } from "../src/core/mapping";
import { arrange } from "../src/graph/visible_graph";
import { box, graph, step, story } from "./payloads";

const NAMES = ["a", "b", "c", "d", "e", "f", "g", "h", "__proto__", "constructor"];

/** Builds of up to 14 decisions about ten nodes; some decisions join nothing. */
const stories = fc
  .array(fc.tuple(fc.uniqueArray(fc.constantFrom(...NAMES), { minLength: 0, maxLength: 4 }), fc.boolean()), {
    maxLength: 14,
  })
  .map((list) => story({ steps: list.map(([nodes, joins], k) => step(nodes, { joins, text: `t${k}` })) }));

/** The same groups by walking from node to node over shared decisions, without union-find. */
function walked({ steps }: BuildStory, at: number): string[][] {
  const joins = steps.slice(0, at).filter(({ joins }) => joins);
  const groups: string[][] = [];
  for (const name of NAMES) {
    if (groups.some((group) => group.includes(name))) continue;
    const group = [name];
    for (const one of group)
      for (const { nodes } of joins)
        if (nodes.includes(one)) for (const id of nodes) if (!group.includes(id)) group.push(id);
    if (group.length > 1) groups.push(group.sort());
  }
  return groups.sort();
}

const told = (of: BuildStory, at: number): string[][] =>
  fusedAfter(of, at)
    .map(({ nodes }) => nodes.toSorted())
    .sort();

describe("what a build has fused so far", () => {
  it("is what decisions joined, directly or through others", () => {
    // By definition: a walk over the decisions, node by node.
    fc.assert(
      fc.property(stories, fc.nat(15), (of, at) => {
        expect(walked(of, at)).toEqual(told(of, at));
      }),
    );
  });

  it("only grows from step to step", () => {
    // A builder does not take a fusion back: a frame on the graph never loses a node.
    fc.assert(
      fc.property(stories, fc.nat(13), (of, at) => {
        const later = told(of, at + 1);
        for (const group of told(of, at))
          expect(later.some((wider) => group.every((id) => wider.includes(id)))).toBe(true);
      }),
    );
  });

  it("is nothing before the first step, and without a log", () => {
    expect([[], [], 0]).toEqual([
      fusedAfter(story({ steps: [step(["a", "b"])] }), 0),
      fusedAfter(null, 5),
      lastJoin(null, 5),
    ]);
  });

  it("does not change between decisions that join", () => {
    // The graph is laid out anew only where it has another look.
    fc.assert(
      fc.property(stories, fc.nat(15), (of, at) => {
        expect(fusedAfter(of, at)).toEqual(fusedAfter(of, lastJoin(of, at)));
      }),
    );
  });

  it("tells the decision that last joined each group", () => {
    // The frame says why it is there.
    const of = story({
      steps: [
        step(["a", "b"], { text: "first" }),
        step(["c", "d"], { text: "second" }),
        step(["b", "x"], { text: "third" }),
        step(["d"], { text: "about one node", joins: false }),
      ],
    });
    expect([
      [["a", "b", "x"], 3, "third"],
      [["c", "d"], 2, "second"],
    ]).toEqual(fusedAfter(of, 4).map(({ nodes, step, text }) => [nodes, step, text]));
  });

  it("can be replayed where a decision joins nodes", () => {
    expect([true, false, false]).toEqual([
      replayable(story({ steps: [step(["a", "b"])] })),
      replayable(story({ steps: [step(["a", "b"], { joins: false })] })),
      replayable(null),
    ]);
  });
});

describe("the frames of a replay", () => {
  const model = graph("model", [
    ...["conv", "relu", "add", "pool"].map((id) => box({ id })),
    box({ id: "inner", parent: 3, body: "body" }),
  ]);
  const of = story({
    steps: [step(["relu", "gone"]), step(["conv", "relu"]), step(["add", "relu", "inner"])],
  });
  const drawn = (at: number, folds: string[] = []) =>
    arrange(
      model,
      { grouping: "replay", folds: new Set(folds), only: null, fused: fusedAfter(of, at) },
      null,
      new Mapping(null),
    );
  const frames = (at: number): [string, readonly string[]][] => {
    const { graph, frames, members } = drawn(at);
    return [...frames]
      .map((v) => graph.boxes[v]!)
      .filter(({ kind }) => kind === "group")
      .map(({ id }) => [id, members(id)]);
  };

  it("stand around nodes of the model alone, two at least", () => {
    // A log names layers that no node of the main graph stands for.
    expect([[], [], [["fused:conv", ["conv", "relu"]]]]).toEqual([frames(0), frames(1), frames(2)]);
  });

  it("stay folded while they grow", () => {
    // The name of a group is that of its first node in the graph.
    expect([["fused:conv", ["conv", "relu", "add"]]]).toEqual(frames(3));
    const { graph, place } = drawn(3, ["fused:conv"]);
    expect("fused:conv").toBe(graph.boxes[place.get("add")!]!.id);
  });

  it("say which step made them", () => {
    const { graph } = drawn(3);
    expect(["step 3"]).toEqual(graph.boxes.filter(({ kind }) => kind === "group").map(({ title }) => title));
  });
});

describe("the pass of a step", () => {
  const pass = (first: number, steps: number) => ({ name: "", before: null, after: null, first, steps });

  it("is the one whose decisions hold it; passes without decisions hold none", () => {
    const of = story({ passes: [pass(0, 0), pass(0, 2), pass(2, 0), pass(2, 3)] });
    expect([-1, 1, 1, 3, 3, 3]).toEqual([0, 1, 2, 3, 4, 5].map((at) => passAt(of, at)));
  });
});

describe("the contest on screen", () => {
  const contest = (layer: string, id: string): Contest => ({
    layer,
    id,
    margin: null,
    count: 0,
    candidates: [],
  });
  const contests = [contest("x", "X"), contest("y", "Y"), contest("y2", "Y"), contest("loose", "")];
  const shown = (layers: string[], picked = "") => contestShown(contests, layers, picked)?.layer;

  it("is the selected layer's, else the one that was picked, else the first", () => {
    expect(["x", "y", "loose", "y2", "y"]).toEqual([
      shown([]),
      shown(["Y"]),
      shown([], "loose"),
      shown(["Y"], "y2"),
      shown(["Y"], "x"),
    ]);
  });

  it("is the picked one where the selected layer has none", () => {
    // A layer without tactics, such as a constant, empties nothing.
    expect([shown(["", "Z"], "y"), contestShown([], ["X"], "x")]).toEqual(["y", undefined]);
  });

  it("was won by a factor", () => {
    expect(["1.30× faster than the next", "12× faster than the next", "as fast as the next", ""]).toEqual(
      [1.3, 12.4, 1, null].map(marginWords),
    );
  });
});
