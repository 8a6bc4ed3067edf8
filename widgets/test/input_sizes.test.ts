import { expect, test } from "vitest";
import type { OpenInput } from "../src/core/contract";
import { named } from "../src/explorer/input_sizes";

const image: OpenInput = {
  name: "image",
  lacking: true,
  dimensions: [
    { size: 1, open: true, symbol: "N" },
    { size: 3, open: false, symbol: "" },
    { size: 224, open: true, symbol: "height" },
    { size: 224, open: true, symbol: "" },
  ],
};
const mask: OpenInput = {
  name: "mask",
  lacking: true,
  dimensions: [
    { size: 1, open: true, symbol: "N" },
    { size: 224, open: true, symbol: "height" },
  ],
};

test("what is written for a symbol holds in every input, and what is fixed stays", () => {
  expect(named([image, mask], { height: "48", "image 3": " 320 " })).toEqual({
    image: [1, 3, 48, 320],
    mask: [1, 48],
  });
});

test.each(["0", "-4", "4.5", "", "12a", "1e3"])("%j is no size", (draft) => {
  expect(named([image], { height: draft })).toBeNull();
});
