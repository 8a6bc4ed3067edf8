import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { thread } from "../src/graph/link_lines";

beforeEach(() => {
  const createElementNS = (_: string, tag: string) => {
    const attributes: Record<string, string> = {};
    const setAttribute = (key: string, value: string): void => {
      attributes[key] = value;
    };
    return { tag, attributes, setAttribute };
  };
  vi.stubGlobal("document", { createElementNS });
});
afterEach(() => void vi.unstubAllGlobals());

const from = { x: 0, y: 0, width: 100, height: 40 };
const drawn = (...at: Parameters<typeof thread>) =>
  thread(...at) as unknown as { attributes: Record<string, string>; textContent?: string }[];

it("a line leads from the edge of a box to the facing edge of the other, and leaves both at right angles", () => {
  const [beside] = drawn(from, { x: 300, y: 100, width: 50, height: 60 }, false, "declared");
  expect(beside!.attributes).toEqual({ d: "M100 20C200 20 200 130 300 130", class: "declared" });
  const [below] = drawn(from, { x: 20, y: 240, width: 50, height: 60 }, true, "declared");
  expect(below!.attributes.d).toBe("M50 40C50 140 45 140 45 240");
});

it("of near boxes a line bends all the same", () => {
  const [line] = drawn(from, { x: 110, y: 0, width: 50, height: 40 }, false, "");
  expect(line!.attributes.d).toBe("M100 20C124 20 86 20 110 20");
});

it("only what is inferred is named, above its line", () => {
  const to = { x: 200, y: 100, width: 50, height: 40 };
  expect(drawn(from, to, false, "merged")).toHaveLength(1);
  const [, word] = drawn(from, to, false, "inferred");
  // 0.66 along 100 to 200, and 0.66² (3 − 2 · 0.66) = 0.7318 of the way from 20 to 120, less 5.
  expect(Number(word!.attributes.x)).toBeCloseTo(166);
  expect(Number(word!.attributes.y)).toBeCloseTo(88.18, 2);
});
