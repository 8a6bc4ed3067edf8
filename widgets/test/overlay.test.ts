import { describe, expect, it } from "vitest";
import { cividis, diverging } from "../src/colour";
import { Links } from "../src/links";
import { activeMode, colourModes, lookOf, Scale } from "../src/overlay";
import { box, engineView, graph, overlay, reading } from "./payloads";

describe("scale", () => {
  it("runs from the lowest to the highest value in cividis", () => {
    // The legend tells exactly this range.
    const scale = new Scale([0.02, 0.26, 0.1]);
    expect([0.02, 0.26]).toEqual([scale.low, scale.high]);
    expect([cividis(0), cividis(1)]).toEqual([scale.colour(0.02), scale.colour(0.26)]);
  });

  it("is centred on zero when values have both signs", () => {
    // No change must look like no change, however lopsided the differences are.
    const scale = new Scale([-0.1, 0.4]);
    expect([-0.4, 0.4]).toEqual([scale.low, scale.high]);
    expect(diverging(0.5)).toBe(scale.colour(0));
  });

  it("gives one value alone a colour", () => {
    // An engine of one layer has a range of zero.
    expect(cividis(0.5)).toBe(new Scale([3]).colour(3));
  });
});

describe("look", () => {
  const layers = graph("engine", [box({ id: "A", kind: "layer" }), box({ id: "B", kind: "layer" })]);
  const estimated = overlay({
    id: "roof",
    title: "Roofline",
    origin: "estimated",
    layers: { A: reading(0.5) },
  });
  const engine = engineView({
    graph: layers,
    overlays: [overlay({ layers: { A: reading(0.21), B: reading(0.05) } }), estimated],
    pairs: [{ node: "n", layer: "B", evidence: "declared" }],
  });
  const links = new Links(engine);

  it("marks every number with its origin and sets estimates in italics", () => {
    // An estimate must never be displayed as a measurement.
    const measured = lookOf("layer", layers, "time", engine, links);
    const roof = lookOf("layer", layers, "roof", engine, links);
    expect(["● 210 µs", "● 50.0 µs"]).toEqual(measured.text);
    expect(["○ 500 µs", null]).toEqual(roof.text);
    expect([false, true]).toEqual([measured.italic, roof.italic]);
  });

  it("leaves boxes without a number uncoloured", () => {
    // Absent is not low.
    expect(null).toBe(lookOf("layer", layers, "roof", engine, links).colour[1]);
  });

  it("gives a node the hue of its layer", () => {
    // Colour by layer is how fused groups are seen at a glance.
    const nodes = graph("model", [box({ id: "n" }), box({ id: "loose" })]);
    const left = lookOf("node", nodes, "layer", engine, links);
    const right = lookOf("layer", layers, "layer", engine, links);
    expect(left.colour[0]).toBe(right.colour[1]);
    expect(null).toBe(left.colour[1]);
  });

  it("offers only overlays that have numbers for the side", () => {
    // A choice that colours nothing is noise.
    expect(["operator", "layer"]).toEqual(colourModes("node", engine).map(({ id }) => id));
    expect(["time", "roof", "layer", "precision", "none"]).toEqual(
      colourModes("layer", engine).map(({ id }) => id),
    );
  });

  it("falls back to the first way when the wanted one is gone", () => {
    // Another variant may not have been measured.
    expect("operator").toBe(activeMode("node", "sqnr", engine));
    expect("precision").toBe(activeMode("layer", "time", null));
  });
});
