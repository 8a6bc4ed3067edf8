import { beforeEach, describe, expect, it, vi } from "vitest";
import loader from "../src/loader";

type Listener = (...told: unknown[]) => void;

/** A kernel's model: what it announces, what it was asked, and how it answers. */
class Kernel {
  readonly asked: string[] = [];
  readonly layout = { comm_live: true };
  readonly #listeners = new Map<string, Set<Listener>>();
  constructor(
    public parcels: Record<string, string>,
    public alive = true,
  ) {}
  get(name: string): unknown {
    if (name === "layout") return Object.assign(this.layout, { comm_live: this.alive });
    return name === "parcels" ? this.parcels : `the trait ${name}`;
  }
  set(): void {}
  save_changes(): void {}
  send({ value }: { value: string }): void {
    this.asked.push(value);
  }
  on(event: string, listener: Listener): void {
    if (!this.#listeners.has(event)) this.#listeners.set(event, new Set());
    this.#listeners.get(event)?.add(listener);
  }
  off(event: string, listener: Listener): void {
    this.#listeners.get(event)?.delete(listener);
  }
  tell(event: string, ...told: unknown[]): void {
    for (const listener of [...(this.#listeners.get(event) ?? [])]) listener(...told);
  }
  deliver(name: string, tag: string, content: unknown): void {
    this.tell("msg:custom", { type: "parcel", value: `${name} ${tag}`, content }, []);
  }
  announce(parcels: Record<string, string>): void {
    this.parcels = { ...this.parcels, ...parcels };
    this.tell("change:parcels");
  }
}

const drawn = vi.fn();
/** What the script is given as its model. */
let model: Kernel;
let words: { textContent: string; remove(): void; setAttribute(): void; style: object };

function show(kernel: Kernel): () => void {
  const el = { appendChild: (node: unknown) => node, append() {} };
  return loader.render({ model: kernel, el } as never);
}

beforeEach(() => {
  drawn.mockReset().mockImplementation((props: { model: Kernel }) => {
    model = props.model;
  });
  words = { textContent: "", remove() {}, setAttribute() {}, style: {} };
  vi.stubGlobal("document", { createElement: () => words });
  const { rtlabScripts } = globalThis as { rtlabScripts?: Map<string, Promise<unknown>> };
  rtlabScripts?.set("s1", Promise.resolve(drawn));
});

describe("what stands in a saved notebook for a widget", () => {
  it("draws when all that was announced has come, and asks for each once", async () => {
    const kernel = new Kernel({ script: "s1", source: "a1", engine: "", charts: "c1" });
    show(kernel);
    kernel.announce({});
    expect(kernel.asked).toEqual(["source", "charts"]);
    kernel.deliver("source", "a1", "the graph");
    await Promise.resolve();
    expect(drawn).not.toHaveBeenCalled();
    kernel.deliver("charts", "c1", { timing: 1 });
    await vi.waitFor(() => expect(drawn).toHaveBeenCalledOnce());
    expect(model.get("source")).toBe("the graph");
    expect(model.get("charts")).toEqual({ timing: 1 });
    expect(model.get("engine")).toBeNull();
    expect(model.get("view")).toBe("the trait view");
  });

  it("passes on what the kernel sends by itself, and asks for what it missed", async () => {
    const kernel = new Kernel({ script: "s1", engine: "" });
    show(kernel);
    await vi.waitFor(() => expect(drawn).toHaveBeenCalledOnce());
    const seen: unknown[] = [];
    model.on("change:engine", () => seen.push(model.get("engine")));
    kernel.deliver("engine", "e1", "fp32");
    kernel.announce({ engine: "e1" });
    expect(kernel.asked).toEqual([]);
    kernel.announce({ engine: "e2" });
    expect(kernel.asked).toEqual(["engine"]);
    kernel.deliver("engine", "e2", "fp16");
    kernel.announce({ engine: "" });
    expect(seen).toEqual(["fp32", "fp16", null]);
  });

  it("keeps what came while the cell ran, before there was a view, and asks only for the rest", async () => {
    const kernel = new Kernel({ script: "s1", source: "a1", engine: "e1" });
    loader.initialize({ model: kernel } as never);
    kernel.deliver("source", "a1", "the graph");
    show(kernel);
    expect(kernel.asked).toEqual(["engine"]);
    kernel.deliver("engine", "e1", "fp32");
    await vi.waitFor(() => expect(drawn).toHaveBeenCalledOnce());
    expect([model.get("source"), model.get("engine")]).toEqual(["the graph", "fp32"]);
    // A second view of the widget has it all, and another widget has nothing of it.
    show(kernel);
    await vi.waitFor(() => expect(drawn).toHaveBeenCalledTimes(2));
    expect(kernel.asked).toEqual(["engine"]);
    const other = new Kernel({ script: "s1", source: "a1" });
    show(other);
    expect(other.asked).toEqual(["source"]);
  });

  it("says what to do where no kernel is behind it, and asks nothing", () => {
    const kernel = new Kernel({ script: "s1", source: "a1" }, false);
    show(kernel);
    expect(kernel.asked).toEqual([]);
    expect(words.textContent).toContain("Run the cells again");
  });

  it("says so when the kernel goes before it has answered", async () => {
    const kernel = new Kernel({ script: "s1", source: "a1" });
    show(kernel);
    kernel.alive = false;
    kernel.tell("comm_live_update");
    await vi.waitFor(() => expect(words.textContent).toContain("Run the cells again"));
  });

  it("says so when the kernel is shut down before it has answered", () => {
    let ended = (): void => {};
    const kernel = new Kernel({ script: "s1", source: "a1" });
    const disposed = {
      connect: (told: () => void) => {
        ended = told;
      },
      disconnect() {},
    };
    const connection = { isDisposed: false, disposed };
    show(Object.assign(kernel, { widget_manager: { kernel: connection } }));
    expect(words.textContent).toBe("");
    connection.isDisposed = true;
    ended();
    expect(words.textContent).toContain("Run the cells again");
  });

  it("leaves nothing behind when it is closed before the kernel answers", async () => {
    const kernel = new Kernel({ script: "s1", source: "a1" });
    show(kernel)();
    kernel.deliver("source", "a1", "the graph");
    kernel.announce({ source: "a2" });
    await new Promise((resolve) => setTimeout(resolve));
    expect(drawn).not.toHaveBeenCalled();
    expect(kernel.asked).toEqual(["source"]);
  });
});
