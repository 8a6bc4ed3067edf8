import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { merged, placeCard } from "../src/placecard";

const CARD = { width: 340, height: 180 };
const ROOM = { width: 1200, height: 700 };
const meet = (
  a: { x: number; y: number; width: number; height: number },
  b: { x: number; y: number; width: number; height: number },
): boolean => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;

describe("a card", () => {
  it("stands beside what it speaks of, and covers none of it", () => {
    for (const spot of [
      { x: 100, y: 100, width: 120, height: 60 },
      { x: 1100, y: 20, width: 60, height: 30 },
      { x: 0, y: 420, width: 1200, height: 260 },
      { x: 0, y: 0, width: 1200, height: 80 },
    ]) {
      const at = placeCard([spot], CARD, ROOM);
      expect(meet({ ...at, ...CARD }, spot), JSON.stringify(spot)).toBe(false);
    }
  });

  it("covers neither of two", () => {
    const spots = [
      { x: 120, y: 140, width: 100, height: 100 },
      { x: 640, y: 140, width: 220, height: 60 },
    ];
    const at = placeCard(spots, CARD, ROOM);
    for (const spot of spots) expect(meet({ ...at, ...CARD }, spot)).toBe(false);
  });

  it("stands in the middle where there is nothing to point at", () => {
    expect({ x: 430, y: 260 }).toEqual(placeCard([], CARD, ROOM));
  });

  it("never leaves its place", () => {
    const part = fc.record({ x: fc.nat(1100), y: fc.nat(600), width: fc.nat(900), height: fc.nat(500) });
    fc.assert(
      fc.property(fc.array(part, { maxLength: 3 }), (spots) => {
        const { x, y } = placeCard(spots, CARD, ROOM);
        expect(x >= 0 && y >= 0 && x + CARD.width <= ROOM.width && y + CARD.height <= ROOM.height).toBe(true);
      }),
    );
  });
});

describe("lines around what overlaps", () => {
  it("become one around all of it, however it hangs together", () => {
    const [a, b, c] = [
      { x: 0, y: 0, width: 10, height: 10 },
      { x: 20, y: 0, width: 10, height: 10 },
      { x: 5, y: 0, width: 20, height: 12 },
    ];
    expect([{ x: 0, y: 0, width: 30, height: 12 }]).toEqual(merged([a, b, c]));
    expect([a, b]).toEqual(merged([a, b]));
  });
});
