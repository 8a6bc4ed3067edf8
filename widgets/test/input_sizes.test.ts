import { expect, test } from "vitest";
import type { OpenSize } from "../src/core/contract";
import {
  changedSizes,
  chosenSizes,
  describeSizes,
  fitVariant,
  labelSize,
  readSizes,
} from "../src/explorer/input_sizes";

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

test("a size without a symbol says that others have it too", () => {
  const cache = { ...open("past.0.key[2]", 127), inputs: ["past.0.key", "past.0.value", "past.1.key"] };
  expect([labelSize(cache), labelSize(open("image[2]", 224))]).toEqual([
    "past.0.key[2] and 2 others",
    "image[2]",
  ]);
  expect(labelSize({ ...open("N", 1), inputs: ["a", "b"] })).toBe("N");
});

test("sizes are told by their names", () => {
  expect(describeSizes(fields)).toBe("N 1, length 128, image[2] 224");
});

test("a variant has the sizes in which it differs from the model", () => {
  const known = [open("N", 1), open("length", 128)].map((field) => ({ ...field, lacking: false }));
  expect(changedSizes(known, { N: 1, length: 1 })).toEqual(["length=1"]);
  expect(changedSizes(known, { N: 1, length: 128 })).toEqual([]);
});

test("a choice with sizes of its own shows them in place of the model's", () => {
  const shown = chosenSizes(fields, { sizes: ["length=1", "ids=1x4"] });
  expect(describeSizes(shown)).toBe("N 1, length 1, image[2] 224");
});

test("a variant has no sizes of its own where the model lacks one, or one has no symbol", () => {
  // What a variant is built at names symbols, and the model's own sizes are where it starts from.
  const known = fields.map((field) => ({ ...field, lacking: false }));
  expect([fitVariant(fields), fitVariant(known), fitVariant(known.slice(0, 2))]).toEqual([
    false,
    false,
    true,
  ]);
});
