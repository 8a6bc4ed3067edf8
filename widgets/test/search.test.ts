import { describe, expect, it } from "vitest";
import { find } from "../src/graph/search";
import { box, graph } from "./payloads";

const port = (name: string, shape: string, dtype: string) => ({
  name,
  shape,
  dtype,
  format: "",
  constant: false,
});
const g = graph("g", [
  box({ id: "stem/conv", inputs: [port("pixels", "1×3×224×224", "fp32")] }),
  box({ id: "relu", op: "Relu", outputs: [port("act_1", "1×64×56×56", "fp16")] }),
  box({
    id: "L1",
    op: "convolution",
    precision: "int8",
    chips: [
      {
        op: "BatchNormalization",
        family: "normalization",
        node: "",
        role: "work",
        title: "BatchNormalization",
      },
    ],
  }),
]);

describe("find", () => {
  it.each([
    ["STEM", ["stem/conv"]],
    ["relu", ["relu"]],
    ["act_1", ["relu"]],
    ["3x224", ["stem/conv"]],
    ["int8", ["L1"]],
    ["batchnorm", ["L1"]],
    ["fp16", ["relu"]],
    ["conv", ["stem/conv", "L1"]],
    ["conv int8", ["L1"]],
    ["int8 relu", []],
    ["  ", []],
  ])("finds %j by name, operator, tensor, shape or type", (query, ids) => {
    // People remember one of these, and rarely which.
    expect(ids).toEqual(find(g, query));
  });

  it("finds a tensor's name where it is made and a weight's where it is read", () => {
    // Exporters name a tensor after its node: a search for an operator should not list its readers too.
    const reader = box({
      id: "reader",
      inputs: [
        port("act_1", "1×64×56×56", "fp16"),
        { ...port("kernel", "64×3×7×7", "fp16"), constant: true },
      ],
    });
    const whole = graph("g", [...g.boxes, reader]);
    expect([["relu"], ["reader"]]).toEqual([find(whole, "act_1"), find(whole, "kernel")]);
  });

  it("takes letters literally", () => {
    // A dot or a bracket in a name is no pattern.
    expect([]).toEqual(find(g, "s.em"));
  });

  it("finds the tensors of a large graph once its boxes have been told of", () => {
    const large = { ...graph("large", [box({ id: "relu" })]), later: true };
    expect([]).toEqual(find(large, "act_1"));
    Object.assign(large.boxes[0]!, { outputs: [port("act_1", "1×64×56×56", "fp16")] });
    large.later = false;
    expect(["relu"]).toEqual(find(large, "act_1"));
  });
});
