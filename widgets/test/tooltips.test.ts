// @vitest-environment happy-dom
import type { AnyModel } from "@anywidget/types";
import { signal } from "@preact/signals";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { ExplorerTraits } from "../src/core/channel";
import { listenForKeys, onKeys, onKeysFirst } from "../src/core/keys";
import { mount } from "../src/core/mount";
import type { Exports } from "../src/core/parts";
import { Fullscreen } from "../src/explorer/fullscreen";
import { LazyTabs } from "../src/explorer/lazy_tabs";

let end: AbortController;
let root: HTMLElement;
/** What the last observer of a size calls. */
let resized: () => void;
class Observer {
  constructor(task: () => void) {
    resized = task;
  }
  observe(): void {}
  disconnect(): void {}
}
beforeEach(() => {
  vi.stubGlobal("ResizeObserver", Observer);
  end = new AbortController();
  root = document.body.appendChild(document.createElement("div"));
  root.innerHTML = "<p><b></b></p>";
});
afterEach(() => {
  end.abort();
  root.remove();
  vi.unstubAllGlobals();
});
const press = (el: Element, key: string, how: KeyboardEventInit = {}, type = "keydown"): KeyboardEvent => {
  const event = new KeyboardEvent(type, { key, bubbles: true, composed: true, cancelable: true, ...how });
  el.dispatchEvent(event);
  return event;
};

describe("keys", () => {
  const inner = (): Element => root.querySelector("b")!;

  it("go from the innermost element to the root, until one takes them", () => {
    const heard: string[] = [];
    listenForKeys(root, end.signal);
    for (const el of [root, root.querySelector("p")!, inner()])
      onKeys(el, ({ key }) => heard.push(el.tagName) > 0 && el.tagName.toLowerCase() === key);
    expect([press(inner(), "p").defaultPrevented, heard.splice(0)]).toEqual([true, ["B", "P"]]);
    expect([press(inner(), "x").defaultPrevented, heard.splice(0)]).toEqual([false, ["B", "P", "DIV"]]);
    onKeysFirst(root, ({ key }) => key === "p");
    expect([press(inner(), "p").defaultPrevented, heard.splice(0)]).toEqual([true, []]);
    end.abort();
    press(inner(), "x");
    expect(heard).toEqual([]);
  });

  it("stay with the page where a modifier is pressed or the focus is elsewhere, and go no further otherwise", () => {
    const page: string[] = [];
    const listen = ({ type, key }: KeyboardEvent): void => void page.push(`${type} ${key}`);
    for (const name of ["keydown", "keyup"] as const)
      document.addEventListener(name, listen, { signal: end.signal });
    listenForKeys(root, end.signal);
    for (const how of [{ ctrlKey: true }, { metaKey: true }, { altKey: true }]) press(inner(), "s", how);
    press(document.body, "a");
    press(inner(), "b");
    press(inner(), "b", {}, "keyup");
    expect(page).toEqual(["keydown s", "keydown s", "keydown s", "keydown a"]);
  });
});

describe("the room of a widget", () => {
  it("follows the window and the whole screen, and keeps the place of a notebook out of view", () => {
    const host = document.body.appendChild(document.createElement("div"));
    host.className = "jp-WindowedPanel-outer";
    host.append(root);
    let tall = 500;
    Object.defineProperty(host, "clientHeight", { get: () => tall });
    const fullscreen = new Fullscreen(root, end.signal, signal(1200));
    const first = fullscreen.fittingHeight.value;
    tall = 0;
    resized();
    expect(fullscreen.fittingHeight.value).toBe(first);
    tall = 900;
    resized();
    expect(fullscreen.fittingHeight.value >= first).toBe(true);
    Object.assign(window, { innerHeight: 333 });
    window.dispatchEvent(new Event("resize"));
    expect(fullscreen.windowHeight.value).toBe(333);
    root.matches = ((selector: string) => selector === ":fullscreen") as never;
    document.dispatchEvent(new Event("fullscreenchange"));
    expect(fullscreen.on.value).toBe(true);
    const leave = vi.fn(async () => {});
    document.exitFullscreen = leave;
    fullscreen.toggle();
    expect(leave).toHaveBeenCalledOnce();
    host.remove();
  });
});

describe("a widget", () => {
  beforeEach(() => void vi.spyOn(console, "error").mockImplementation(() => {}));
  const width = (el: HTMLElement, pixels: number): void => {
    Object.defineProperty(el.querySelector(".rtlab"), "clientWidth", { configurable: true, value: pixels });
    resized();
  };

  it("is built once its place has a width, and taken down", () => {
    const made = vi.fn(() => ({ view: "all", problem: signal<unknown>(null) }));
    const stop = mount(root, "graph", "p {}", made);
    width(root, 0);
    expect(made).not.toHaveBeenCalled();
    width(root, 9);
    expect(root.querySelector(".rt-graph")!.textContent).toBe("all");
    stop();
    expect(root.querySelector(".rtlab, style")).toBeNull();
  });

  it.each([
    ["while it is built", () => JSON.parse("no")],
    ["while it is shown", () => ({ view: "all", problem: signal(new Error("no")) })],
  ] as [string, () => never][])("tells what went wrong %s", (_, make) => {
    mount(root, "graph", "", make);
    width(root, 9);
    const { dataset, children } = root.querySelector<HTMLElement>(".rtlab")!;
    const told = children[0]!.querySelector("p")!.textContent;
    expect([dataset.failed, children.length, told]).toEqual(["1", 1, expect.stringContaining("no")]);
  });
});

describe("a tab's code", () => {
  it("is asked for once, again after a failure, and again of another kernel", async () => {
    const asked: string[] = [];
    let answer: Promise<Exports> = Promise.reject(new Error("lost"));
    const late = new LazyTabs((name) => {
      asked.push(name);
      return answer;
    });
    const come = late.of("table");
    late.ask("table");
    late.ask("table");
    expect(asked).toEqual(["tab-table.js"]);
    await vi.waitUntil(() => come.value);
    expect(come.value).toMatchObject({ css: "", problem: "Error: lost" });
    answer = new Promise(() => {});
    late.ask("table");
    late.ask("table");
    answer = Promise.resolve({ css: "p {}", default: "View" });
    late.ask("table", true);
    expect(asked).toHaveLength(3);
    await vi.waitUntil(() => come.value?.View);
    late.ask("table", true);
    expect([asked.length, come.value]).toEqual([3, { View: "View", css: "p {}", problem: "" }]);
  });
});

describe("the library of the charts", () => {
  const source = async (text: string): Promise<DataView> => {
    const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("gzip"));
    return new DataView(await new Response(stream).arrayBuffer());
  };
  /** A kernel that answers when the test says so. */
  const kernel = () => {
    const listeners = new Set<(...told: unknown[]) => void>();
    const send = vi.fn();
    const model = {
      send,
      on: (_: string, one: () => void) => listeners.add(one),
      off: (_: string, one: () => void) => listeners.delete(one),
    };
    const tell = (...told: unknown[]): void => {
      for (const one of [...listeners]) one(...told);
    };
    return { model: model as unknown as AnyModel<ExplorerTraits>, send, tell, listeners };
  };

  it("is asked for once, and anew after it failed or its view was closed", async () => {
    vi.resetModules();
    const { loadPlotly } = await import("../src/core/plotly");
    URL.createObjectURL = () => "data:text/javascript,export default { version: 7 }";
    URL.revokeObjectURL = () => {};
    const { model, send, tell, listeners } = kernel();
    const closed = new AbortController();
    const first = loadPlotly(model, closed.signal);
    closed.abort();
    await expect(first).rejects.toThrow();
    expect(listeners.size).toBe(0);
    const second = loadPlotly(model, end.signal);
    expect(loadPlotly(model, end.signal)).toBe(second);
    expect(send.mock.calls.map(([command]) => command)).toEqual([{ type: "plotly" }, { type: "plotly" }]);
    tell({ type: "link" }, [await source("")]);
    tell({ type: "plotly" }, []);
    expect(listeners.size).toBe(1);
    tell({ type: "plotly" }, [await source("export default 1")]);
    expect(await second).toEqual({ version: 7 });
    expect(listeners.size).toBe(0);
  });
});
