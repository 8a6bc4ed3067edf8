import { describe, expect, it } from "vitest";
import { rulesOf } from "../src/panels/findings";
import { finding } from "./payloads";

describe("findings", () => {
  it("are counted by rule", () => {
    const items = ["tiny", "sparse", "tiny", "constructor"].map((rule, k) => finding({ id: `${k}`, rule }));
    expect([
      ["tiny", 2],
      ["sparse", 1],
      ["constructor", 1],
    ]).toEqual(rulesOf(items));
  });
});
