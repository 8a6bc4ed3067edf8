import { describe, expect, it } from "vitest";
import type { Chip, Choice } from "../src/core/contract";
import {
  differs,
  fits,
  pinned,
  prunable,
  pruned,
  repinned,
  repruned,
  variantName,
} from "../src/explorer/choice";
import { box, variant } from "./payloads";

const choice = (part: Partial<Choice> = {}): Choice => ({
  model: "tiny",
  precision: "int8",
  calibrator: "entropy2",
  target: "sm86",
  backend: "tensorrt_rtx",
  pins: [],
  weights: "channel",
  sparsity: [],
  treatments: [],
  sizes: [],
  ...part,
});

const weight = { name: "w", dtype: "fp32", shape: "8×8×3×3", format: "", constant: true };
const stem = box({ id: "stem/Conv", inputs: [weight] });
const head = box({ id: "head/Gemm", op: "Gemm", inputs: [weight] });
const relu = box({ id: "head/Relu", op: "Relu" });
const all = [stem, head];

describe("patterns", () => {
  it("fit ids and names with * and ?, and operators with op:", () => {
    // The kernel reads them this way; what the panel shows must be what is built.
    expect([true, false]).toEqual([fits("head/*", head), fits("head/*", stem)]);
    expect([true, true]).toEqual([fits("*/Gem?", head), fits("op:Gemm", head)]);
    expect([true, false]).toEqual([fits("first", box({ id: "n1", title: "first" })), fits("op:Conv", head)]);
  });

  it("read brackets as sets, but a name that is the pattern itself fits first", () => {
    // Pins that the panel sets are ids, and exporters write layers[0] into these.
    const first = box({ id: "layers[0]/Conv" });
    expect([true, true, false]).toEqual([
      fits("layers[0]/Conv", first),
      fits("layer[0-3]", box({ id: "layer2" })),
      fits("layer[!0-3]", box({ id: "layer2" })),
    ]);
    expect([true, false]).toEqual([fits("op:Ge*", head), fits("layer[z-a]", first)]);
  });

  it("take every other sign of a name as it is", () => {
    // Exporters put dots, brackets and plus signs into names.
    const odd = box({ id: "a.b[0]+(c)/Conv\n" });
    expect([true, false]).toEqual([fits(odd.id, odd), fits("a.b[0]+(c)/Conv\n", box({ id: "axb0+c/Conv" }))]);
  });
});

describe("pins", () => {
  it("give selected nodes a precision, each by its id, and change it", () => {
    // Pinning twice must not leave the first pin behind.
    const once = repinned(choice(), [stem, head], "fp16");
    expect([
      { pattern: "stem/Conv", precision: "fp16" },
      { pattern: "head/Gemm", precision: "fp16" },
    ]).toEqual(once);
    const twice = repinned(choice({ pins: once }), [head], "bf16");
    expect(["fp16", "bf16"]).toEqual([pinned(twice)(stem), pinned(twice)(head)]);
    expect(2).toBe(twice.length);
  });

  it("let a node be as the variant again, also under a wider pattern", () => {
    // "As the variant" is what the control says; a pattern from Python must not overrule it silently.
    expect([]).toEqual(repinned(choice({ pins: repinned(choice(), [stem], "fp16") }), [stem], ""));
    const wide = choice({ pins: [{ pattern: "head/*", precision: "fp16" }] });
    const freed = repinned(wide, [head], "");
    expect(["int8", "fp16"]).toEqual([pinned(freed)(head), pinned(freed)(relu)]);
  });

  it("add nothing that a wider pattern says already", () => {
    // The list of pins stays as short as it can be.
    const wide = choice({ pins: [{ pattern: "op:Gemm", precision: "fp16" }] });
    expect(wide.pins).toEqual(repinned(wide, [head], "fp16"));
  });

  it("count from the last that fits", () => {
    // As in the kernel: a later pin refines an earlier one.
    const pins = [
      { pattern: "*", precision: "fp16" },
      { pattern: "head/*", precision: "bf16" },
    ];
    expect(["fp16", "bf16"]).toEqual([pinned(pins)(stem), pinned(pins)(head)]);
  });
});

describe("pruning", () => {
  it("is for operators with weights", () => {
    // 2:4 is a pattern of weights: a MatMul of two activations has none.
    expect([true, true, false, false]).toEqual(
      [stem, head, relu, box({ id: "m", op: "MatMul" })].map(prunable),
    );
  });

  it("takes one node out of all", () => {
    // A pattern cannot say "all but one", so that the others are named.
    const without = repruned(["*"], [head], false, all);
    expect([true, false]).toEqual([pruned(without)(stem), pruned(without)(head)]);
    expect([true, true]).toEqual(all.map(pruned(repruned(without, [head], true, all))));
  });

  it("leaves patterns alone that have nothing to do with it", () => {
    // What was asked for in Python stays.
    expect(["stem/*"]).toEqual(repruned(["stem/*", "head/Gemm"], [head], false, all));
    expect(["*"]).toEqual(repruned(["*"], [head], true, all));
  });
});

describe("a choice and the variant on screen", () => {
  const chip = (part: Partial<Chip>): Chip =>
    variant({ id: "int8·entropy2@sm86", label: "ours", choice: "int8·entropy2", target: "sm86", ...part });
  const pins = [{ pattern: "head/*", precision: "fp16" }];

  it("has the names that the kernel gives", () => {
    // The same words as Variant.id and Variant.name in rtlab/core/variant.py.
    expect({ id: "int8·entropy2@sm86", name: "int8·entropy2" }).toEqual(variantName(choice()));
    expect({ id: "fp16@sm86", name: "fp16" }).toEqual(
      variantName(choice({ precision: "fp16", calibrator: "" })),
    );
    expect({
      id: "int8·entropy2 head/*=fp16 per tensor 2:4@sm86",
      name: "int8·entropy2 · 1 pinned · per tensor · 2:4",
    }).toEqual(variantName(choice({ pins, weights: "tensor", sparsity: ["*"] })));
    expect({
      id: "int8·entropy2 equalize smooth(0.7) reconstruct correct /a/*@sm86",
      name: "int8·entropy2 · equalized · smoothed · reconstructed · corrected",
    }).toEqual(
      variantName(choice({ treatments: ["equalize", "smooth(0.7)", "reconstruct", "correct /a/*"] })),
    );
    expect("int8·entropy2 2:4 a,b@sm86").toBe(variantName(choice({ sparsity: ["a", "b"] })).id);
  });

  it("differ after every change of the choice", () => {
    // The view must go stale whatever was changed: numbers of another variant are wrong numbers.
    expect(false).toBe(differs(choice(), chip({})));
    const changes: Partial<Choice>[] = [
      { precision: "fp8" },
      { calibrator: "minmax" },
      { target: "sm89" },
      { pins },
      { weights: "tensor" },
      { sparsity: ["*"] },
    ];
    expect(changes).toEqual(changes.filter((change) => differs(choice(change), chip({}))));
  });

  it("differ when as many pins say something else", () => {
    // The label counts pins; the id tells them apart.
    const built = choice({ pins });
    const shown = chip({ id: variantName(built).id, choice: variantName(built).name });
    expect(false).toBe(differs(built, shown));
    expect(true).toBe(differs(choice({ pins: [{ pattern: "head/*", precision: "bf16" }] }), shown));
  });

  it("agree for a variant with a name of its own and for one of another backend", () => {
    // study.add("mine", ...) is the same variant under another name.
    expect(false).toBe(differs(choice(), chip({ id: "mine" })));
    expect(false).toBe(differs(choice(), chip({ id: "int8·entropy2@sm86/onnxruntime" })));
  });

  it("agree for a variant that differs in the builder's options only", () => {
    // There is nothing to choose them with: what is on screen is what was asked for.
    const { id, name } = variantName(choice({ pins }));
    const several = chip({ id: id.replace("@", " max_aux_streams=0,tf32@"), choice: `${name} · 2 options` });
    expect([false, true]).toEqual([differs(choice({ pins }), several), differs(choice(), several)]);
    const named = chip({ id: "int8 1 stream", choice: "int8·entropy2 · 1 option" });
    expect([false, true]).toEqual([
      differs(choice(), named),
      differs(choice({ calibrator: "minmax" }), named),
    ]);
    const other = choice({ pins: [{ pattern: "head/*", precision: "bf16" }] });
    expect(true).toBe(differs(other, several));
  });

  it("never differ where the variant was read from files", () => {
    // Engines of another machine belong to no choice.
    expect(false).toBe(differs(choice(), chip({ recorded: true, choice: "first · fp16", target: "A100" })));
  });
});
