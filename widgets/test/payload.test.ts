/// <reference types="vite/client" />
import { describe, expect, it } from "vitest";
// tests/unit/page/test_payload.py holds the same file against Python's side.
import file from "../../tests/data/payload.json?raw";
import type { EngineView } from "../src/core/contract";
import { decode, fromBase64 } from "../src/core/payload";
import { packed } from "./payloads";

const { encoded, payload } = JSON.parse(file) as { encoded: string; payload: { view: EngineView } };
const bytes = fromBase64(encoded);

describe("payload", () => {
  it("reads what Python wrote", async () => {
    // Names of every kind, missing numbers, and every form of a column.
    expect(payload).toEqual(await decode(bytes));
  });

  it("keeps a name that JavaScript uses itself", async () => {
    // A node called __proto__ is a key like any other.
    const { view } = (await decode<typeof payload>(bytes))!;
    expect(true).toBe(Object.hasOwn(view.overlays[0]?.nodes ?? {}, "__proto__"));
  });

  it("reads a view into a larger buffer", async () => {
    // The kernel's messages arrive as views with an offset.
    const message = await packed({ shape: "1×16×32×32" });
    const padded = new Uint8Array(message.length + 16);
    padded.set(message, 8);
    expect({ shape: "1×16×32×32" }).toEqual(await decode(new DataView(padded.buffer, 8, message.length)));
  });

  it("takes empty bytes as nothing", async () => {
    // No variant is built yet.
    expect(null).toBe(await decode(new DataView(new ArrayBuffer(0))));
    expect(null).toBe(await decode(undefined));
  });

  it("refuses damaged bytes", async () => {
    // The widget then shows a card instead of half a graph.
    await expect(decode(new Uint8Array(bytes.subarray(0, 9)))).rejects.toThrow("their 9 bytes are damaged");
  });
});
