import type { AnyModel } from "@anywidget/types";
import { vi } from "vitest";
import type { ExplorerTraits, Plotted } from "../src/core/channel";
import type { Command, Saved, ViewState } from "../src/core/contract";
import { fromBase64, gunzip } from "../src/core/payload";
import { layout } from "../src/graph/layout/layout";
import type { LayoutRequest } from "../src/graph/layout/types";
import { StaticModel } from "../src/report/static_model";
import { Pixels, Recorder } from "./canvas";
import control_flow from "./data/control_flow.json.gz?inline";
import two_outputs from "./data/two_outputs.json.gz?inline";
import written from "./data/written.json.gz?inline";

/** A saved report of a study, and what the Explorer of the same study has besides; `data/make.py` writes the files. */
interface Recorded {
  saved: Saved;
  traits: Partial<ExplorerTraits>;
}

const FILES = { control_flow, two_outputs, written };
export type Name = keyof typeof FILES;

export const recorded = async (name: Name): Promise<Recorded> =>
  (await gunzip(fromBase64(FILES[name].split(",")[1]!)).json()) as Recorded;

/** Pixels of what has a size that counts; everything else is a line of text. */
const SIZES: [string, number, number][] = [
  [".rtlab", 1280, 760],
  ["canvas[data-pane]", 500, 300],
  [".rt-panes", 1010, 330],
  [".rt-work", 1280, 400],
  [".rt-bottom", 1280, 240],
  [".rt-plot", 600, 160],
];
const sizeOf = (el: Element): [number, number] => {
  const [, width, height] = SIZES.find(([selector]) => el.matches(selector)) ?? ["", 120, 20];
  return [width, height];
};
/** So many times faster the page's clock goes. */
const PACE = 20;
/** So long nothing changed when all is done, by that clock: the slowest task waits for 400 ms. */
const CALM = 1000;
/** Milliseconds by which a timer may be late: where it is later, other work keeps the processor, and is not done. */
const LATE = 8;
const clock = performance.now.bind(performance);
/** Where the second pane begins. */
const SECOND = 510;

/** Gives happy-dom what a browser has beside: sizes, canvases that write down what is drawn, a worker. */
export function stubBrowser(): void {
  for (const name of ["client", "offset", "scroll"].flatMap((kind) => [`${kind}Width`, `${kind}Height`])) {
    const get = function (this: Element): number {
      return sizeOf(this)[name.endsWith("Width") ? 0 : 1];
    };
    Object.defineProperty(HTMLElement.prototype, name, { configurable: true, get });
  }
  Element.prototype.getBoundingClientRect = function (this: Element) {
    const [width, height] = sizeOf(this);
    const x = this.matches('[data-pane="layer"]') ? SECOND : 0;
    return { x, y: 0, left: x, top: 0, width, height, right: x + width, bottom: height } as DOMRect;
  };
  Element.prototype.scrollIntoView = () => {};
  Object.assign(HTMLElement.prototype, { setPointerCapture: () => {} });
  const pens = new WeakMap<object, Frame>();
  HTMLCanvasElement.prototype.getContext = function (this: HTMLCanvasElement) {
    if (!pens.has(this)) pens.set(this, Object.assign(new Frame(), { canvas: this }));
    return pens.get(this);
  } as unknown as HTMLCanvasElement["getContext"];
  vi.stubGlobal("ImageData", Pixels);
  const { now } = performance;
  const later = setTimeout;
  vi.stubGlobal("setTimeout", (task: () => void, delay = 0) => later(task, delay / PACE));
  vi.spyOn(performance, "now").mockImplementation(() => PACE * now.call(performance));
  vi.stubGlobal("devicePixelRatio", 1);
  vi.stubGlobal("matchMedia", (query: string) => ({
    matches: query.includes("reduced-motion"),
    addEventListener() {},
    removeEventListener() {},
  }));
  // Node 20 has none.
  Map.groupBy ??= ((items: Iterable<unknown>, of: (item: unknown) => unknown) => {
    const groups = new Map<unknown, unknown[]>();
    for (const item of items) groups.set(of(item), [...(groups.get(of(item)) ?? []), item]);
    return groups;
  }) as typeof Map.groupBy;
  vi.stubGlobal("ResizeObserver", Observer);
  vi.stubGlobal("Worker", LayoutWorker);
  vi.doMock("../src/core/plotly", () => ({ loadPlotly: async () => ({ react, purge() {} }) }));
}

/** Tells once that there is a size. */
class Observer {
  constructor(readonly told: () => void) {}
  observe(): void {
    queueMicrotask(this.told);
  }
  disconnect(): void {}
}

class LayoutWorker {
  onmessage: (event: { data: unknown }) => void = () => {};
  postMessage({ id, input }: LayoutRequest): void {
    queueMicrotask(() => this.onmessage({ data: { id, output: layout(input) } }));
  }
  terminate(): void {}
}

/** The last picture on a canvas. */
class Frame extends Recorder {
  override fillRect(x: number, y: number, width: number, height: number): void {
    if (width >= this.canvas.width && height >= this.canvas.height) this.text = "";
    super.fillRect(x, y, width, height);
  }

  override putImageData(image: ImageData): void {
    this.text = "";
    super.putImageData(image);
  }
}

/** Stands for plotly: the figure becomes text in its place. */
async function react(
  place: HTMLElement,
  data: Plotted["data"],
  plan: object,
  config: object,
): Promise<object> {
  const lines = [...data, plan, config].map((part) => JSON.stringify(part, brief));
  place.replaceChildren(
    ...lines.map((line) => Object.assign(document.createElement("code"), { textContent: line })),
  );
  const listeners = new Map<string, (told: unknown) => void>();
  const on = (name: string, listener: (told: unknown) => void) => listeners.set(name, listener);
  return Object.assign(place, {
    on,
    tell: (name: string, told: unknown) => listeners.get(name)?.(told),
    _fullData: [],
  });
}

/** Numbers to four digits, and of a long list its first entries. */
const brief = (_: string, value: unknown): unknown =>
  typeof value === "number"
    ? Number(value.toPrecision(4))
    : Array.isArray(value) && value.length > 6
      ? [...value.slice(0, 6), `${value.length}`]
      : value;

const COLOURS =
  "ground #ffffff, card #fefefe, ink #111111, muted #666666, line-strong #bbbbbb, edge #999999, tag #eeeeee, select #dd7700, select-tint #ffeedd, hover #1166ee, hover-tint #ddeeff, hatch #dddddd";
const STYLE = `.rtlab { ${COLOURS.replaceAll(/(\S+) (\S+?)(, |$)/g, "--rt-$1: $2;")} }`;

/** An Explorer in a page, and what it asked its kernel. */
export interface Page {
  root: HTMLElement;
  model: StaticModel;
  sent: Command[];
  /** The view and the choice. */
  view(): ViewState & { choice: unknown };
  /** Waits until everything is drawn and nothing changes any more. */
  rest(): Promise<void>;
  find<E extends HTMLElement = HTMLElement>(selector: string): E;
  click(selector: string, how?: MouseEventInit): Promise<void>;
  key(key: string, selector?: string, how?: KeyboardEventInit): Promise<void>;
  /** What a canvas shows. */
  picture(selector: string): string;
  close(): void;
}

interface Opened {
  live?: boolean;
  view?: Partial<ViewState>;
  traits?: Partial<ExplorerTraits>;
}

/** Opens a study as a report, or as with a kernel that answers nothing but panels and shows variants. */
export async function open(name: Name, { live = true, view = {}, traits = {} }: Opened = {}): Promise<Page> {
  const { saved, traits: told } = await recorded(name);
  const model = new StaticModel(saved, new Uint8Array());
  const set = (part: object): void => {
    for (const [key, value] of Object.entries(part)) model.set(key as "height", value);
  };
  if (live) set({ saved: undefined, ...told });
  set({ view: { ...model.get("view"), ...view }, ...traits });
  const sent: Command[] = [];
  const { send } = model;
  model.send = (command) => {
    sent.push(command);
    send.call(model, command);
  };
  const tabs = import.meta.glob<{ default: unknown }>("../src/panels/*.tsx");
  const parts = Object.entries(tabs).map(
    async ([path, load]) => [/(\w+)\.tsx/.exec(path)![1], await load()] as const,
  );
  const code = new Map(await Promise.all(parts));
  const { render } = await import("../src/explorer/explorer");
  const el = document.body.appendChild(document.createElement("div"));
  const end = render({
    model: model as unknown as AnyModel<ExplorerTraits>,
    el,
    css: STYLE,
    part: async (part) => ({ ...code.get(/tab-(\w+)/.exec(part)![1]!), css: "" }),
  });
  const root = el.querySelector<HTMLElement>(".rtlab")!;
  const rest = async (): Promise<void> => {
    let changed = true;
    const observer = new MutationObserver(() => {
      changed = true;
    });
    observer.observe(root, { subtree: true, childList: true, attributes: true, characterData: true });
    while (changed) {
      changed = root.dataset.ready !== "1" && !root.dataset.failed;
      const began = clock();
      await new Promise((done) => setTimeout(done, CALM));
      changed ||= clock() - began > CALM / PACE + LATE;
    }
    observer.disconnect();
  };
  const find = <E extends HTMLElement>(selector: string): E => {
    const found = root.querySelector<E>(selector);
    if (!found) throw new Error(`There is no ${selector}`);
    return found;
  };
  await rest();
  return {
    root,
    model,
    sent,
    view: () => ({ ...model.get("view"), choice: model.get("choice") }),
    rest,
    find,
    async click(selector, how = {}) {
      find(selector).dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, ...how }));
      await rest();
    },
    async key(key, selector = ".rt-frame", how = {}) {
      const init = { bubbles: true, composed: true, cancelable: true, key, ...how };
      find(selector).dispatchEvent(new KeyboardEvent("keydown", init));
      await rest();
    },
    picture: (selector) => (find<HTMLCanvasElement>(selector).getContext("2d") as unknown as Frame).text,
    close() {
      end();
      el.remove();
    },
  };
}

/** What says nothing of its own: the tip has the words, and ids of a view are drawn by lot. */
const QUIET = /^(type|aria-hidden|aria-description|tabindex|viewBox)$/;

/** Elements as text, a line for each with its attributes and what it says; the paths of icons are left out. */
export function lines(node: Node, indent = ""): string {
  if (node.nodeType === 3) return node.textContent!.trim() && `${indent}${node.textContent!.trim()}\n`;
  if (!(node instanceof Element) || node.tagName === "STYLE") return "";
  const attributes = [...node.attributes].flatMap(({ name, value }) =>
    QUIET.test(name) || !(value.trim() || name === "hidden")
      ? []
      : ` ${name}=${JSON.stringify(value.trim())}`,
  );
  if (node instanceof HTMLInputElement)
    attributes.push(` now="${node.type === "checkbox" ? node.checked : node.value}"`);
  if (node instanceof HTMLSelectElement) attributes.push(` now="${node.value}"`);
  const head = indent + node.tagName.toLowerCase() + attributes.sort().join("");
  if (node.matches("svg.rt-icon, [hidden]")) return `${head}\n`;
  if ([...node.childNodes].every((child) => child.nodeType === 3 || (child as Element).matches?.(".rt-term")))
    return `${head}${node.textContent ? `: ${node.textContent.trim().replaceAll("\n", "\\n")}` : ""}\n`;
  return `${head}\n${[...node.childNodes].map((child) => lines(child, `${indent} `)).join("")}`;
}

/** A picture with a line for each element, and numbers to a tenth. */
export const drawing = (text: string): string =>
  `${text.replace(/-?\d+\.\d+(?:e-?\d+)?/g, (number) => String(Math.round(10 * Number(number)) / 10)).replaceAll("><", ">\n<")}\n`;
