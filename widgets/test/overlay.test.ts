import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { EngineView, Graph, Side } from "../src/core/contract";
import { Mapping } from "../src/core/mapping";
import { cividis } from "../src/graph/colour";
import {
  activeMode,
  colourModes,
  combined,
  lookOf,
  once,
  type Pictured,
  Scale,
  worst,
} from "../src/graph/overlay";
import { arrange, PLAIN } from "../src/graph/visible_graph";
import { box, engineView, graph, overlay, reading } from "./payloads";

describe("scale", () => {
  it("runs from the lowest to the highest value in cividis", () => {
    // The legend tells exactly this range.
    const scale = new Scale([0.02, 0.26, 0.1]);
    expect([0.02, 0.26]).toEqual([scale.low, scale.high]);
    expect([cividis(0), cividis(1)]).toEqual([scale.colour(0.02), scale.colour(0.26)]);
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
    pairs: [{ node: "n", layer: "B", evidence: "declared", role: "work" }],
    unmapped: [{ node: "loose", reason: "view", text: "" }],
  });
  const nodes = graph("model", [box({ id: "n" }), box({ id: "loose" })]);
  const shown = (side: Side, what: Graph, view: EngineView): Pictured => {
    const links = new Mapping(view);
    return { side, visible: arrange(what, PLAIN, null, links), engine: view, links };
  };
  const left = shown("node", nodes, engine);
  const right = shown("layer", layers, engine);

  it("marks every number with its origin and sets estimates in italics", () => {
    // An estimate must never be displayed as a measurement.
    const measured = lookOf(right, "time");
    const roof = lookOf(right, "roof");
    expect(["● 210 µs", "● 50.0 µs"]).toEqual(measured.text);
    expect(["○ 500 µs", null]).toEqual(roof.text);
    expect([false, true]).toEqual([measured.italic, roof.italic]);
  });

  it("leaves boxes without a number uncoloured", () => {
    // Absent is not low.
    expect(null).toBe(lookOf(right, "roof").colour[1]);
  });

  it("gives a node the hue and the number of its layer", () => {
    // Colour by layer is how fused groups are seen at a glance, and with eleven layers a hue comes twice.
    const [node, layer] = [lookOf(left, "layer", [left]), lookOf(right, "layer", [right])];
    expect(node.colour[0]).toBe(layer.colour[1]);
    expect(["L2", null]).toEqual(node.badge);
    expect(["L1", "L2"]).toEqual(layer.badge);
  });

  it("gives layers of two engines that hold the same nodes one hue", () => {
    // Otherwise the eye would compare colours that mean nothing to each other.
    const fused = graph("other", [box({ id: "X", kind: "layer" }), box({ id: "Y", kind: "layer" })]);
    const second = engineView({
      graph: fused,
      pairs: [{ node: "n", layer: "X", evidence: "declared", role: "work" }],
    });
    const third = shown("other", fused, second);
    const [a, b] = [lookOf(right, "layer", [right, third]), lookOf(third, "layer", [right, third])];
    expect([a.colour[1], null]).toEqual(b.colour);
    expect(["L1", "L2"]).toEqual(b.badge);
  });

  it("measures two engines with one scale", () => {
    // The same colour is the same time, or comparing side by side would mislead.
    const slow = engineView({ graph: layers, overlays: [overlay({ layers: { A: reading(0.9) } })] });
    const both = [right, shown("other", layers, slow)];
    const [a, b] = both.map((one) => lookOf(one, "time", both));
    expect(a!.legend).toEqual(b!.legend);
    expect({ low: "50.0 µs", high: "900 µs" }).toMatchObject({
      low: a!.legend!.kind === "scale" && a!.legend!.low,
      high: b!.legend!.kind === "scale" && b!.legend!.high,
    });
    expect(cividis(1)).toBe(b!.colour[0]);
    expect(a!.colour[0]).not.toBe(b!.colour[0]);
  });

  it("tells why a node has no layer by colour and by glyph", () => {
    // Colour is never the only sign.
    const look = lookOf(left, "reason");
    expect([null, "↷"]).toEqual(look.badge);
    expect([true, false]).toEqual(look.colour.map((colour) => colour === null));
    expect(look.legend).toMatchObject({ classes: [{ label: "view", badge: "↷" }] });
  });

  it("gives a folded group a class only when all members agree", () => {
    // A card in int8's colour must hold no fp16 layer.
    const mixed = graph("engine", [
      box({ id: "A", kind: "layer", precision: "int8" }),
      box({ id: "B", kind: "layer", precision: "int8" }),
      box({ id: "C", kind: "layer", precision: "fp16" }),
    ]);
    const view = engineView({ graph: mixed });
    const groups: Record<string, string[]> = { A: ["A", "B"], C: ["B", "C"] };
    const here = shown("layer", mixed, view);
    const folded = { ...here, visible: { ...here.visible, members: (id: string) => groups[id] ?? [id] } };
    const look = lookOf(folded, "precision");
    expect(["int8", "int8", null]).toEqual(look.badge);
    expect(null).toBe(look.colour[2]);
  });

  it("colours a node by its own precision, and by that of its layer where none is told", () => {
    // A layer of int8 may hold a node that was pinned to fp16; names of nodes are names, not fields of objects.
    const cards = graph("engine", [box({ id: "A", kind: "layer", precision: "int8" })]);
    const inside = graph("model", [box({ id: "conv" }), box({ id: "constructor" }), box({ id: "folded" })]);
    const view = engineView({
      graph: cards,
      precisions: { conv: "fp16" },
      pairs: [
        { node: "conv", layer: "A", evidence: "declared", role: "work" },
        { node: "constructor", layer: "A", evidence: "declared", role: "work" },
      ],
    });
    expect(["fp16", "int8", null]).toEqual(lookOf(shown("node", inside, view), "precision").badge);
    expect(["int8"]).toEqual(lookOf(shown("layer", cards, view), "precision").badge);
  });

  it("offers only what tells boxes apart", () => {
    // A choice that colours nothing is noise.
    expect(["operator", "layer", "precision", "reason", "none"]).toEqual(
      colourModes("node", [engine]).map(({ id }) => id),
    );
    expect(["time", "roof", "layer", "precision", "operator", "none"]).toEqual(
      colourModes("layer", [engine]).map(({ id }) => id),
    );
  });

  it("falls back to the first way when the wanted one is gone", () => {
    // Another variant may not have been measured.
    expect("operator").toBe(activeMode(colourModes("node", [engine]), "sqnr"));
    expect("operator").toBe(activeMode(colourModes("layer", []), "time"));
    // Times of a large engine come after its picture; until then its layers are not coloured by something else.
    expect("none").toBe(activeMode(colourModes("layer", []), "time", true));
    expect("time").toBe(activeMode(colourModes("layer", [engine]), "time", true));
  });
});

describe("numbers of several boxes", () => {
  const time = overlay({ layers: { A: reading(2, 2), B: reading(2, 2), C: reading(1) } });
  const error = overlay({
    unit: "dB",
    best: "high",
    layers: { A: reading(40), B: reading(22), C: reading(31) },
  });

  it("add up, a shared number once", () => {
    // Two layers that took 2 ms together did not take 4 ms.
    const sum = combined(time, "layer", ["A", "B", "C", "absent"]);
    expect(3).toBe(sum?.value);
    expect("sum of 3 layers, shared ones once").toBe(sum?.how);
  });

  it("are the worst where they do not add up", () => {
    // Decibels of a block have no sum; the place to look at is the worst layer.
    const worst = combined(error, "layer", ["A", "B", "C"]);
    expect([22, "worst of 3 layers"]).toEqual([worst?.value, worst?.how]);
  });

  it("stay as they are for one box, and absent for none", () => {
    // A sum of one is no sum, and nothing is not zero.
    expect({ ...reading(1), how: "" }).toEqual(combined(time, "layer", ["C"]));
    expect(null).toBe(combined(time, "layer", ["absent"]));
  });

  it("are those of the layer itself for the frame of a layer", () => {
    // A layer also runs what no node of the source stands for: its time is not the sum over its nodes.
    const timed = overlay({ layers: { A: reading(13) }, nodes: { conv: reading(5), relu: reading(4) } });
    const frame = box({ id: "layer:A", kind: "group" });
    expect([13, "of the layer"]).toEqual(
      ["value", "how"].map((key) => combined(timed, "node", ["conv", "relu"], frame)?.[key as "how"]),
    );
  });

  it("are counted once when boxes share them", () => {
    // Three lines with the same number look like three slow layers.
    const together = { value: 0.13, spread: null, shared: 3, note: "A, together with 2 other layers" };
    const entries = once([
      ["A", together],
      ["B", together],
      ["C", together],
      ["D", { ...together, note: "D, together with 2 other layers" }],
      ["E", { value: 0.13, spread: null, shared: 1, note: "" }],
      ["F", { value: 0.13, spread: null, shared: 1, note: "" }],
    ]);
    expect(["A", "D", "E", "F"]).toEqual(entries.map(([id]) => id));
  });
});

describe("numbers of repeated blocks", () => {
  // Layers a0 b0 a1 b1 a2 b2: three blocks of two.
  const ids = [0, 1, 2].flatMap((k) => [`a${k}`, `b${k}`]);
  const boxes = ids.map((id) => box({ id, kind: "layer" }));
  const whole = {
    ...graph("e", boxes),
    repeats: [
      {
        title: "3 × block",
        count: 3,
        rows: [
          [0, 2, 4],
          [1, 3, 5],
        ],
      },
    ],
  };
  const times = [4, 1, 5, 1, 6, 1];
  const timed = overlay({ layers: Object.fromEntries(ids.map((id, k) => [id, reading(times[k]!)])) });
  const visible = arrange(whole, { ...PLAIN, grouping: "repeats" }, null, new Mapping(null));

  it("are the sum over the blocks, with what each has", () => {
    expect([15, "sum of 3 blocks, each 4.00 ms to 6.00 ms"]).toEqual(
      ((found) => [found?.value, found?.how])(combined(timed, "layer", visible.members("a0"), null, 3)),
    );
    const run = visible.members("repeat:a0");
    expect([18, "sum of 3 blocks, each 5.00 ms to 7.00 ms"]).toEqual(
      ((found) => [found?.value, found?.how])(
        combined(timed, "layer", run, null, visible.copies("repeat:a0")),
      ),
    );
  });

  it("are one entry among the highest", () => {
    // The same layer of three blocks is one finding, not the first three.
    expect([
      ["a0", 15],
      ["b0", 3],
    ]).toEqual(worst(timed, "layer", visible, 3).map(([id, { value }]) => [id, value]));
  });
});

describe("the worst numbers", () => {
  it("are the first ones of all of them in order", () => {
    // Sorting everything is the plain way, which takes too long for many layers.
    const readings = fc.array(fc.tuple(fc.integer({ min: -3, max: 3 }), fc.integer({ min: 1, max: 2 })));
    fc.assert(
      fc.property(readings, fc.constantFrom("low" as const, "high" as const), (list, best) => {
        const values = Object.fromEntries(
          list.map(([value, shared], k) => [`l${k}`, reading(value, shared)]),
        );
        const sign = best === "low" ? -1 : 1;
        const sorted = Object.entries(values).sort(([, a], [, b]) => sign * (a.value - b.value));
        const boxes = Object.keys(values).map((id) => box({ id, kind: "layer" }));
        const visible = arrange(graph("e", boxes), PLAIN, null, new Mapping(null));
        const found = worst(overlay({ layers: values, best }), "layer", visible, 3);
        expect(
          once(sorted)
            .slice(0, 3)
            .map(([id]) => id),
        ).toEqual(found.map(([id]) => id));
      }),
    );
  });
});
