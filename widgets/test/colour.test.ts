import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CATEGORIES, cividis, contrast, FAMILY, FAMILY_ON_DARK, inkOn } from "../src/graph/colour";

const READABLE = 4.5;

describe("colour", () => {
  it("keeps white text readable on every family's title bar", () => {
    // WCAG asks for 4.5:1 for text of this size.
    for (const [family, colour] of Object.entries(FAMILY)) {
      expect(contrast("#ffffff", colour), family).toBeGreaterThanOrEqual(READABLE);
    }
  });

  it("keeps families readable as text on light and dark cards", () => {
    // Nodes without a layer are outlined: their name stands on the card.
    for (const colour of Object.values(FAMILY))
      expect(contrast(colour, "#ffffff")).toBeGreaterThanOrEqual(READABLE);
    for (const colour of Object.values(FAMILY_ON_DARK)) {
      expect(contrast(colour, "#282c33")).toBeGreaterThanOrEqual(READABLE);
    }
  });

  it("chooses ink that can be read anywhere on both scales and on all categories", () => {
    // Values are written on the colour that stands for them.
    fc.assert(
      fc.property(fc.double({ min: 0, max: 1, noNaN: true }), (at) => {
        for (const ground of [cividis(at)]) {
          expect(contrast(inkOn(ground), ground)).toBeGreaterThanOrEqual(READABLE);
        }
      }),
      { seed: 1 },
    );
    for (const ground of CATEGORIES) expect(contrast(inkOn(ground), ground)).toBeGreaterThanOrEqual(READABLE);
  });

  it("gets steadily lighter along the sequential scale", () => {
    // Then it reads in grey too, and with any colour vision.
    const light = Array.from({ length: 33 }, (_, k) => contrast(cividis(k / 32), "#000000"));
    expect([...light].sort((a, b) => a - b)).toEqual(light);
  });

  it("knows the extremes of contrast", () => {
    // The reference values of WCAG's formula.
    expect(contrast("#000000", "#ffffff")).toBeCloseTo(21, 5);
    expect(contrast("#777777", "#ffffff")).toBeCloseTo(4.48, 2);
  });
});
