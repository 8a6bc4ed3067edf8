import { describe, expect, it } from "vitest";
import type { EngineView, Pair } from "../src/core/contract";
import { colourOf, nodesRunBy } from "../src/core/format";
import { Mapping } from "../src/core/mapping";
import { box, engineView } from "./payloads";

const engine: EngineView = engineView({
  pairs: [
    { node: "conv", layer: "A", evidence: "declared", role: "work" },
    { node: "relu", layer: "A", evidence: "inferred", role: "work" },
    { node: "add", layer: "A", evidence: "declared", role: "work" },
    { node: "add", layer: "B", evidence: "merged", role: "work" },
  ],
  unmapped: [{ node: "reshape", reason: "view", text: "It moves no data." }],
});

describe("roles", () => {
  const pair = (node: string, layer: string, role: "work" | "Q" | "bias"): Pair => ({
    node,
    layer,
    evidence: "declared",
    role,
  });
  const served = new Mapping(
    engineView({
      pairs: [
        pair("conv", "B", "work"),
        pair("conv", "A", "Q"),
        pair("relu", "C", "work"),
        pair("conv", "C", "bias"),
      ],
    }),
  );

  it("are no home: a layer that quantizes for a node or adds its bias does not run it", () => {
    expect([[], ["conv"], ["relu"]]).toEqual(["A", "B", "C"].map((layer) => served.homeOf(layer)));
    expect([[], ["conv"], ["relu"]]).toEqual(["A", "B", "C"].map((layer) => served.nodesRun(layer)));
    expect(["B", "A", "C"]).toEqual(served.layersOf(["conv"]));
  });

  it("are no home for a node whose first layer only serves it", () => {
    const first = new Mapping(engineView({ pairs: [pair("conv", "A", "Q"), pair("conv", "B", "work")] }));
    expect([[], []]).toEqual(["A", "B"].map((layer) => first.homeOf(layer)));
  });

  it("count no fusion and give no colour: a card of Q, Conv and bias runs one node", () => {
    const chips = (["Q", "work", "bias"] as const).map((role, k) => ({
      op: `${k}`,
      family: (["quantize", "convolution", "other"] as const)[k]!,
      node: `${k}`,
      role,
      title: `${k}`,
    }));
    const card = box({ id: "a", kind: "layer", chips });
    expect(["1"]).toEqual(nodesRunBy(card).map(({ op }) => op));
    expect("convolution").toBe(colourOf(card));
  });
});

describe("links", () => {
  const links = new Mapping(engine);

  it("finds every layer of a node and every node of a layer", () => {
    // A click on one side lights up exactly these on the other.
    expect(["A", "B"]).toEqual(links.layersOf(["add"]));
    expect(["conv", "relu", "add"]).toEqual(links.nodesOf(["A"]));
  });

  it("gives each node one home, its first layer", () => {
    // The layer that only runs the Q of a node must not look as if it had swallowed the node.
    expect([["conv", "relu", "add"], []]).toEqual(["A", "B"].map((layer) => links.homeOf(layer)));
  });

  it("names each box once for several clicked ones", () => {
    // Shift-click on two nodes of one layer selects that layer once.
    expect(["A"]).toEqual(links.layersOf(["conv", "relu"]));
  });

  it("tells the evidence of a pair and the reason of a node without a layer", () => {
    // An inferred attribution must never look declared.
    expect("inferred").toBe(links.evidence("relu", "A"));
    expect(null).toBe(links.evidence("relu", "B"));
    expect("view").toBe(links.unmapped("reshape")?.reason);
    expect(null).toBe(links.unmapped("conv"));
  });

  it("knows nothing before the first build", () => {
    // The graph is there before any engine is.
    const none = new Mapping(null);
    expect(true).toBe(none.empty);
    expect([]).toEqual(none.layersOf(["conv"]));
  });
});
