import { beforeEach, describe, expect, it, vi } from "vitest";
import type { FetchParcel, Parcel } from "../src/core/contract";
import loader from "../src/core/loader";

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
  send({ name }: FetchParcel): void {
    this.asked.push(name);
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
  deliver(name: string, tag: string, content: unknown, buffers: DataView[] = []): void {
    this.tell("msg:custom", { type: "parcel", name, digest: tag, content } as Parcel, buffers);
  }
  announce(parcels: Record<string, string>): void {
    this.parcels = { ...this.parcels, ...parcels };
    this.tell("change:parcels");
  }
}

const drawn = vi.fn();
const ran = vi.fn();
/** What the script is given as its model. */
let model: Kernel;
let words: { textContent: string; remove(): void; setAttribute(): void; style: object };

/** The build whose code the page has; every test has one of its own. */
let build = 0;
const code = (): Record<string, string> => ({ "core.js": `b${build}`, "graph.js": `b${build}` });

/** A part as a kernel sends it. */
const packed = async (text: string): Promise<DataView[]> => {
  const bytes = new Response(text).body!.pipeThrough(new CompressionStream("gzip"));
  return [new DataView(await new Response(bytes).arrayBuffer())];
};
const CORE = await packed(
  'globalThis.ran("core");module.exports={css:"of the core;",startWidget:globalThis.startWidget,"src/one":{one:1}}',
);
const GRAPH = await packed(
  'const {one}=require("core.js:src/one");globalThis.ran("graph",one);' +
    'module.exports={css:"of the graph",render:(props)=>globalThis.drawn(props)}',
);

class Kept extends Blob {
  readonly parts: BlobPart[];
  constructor(parts: BlobPart[]) {
    super(parts);
    this.parts = parts;
  }
}

/** What a host makes once of each widget. */
const widgets = new WeakMap<Kernel, ReturnType<typeof loader>>();
function widgetOf(kernel: Kernel): ReturnType<typeof loader> {
  if (!widgets.has(kernel)) widgets.set(kernel, loader());
  return widgets.get(kernel)!;
}

function show(kernel: Kernel): () => void {
  const el = { appendChild: (node: unknown) => node, append() {} };
  return widgetOf(kernel).render({ model: kernel, el } as never);
}

beforeEach(async () => {
  drawn.mockReset().mockImplementation((props: { model: Kernel }) => {
    model = props.model;
  });
  // The core of every build has its own.
  vi.unstubAllGlobals();
  vi.resetModules();
  vi.stubGlobal("startWidget", (await import("../src/core/entry")).startWidget);
  words = { textContent: "", remove() {}, setAttribute() {}, style: {} };
  vi.stubGlobal("document", { createElement: () => words });
  // Node imports what an address tells itself, and no blob.
  vi.stubGlobal("Blob", Kept);
  vi.stubGlobal("URL", {
    createObjectURL: ({ parts }: Kept) =>
      `data:text/javascript,${encodeURIComponent(`${parts[0]}//${build}`)}`,
    revokeObjectURL() {},
  });
  vi.stubGlobal("ran", ran.mockReset());
  vi.stubGlobal("drawn", drawn);
  build++;
  const first = new Kernel({});
  widgetOf(first).initialize({ model: first } as never);
  first.deliver("core.js", `b${build}`, undefined, CORE);
  first.deliver("graph.js", `b${build}`, undefined, GRAPH);
});

describe("what stands in a saved notebook for a widget", () => {
  it("draws when all that was announced has come, and asks for each once", async () => {
    const kernel = new Kernel({ ...code(), source: "a1", engine: "", charts: "c1" });
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
    const kernel = new Kernel({ ...code(), engine: "" });
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
    const kernel = new Kernel({ ...code(), source: "a1", engine: "e1" });
    widgetOf(kernel).initialize({ model: kernel } as never);
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
    const other = new Kernel({ ...code(), source: "a1" });
    show(other);
    expect(other.asked).toEqual(["source"]);
  });

  it("draws where the layout is no model but its name, as in marimo", async () => {
    const [one, two] = [1, 2].map((id) => {
      const kernel = new Kernel({ ...code(), source: "a1" });
      const get = kernel.get.bind(kernel);
      return Object.assign(kernel, {
        get: (name: string) => (name === "layout" ? `IPY_MODEL_${id}` : get(name)),
      });
    }) as [Kernel, Kernel];
    widgetOf(one).initialize({ model: one } as never);
    one.deliver("source", "a1", "the graph");
    show(one);
    await vi.waitFor(() => expect(drawn).toHaveBeenCalledOnce());
    expect(model.get("source")).toBe("the graph");
    show(two);
    expect([one.asked, two.asked]).toEqual([[], ["source"]]);
  });

  it("says what to do where no kernel is behind it, and asks nothing", () => {
    const kernel = new Kernel({ ...code(), source: "a1" }, false);
    show(kernel);
    expect(kernel.asked).toEqual([]);
    expect(words.textContent).toContain("Run the cells again");
  });

  it("says so when the kernel goes before it has answered", async () => {
    const kernel = new Kernel({ ...code(), source: "a1" });
    show(kernel);
    kernel.alive = false;
    kernel.tell("comm_live_update");
    await vi.waitFor(() => expect(words.textContent).toContain("Run the cells again"));
  });

  it("says so when the kernel is shut down before it has answered", () => {
    let ended = (): void => {};
    const kernel = new Kernel({ ...code(), source: "a1" });
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
    const kernel = new Kernel({ ...code(), source: "a1" });
    show(kernel)();
    kernel.deliver("source", "a1", "the graph");
    kernel.announce({ source: "a2" });
    await new Promise((resolve) => setTimeout(resolve));
    expect(drawn).not.toHaveBeenCalled();
    expect(kernel.asked).toEqual(["source"]);
  });

  it("asks for each part of the code once, whichever widget needs it, and runs it once", async () => {
    build++;
    const [one, two] = [new Kernel(code()), new Kernel({ ...code(), source: "" })];
    show(one);
    expect(one.asked).toEqual(["core.js", "graph.js"]);
    one.deliver("graph.js", `b${build}`, undefined, GRAPH);
    one.deliver("core.js", `b${build}`, undefined, CORE);
    one.deliver("core.js", `b${build}`, undefined, CORE);
    await vi.waitFor(() => expect(drawn).toHaveBeenCalledOnce());
    show(two);
    await vi.waitFor(() => expect(drawn).toHaveBeenCalledTimes(2));
    expect(two.asked).toEqual([]);
    expect(ran.mock.calls).toEqual([["core"], ["graph", 1]]);
    expect(drawn.mock.calls[0]![0].css).toBe("of the core;of the graph");
  });

  it("keeps the code of two installations apart", async () => {
    const old = code();
    build++;
    const kernel = new Kernel({ "core.js": `b${build}`, "graph.js": old["graph.js"]! });
    show(kernel);
    expect(kernel.asked).toEqual(["core.js"]);
  });

  it("fetches a part when it is asked for, and gives it to whoever asks again", async () => {
    const kernel = new Kernel(code());
    show(kernel);
    await vi.waitFor(() => expect(drawn).toHaveBeenCalledOnce());
    const { part } = drawn.mock.calls[0]![0];
    expect(kernel.asked).toEqual([]);
    const coming = part("tab-table.js");
    expect(kernel.asked).toEqual(["tab-table.js"]);
    const table = await packed(
      'module.exports={css:"",one:require("core.js:src/one").one,default:"the table"}',
    );
    kernel.deliver("tab-table.js", `b${build}`, undefined, table);
    expect(await coming).toMatchObject({ default: "the table", one: 1 });
    expect(await part("tab-table.js")).toBe(await coming);
    expect(kernel.asked).toEqual(["tab-table.js"]);
  });

  it("asks again for a part that could not be run, and for one that never came", async () => {
    const kernel = new Kernel(code());
    show(kernel);
    await vi.waitFor(() => expect(drawn).toHaveBeenCalledOnce());
    const { part } = drawn.mock.calls[0]![0];
    const first = part("tab-table.js");
    kernel.deliver("tab-table.js", `b${build}`, undefined, await packed("this is no script"));
    await expect(first).rejects.toThrow();
    const second = part("tab-table.js");
    const third = part("tab-table.js");
    expect(kernel.asked).toEqual(["tab-table.js", "tab-table.js", "tab-table.js"]);
    kernel.deliver("tab-table.js", `b${build}`, undefined, await packed("module.exports={css:'',a:1}"));
    expect(await second).toBe(await third);
  });

  it("asks a kernel that is gone for no part", async () => {
    const kernel = new Kernel(code());
    show(kernel);
    await vi.waitFor(() => expect(drawn).toHaveBeenCalledOnce());
    kernel.alive = false;
    (await import("../src/core/connection")).watchKernel(
      model as never,
      new AbortController().signal,
      () => {},
    );
    void drawn.mock.calls[0]![0].part("tab-table.js");
    expect(kernel.asked).toEqual([]);
  });

  it("says what went wrong where the page may not run the code", async () => {
    build++;
    const kernel = new Kernel(code());
    show(kernel);
    kernel.deliver("core.js", `b${build}`, undefined, CORE);
    kernel.deliver("graph.js", `b${build}`, undefined, await packed("this is no script"));
    await vi.waitFor(() => expect(words.textContent).toContain("Cannot show this view: SyntaxError"));
  });
});
