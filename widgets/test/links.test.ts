import { describe, expect, it } from "vitest";
import type { EngineView } from "../src/contract";
import { Links } from "../src/links";
import { engineView } from "./payloads";

const engine: EngineView = engineView({
  pairs: [
    { node: "conv", layer: "A", evidence: "declared" },
    { node: "relu", layer: "A", evidence: "inferred" },
    { node: "add", layer: "A", evidence: "declared" },
    { node: "add", layer: "B", evidence: "merged" },
  ],
  unmapped: [{ node: "reshape", reason: "view", text: "It moves no data." }],
});

describe("links", () => {
  const links = new Links(engine);

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
    const none = new Links(null);
    expect(true).toBe(none.empty);
    expect([]).toEqual(none.layersOf(["conv"]));
  });
});
