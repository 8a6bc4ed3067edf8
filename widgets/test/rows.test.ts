import { describe, expect, it } from "vitest";
import { compare } from "../src/ui/rows";

describe("the order of rows", () => {
  const sorted = (values: (string | number | null)[], down: boolean) =>
    values.toSorted((a, b) => compare(a, b, down));

  it("puts rows without a number last in both directions", () => {
    // A tensor without a threshold is neither the best nor the worst.
    expect([1, 2, 3, null]).toEqual(sorted([3, null, 1, 2], false));
    expect([3, 2, 1, null]).toEqual(sorted([3, null, 1, 2], true));
  });

  it("counts the numbers inside names", () => {
    // conv_10 stands after conv_9.
    expect(["conv_2", "conv_9", "conv_10"]).toEqual(sorted(["conv_10", "conv_2", "conv_9"], false));
  });
});
