import { describe, expect, it } from "vitest";
import type { Slice } from "../src/core/contract";
import { barsOf, byWidth, coverageFact, matrixOf, timeFact } from "../src/panels/engine_summary";
import { summary } from "./payloads";

const ids = (count: number): string[] => Array.from({ length: count }, (_, k) => `L${k}`);
const slice = (name: string, layers: number, milliseconds: number | null): Slice => ({
  name,
  layers: ids(layers),
  milliseconds,
  share: null,
});

describe("bars", () => {
  it("are as long as times, the longest first", () => {
    const bars = barsOf([slice("few", 1, 3), slice("many", 9, 1), slice("untimed", 20, null)]);
    expect(["few 1", "many 0.33", "untimed 0"]).toEqual(
      bars.map(({ slice: { name }, length }) => `${name} ${Number(length.toFixed(2))}`),
    );
  });

  it("count layers where no times are known", () => {
    expect(["many 1", "few 0.25"]).toEqual(
      barsOf([slice("few", 1, null), slice("many", 4, null)]).map(
        ({ slice: { name }, length }) => `${name} ${length}`,
      ),
    );
  });

  it("have no length where all is zero", () => {
    // Zero by zero is no width.
    expect([0]).toEqual(barsOf([slice("idle", 2, 0)]).map(({ length }) => length));
  });
});

describe("the matrix of types", () => {
  it("has the widest types first, unknown ones behind, and no type last", () => {
    expect(["fp32", "bf16", "fp16", "fp8", "int8", "weird", "wild", ""]).toEqual(
      ["", "int8", "wild", "fp16", "weird", "fp32", "fp8", "bf16"].sort(byWidth),
    );
  });

  it("has a row for what is read, a column for what is written, and the most of a cell", () => {
    const cell = (before: string, after: string, layers: number, milliseconds: number | null) => ({
      before,
      after,
      layers: ids(layers),
      milliseconds,
    });
    const timed = matrixOf([cell("fp16", "fp32", 1, 0.5), cell("fp32", "fp16", 7, 0.25)]);
    expect([["fp32", "fp16"], ["fp32", "fp16"], 0.5, 7]).toEqual([
      timed.reads,
      timed.writes,
      timed.most,
      timed.cells.get("fp32 fp16")?.layers.length,
    ]);
    expect([7, 0]).toEqual([matrixOf([cell("fp32", "fp32", 7, null)]).most, matrixOf([]).most]);
  });
});

describe("coverage", () => {
  const known = {
    nodes: 40,
    all_nodes: 49,
    explained: 8,
    layers: 60,
    all_layers: 66,
    moves: 6,
    declared: 38,
    pairs: 42,
  };

  it("is a number, with the evidence", () => {
    const { text, why } = coverageFact(known);
    expect("48 of 49 nodes and 66 of 66 layers explained").toBe(text);
    expect("38 of 42 links declared by the compiler, the others inferred").toBe(why.split("\n")[0]);
    expect("all 42 links declared by the compiler").toBe(
      coverageFact({ ...known, declared: 42 }).why.split("\n")[0],
    );
  });

  it("says so where the files are of another model, and where there is none", () => {
    // "All 0 links" would sound like praise.
    expect("no layer names a node of this model").toBe(
      coverageFact({ ...known, pairs: 0, declared: 0 }).why.split("\n")[0],
    );
    expect(["66 layers", true]).toEqual([
      coverageFact({ ...known, all_nodes: 0 }).text,
      coverageFact({ ...known, all_nodes: 0 }).why.startsWith("No ONNX model was given"),
    ]);
  });
});

describe("the sum of the layers", () => {
  const of = (part: Parameters<typeof summary>[0]) =>
    timeFact(summary({ source: "measured, trtexec", processor: "GPU", ...part }));

  it("stands beside the latency with its origin, and says why they differ", () => {
    const over = of({ summed: 1.3, total: 1, ratio: 1.3 });
    expect("layers sum to ● 1.30 ms, 130 % of the latency ● 1.00 ms").toBe(over?.text);
    expect([true, true, true]).toEqual([
      over?.why.startsWith("Overlap lost"),
      of({ summed: 0.5, total: 1, ratio: 0.5 })?.why.startsWith("The rest"),
      of({ summed: 1, total: 1, ratio: 1.01 })?.why.startsWith("Layers and latency agree"),
    ]);
  });

  it("stands alone where no latency is known, and nothing stands where nothing is", () => {
    expect(["layers sum to ● 1.30 ms", "latency ● 2.00 ms", null]).toEqual([
      of({ summed: 1.3 })?.text,
      of({ total: 2 })?.text,
      of({}),
    ]);
  });
});
