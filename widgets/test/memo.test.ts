import fc from "fast-check";
import { expect, it } from "vitest";
import { Memo } from "../src/graph/layout/memo";

it("gives each key its own value, made once, whatever its length and however it was written", () => {
  // Lengths around the room that a key has at first, and around twice of it; numbers of one hash: 32 and [1, 1].
  const length = fc.oneof(
    fc.integer({ min: 0, max: 6 }),
    fc.constantFrom(255, 256, 257, 511, 512, 513, 1200),
  );
  const key = length.chain((n) =>
    fc.array(fc.constantFrom(0, 1, 31, 32, 0.5, -1), { minLength: n, maxLength: n }),
  );
  fc.assert(
    fc.property(fc.array(fc.tuple(key, fc.boolean()), { minLength: 1, maxLength: 12 }), (asked) => {
      const memo = new Memo<string>();
      const known = new Map<string, number>();
      for (const [numbers, single] of [...asked, ...asked]) {
        const [head = [], rest] = numbers.length ? [numbers.slice(0, 1), numbers.slice(1)] : [[], []];
        memo.start(...head);
        if (single) for (const number of rest) memo.push(number);
        else memo.add(rest.slice(0, 3), rest.slice(3));
        const text = numbers.join();
        const found = memo.get(() => {
          known.set(text, (known.get(text) ?? 0) + 1);
          return text;
        });
        expect(found).toBe(text);
      }
      expect(new Set(known.values())).toEqual(new Set([1]));
    }),
    { numRuns: 60 },
  );
});
