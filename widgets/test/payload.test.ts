import { describe, expect, it } from "vitest";
import { decode } from "../src/payload";
import { packed } from "./payloads";

describe("payload", () => {
  it("reads gzipped JSON from a view into a larger buffer", async () => {
    // The kernel's messages arrive as views with an offset.
    const bytes = await packed({ shape: "1×16×32×32" });
    const padded = new Uint8Array(bytes.length + 16);
    padded.set(bytes, 8);
    expect({ shape: "1×16×32×32" }).toEqual(await decode(new DataView(padded.buffer, 8, bytes.length)));
  });

  it("takes empty bytes as nothing", async () => {
    // No variant is built yet.
    expect(null).toBe(await decode(new DataView(new ArrayBuffer(0))));
    expect(null).toBe(await decode(undefined));
  });

  it("refuses damaged bytes", async () => {
    // The widget then shows a card instead of half a graph.
    const bytes = await packed({ boxes: [] });
    await expect(decode(new Uint8Array(bytes.subarray(0, 9)))).rejects.toThrow(
      "their 9 bytes are not gzipped JSON",
    );
  });
});
