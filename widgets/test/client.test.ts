import { beforeEach, describe, expect, it, vi } from "vitest";
import { LayoutClient } from "../src/graph/layout/client";
import type { LayoutInput, LayoutOutput, LayoutRequest } from "../src/graph/layout/types";

vi.mock("worker:./worker.ts", () => ({ default: "" }));

/** Stands for the browser's worker: it answers when it is told to, and stops when it is told to. */
class Standing {
  static all: Standing[] = [];
  readonly got: LayoutRequest[] = [];
  ended = false;
  onmessage: (event: { data: unknown }) => void = () => {};
  onerror: (event: { message: string }) => void = () => {};
  constructor() {
    Standing.all.push(this);
  }
  postMessage(request: LayoutRequest): void {
    this.got.push(request);
  }
  terminate(): void {
    this.ended = true;
  }
  answer(at: number): void {
    this.onmessage({ data: { id: this.got[at]!.id, output: out(this.got[at]!.input) } });
  }
}

const graph = (name: string): LayoutInput => ({ name }) as unknown as LayoutInput;
const out = (input: LayoutInput): LayoutOutput => ({ of: input }) as unknown as LayoutOutput;

beforeEach(() => {
  Standing.all = [];
  vi.stubGlobal("Worker", Standing);
});

describe("a layout worker that stops", () => {
  it("is started again with all that waits, and it is said", async () => {
    const client = new LayoutClient();
    const told: string[] = [];
    client.onRestart = (why) => told.push(why);
    const [one, two, three] = ["one", "two", "three"].map((name) => client.layout(graph(name)));
    const [first] = Standing.all;
    first!.answer(0);
    first!.onerror({ message: "out of memory" });
    expect(first!.ended).toBe(true);
    const second = Standing.all[1]!;
    expect(second.got.map(({ input }) => input)).toEqual([graph("two"), graph("three")]);
    second.answer(0);
    second.answer(1);
    expect(await Promise.all([one, two, three])).toEqual(["one", "two", "three"].map((n) => out(graph(n))));
    expect(told).toEqual(["out of memory"]);
  });

  it("fails the graph that stops it twice, and goes on with the others", async () => {
    const client = new LayoutClient();
    const bad = client.layout(graph("bad"));
    const good = client.layout(graph("good"));
    Standing.all[0]!.onerror({ message: "out of memory" });
    Standing.all[1]!.onerror({ message: "" });
    await expect(bad).rejects.toThrow("The layout of the graph stopped twice: no reason was given.");
    expect(Standing.all[2]!.got.map(({ input }) => input)).toEqual([graph("good")]);
    Standing.all[2]!.answer(0);
    expect(await good).toEqual(out(graph("good")));
  });
});
