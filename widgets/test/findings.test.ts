import { describe, expect, it } from "vitest";
import { byCost, rulesOf } from "../src/findings";
import { finding } from "./payloads";

describe("findings", () => {
  it("stand in the order of their cost; those without a time follow in their own", () => {
    // What costs most is what to read first; a zero is a time.
    const items = [
      finding({ id: "untimed 1" }),
      finding({ id: "small", microseconds: 2 }),
      finding({ id: "untimed 2" }),
      finding({ id: "zero", microseconds: 0 }),
      finding({ id: "large", microseconds: 30 }),
    ];
    expect(["large", "small", "zero", "untimed 1", "untimed 2"]).toEqual(byCost(items).map(({ id }) => id));
  });

  it("are counted by rule", () => {
    const items = ["tiny", "sparse", "tiny", "constructor"].map((rule, k) => finding({ id: `${k}`, rule }));
    expect([
      ["tiny", 2],
      ["sparse", 1],
      ["constructor", 1],
    ]).toEqual(rulesOf(items));
  });
});
