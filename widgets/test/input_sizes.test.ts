import { expect, test } from "vitest";
import type { OpenSize } from "../src/core/contract";
import { describeSizes, readSizes } from "../src/explorer/input_sizes";

const open = (id: string, size: number, least = 1): OpenSize => ({
  id,
  size,
  least,
  inputs: ["ids N×length"],
  lacking: true,
});
const fields = [open("N", 1), open("length", 128), open("image[2]", 224)];

test("each size has one field, and what is not written keeps its proposal", () => {
  expect(readSizes(fields, { length: " 48 ", "image[2]": "320" })).toEqual({
    N: 1,
    length: 48,
    "image[2]": 320,
  });
});

test.each(["0", "-4", "4.5", "", "12a", "1e3"])("%j is no size", (draft) => {
  expect(readSizes(fields, { length: draft })).toBeNull();
});

test("there may be no tokens before", () => {
  expect(readSizes([open("past", 127, 0)], { past: "0" })).toEqual({ past: 0 });
});

test("sizes are told by their names", () => {
  expect(describeSizes(fields)).toBe("N 1, length 128, image[2] 224");
});
