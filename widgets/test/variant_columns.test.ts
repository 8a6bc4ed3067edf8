import { describe, expect, it } from "vitest";
import type { Chip } from "../src/core/contract";
import { variantColumns } from "../src/explorer/variant_columns";
import { variant } from "./payloads";

const CPU = "measured, ONNX Runtime 1.32, CPU, 30 runs";
const WIDE = 2000;
const fp32 = variant({
  id: "fp32",
  target: "sm86",
  baseline: true,
  nodes: 43,
  layers: 20,
  estimate: 0.119,
  estimate_gpu: "RTX 3090",
  time: 0.113,
  time_source: CPU,
  score: 98.6,
  score_unit: "%",
});
const int8 = variant({
  ...fp32,
  id: "int8",
  label: "int8·auto",
  baseline: false,
  calibrator: "auto",
  estimate: 0.134,
  score: 97.9,
  score_delta: -0.7,
  sqnr: 20.04,
});
const table = (chips: readonly Chip[], room = WIDE): string[][] => {
  const columns = variantColumns(chips, room);
  return [
    columns.map(({ heading }) => heading),
    ...chips.map((chip) => columns.map(({ text }) => text(chip))),
  ];
};
const headings = (chips: readonly Chip[], room = WIDE): string => table(chips, room)[0]!.join(" | ");

describe("the columns of the variants", () => {
  it("have units in their headings and numbers below", () => {
    expect(table([fp32, int8])).toEqual([
      [
        "Variant",
        "Calibrator",
        "Target",
        "Nodes → layers",
        "○ GPU estimate (µs)",
        "● CPU time (µs)",
        "● Score (%)",
        "● Output SQNR (dB)",
        "● To fp32 (pt)",
      ],
      ["fp32", "", "sm86", "43 → 20", "119", "113", "98.6", "", ""],
      ["int8·auto", "auto", "sm86", "43 → 20", "134", "113", "97.9", "20.0", "−0.7"],
    ]);
  });

  it("are those that have a value, of variants that are built", () => {
    const plain = variant({ id: "fp32", target: "cpu" });
    expect(headings([plain])).toBe("Variant | Target | Nodes → layers");
    expect(headings([plain, { ...int8, status: "failed" }])).toBe("Variant | Target | Nodes → layers");
    expect(headings([{ ...int8, status: "building" }])).toBe("Variant");
    expect(headings([])).toBe("Variant");
  });

  it("name the GPU, the processor and the unit of each number where these differ", () => {
    const l4 = { ...int8, estimate_gpu: "L4", estimate: 0.2 };
    expect(table([fp32, l4]).map((row) => row[4])).toEqual(["○ GPU estimate (µs)", "119 RTX 3090", "200 L4"]);
    const recorded = { ...int8, time: 2, time_source: "measured, trtexec, GPU" };
    expect(table([fp32, recorded]).map((row) => row[5])).toEqual(["● Time (ms)", "0.113 CPU", "2.00 GPU"]);
    const loss = { ...int8, score: 5.2, score_unit: "nats" };
    expect(table([fp32, loss]).map((row) => row[6])).toEqual(["● Score", "98.6 %", "5.20 nats"]);
  });

  it("say why there is no number", () => {
    const equal = { ...int8, sqnr: null, sqnr_told: "equal to fp32" };
    expect(table([fp32, equal])[2]![7]).toBe("equal to fp32");
    const withheld = { ...int8, estimate: null, estimate_source: "off by 3" };
    expect(table([fp32, withheld])[2]![4]).toBe("not measured");
  });

  it("count what an engine has, and say whether rules made it", () => {
    const regions = variant({ id: "cpu", nodes: 4, layers: 3, counted: "region" });
    expect(table([regions])).toEqual([
      ["Variant", "Nodes → regions"],
      ["cpu", "4 → 3"],
    ]);
    const predicted = variant({ id: "classic", nodes: 0, layers: 5, predicted: true });
    expect(table([regions, predicted]).map((row) => row[1])).toEqual([
      "Nodes → layers",
      "4 → 3 regions",
      "◌ 5 layers",
    ]);
  });

  it("give way to the more important ones where there is little room, and the name stays", () => {
    const rooms = [900, 770, 600, 480, 350, 10];
    expect(rooms.map((room) => headings([fp32, int8], room).replaceAll(/[○●] | \([^)]*\)/g, ""))).toEqual([
      "Variant | Calibrator | Target | Nodes → layers | GPU estimate | CPU time | Score | Output SQNR | To fp32",
      "Variant | Nodes → layers | GPU estimate | CPU time | Score | Output SQNR | To fp32",
      "Variant | GPU estimate | Score | Output SQNR | To fp32",
      "Variant | GPU estimate | Score | To fp32",
      "Variant | GPU estimate | Score",
      "Variant",
    ]);
  });
});
