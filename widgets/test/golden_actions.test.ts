// @vitest-environment happy-dom
import { afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import type { TensorStats, ViewState } from "../src/core/contract";
import { drawing, lines, open, type Page, stubBrowser } from "./page";
import { finding, packed, step, story } from "./payloads";

let saved: Promise<string>[] = [];
beforeAll(() => {
  stubBrowser();
  URL.createObjectURL = (blob) => `blob:${saved.push((blob as Blob).text())}`;
  URL.revokeObjectURL = () => {};
});
let page: Page;
afterEach(() => {
  page.close();
  vi.restoreAllMocks();
});

const golden = (name: string, text: string) => expect(text).toMatchFileSnapshot(`golden/${name}.txt`);

/**
 * What is done to the page, written in short: `name` is a click on the control of that name, `menu/item` the choice from
 * a menu or a list, `tab NAME` a tab, `SELECTOR = text` what is written into a field, `key @ SELECTOR` a key; all else
 * is a click on a selector. With `+` the Shift key is held. `#name` is one of the functions that a test adds.
 */
const ACTION = /^(?:(?<key>\S+) @ )?(?<shift>\+ )?(?<selector>.*?)(?: = (?<text>.*))?$/;

async function act(action: string): Promise<void> {
  const { key, shift, selector = "", text } = ACTION.exec(action)!.groups!;
  const how = { shiftKey: shift !== undefined };
  const [menu, item] = selector.split("/");
  const control = (name: string): string => `[data-control="${name}"]`;
  const at = (name: string): string =>
    /^(node|layer)$/.test(name)
      ? pane(name)
      : /^[\w-]+$/.test(name)
        ? control(name)
        : name.replace(/^tab (.*)$/, '[data-tab="$1"]');
  if (key) return page.key(key, at(selector), how);
  if (text !== undefined) {
    const field = page.find<HTMLInputElement>(at(selector));
    field.value = text;
    for (const name of ["input", "change"]) field.dispatchEvent(new Event(name, { bubbles: true }));
    return page.rest();
  }
  if (item === undefined) return page.click(at(selector), how);
  const chip = `[data-chip="${menu}"] .rt-more`;
  const opener = page.root.querySelector(chip) ? chip : `${control(menu!)} button`;
  if (page.find(opener).getAttribute("aria-expanded") !== "true") await page.click(opener);
  await page.click(`.rt-popup :is([data-item="${item}"], [data-value="${item}"])`);
}

/** Does what is written, and tells what the kernel is asked, what of the view changes, and what is said. */
async function diary(
  actions: string,
  shown: string[] = [],
  own: Record<string, () => unknown> = {},
): Promise<string> {
  let before = page.view() as unknown as Record<string, unknown>;
  let text = "";
  let last = new Set<string>();
  const flat = (value: unknown): string =>
    JSON.stringify(value, (key, own) => (key === "id" && /^\w+\.\d+$/.test(own) ? "" : own));
  for (const action of actions.trim().split(/\s*[;\n]\s*/)) {
    page.sent.length = 0;
    const mine = own[action.slice(1)];
    if (mine) await Promise.resolve(mine()).then(page.rest);
    else await act(action);
    // What is in focus is laid out anew meanwhile, and so is the whole after it.
    if (shown.includes("places") && /^(?:u|d|Escape) /.test(action))
      await new Promise((resolve) => setTimeout(resolve, 800)).then(page.rest);
    const now = page.view() as unknown as Record<string, unknown>;
    text += `${action}\n`;
    // Where several are asked one after the other, the pace decides which of them are put.
    const asked = page.sent.filter(({ type }) => type !== "panel" || shown.includes("panels"));
    for (const command of asked) text += `  asks ${flat(command)}\n`;
    for (const key of Object.keys(now))
      if (flat(now[key]) !== flat(before[key])) text += `  ${key} ${flat(now[key])}\n`;
    const { focus, hits } = page.root.dataset;
    const said = page.find(".rt-sentence").textContent;
    text += `  ${[focus !== "0" && `focus ${focus}`, hits !== "0" && `hits ${hits}`, said].filter(Boolean).join(", ")}\n`;
    const parts = shown.flatMap((selector) => [...page.root.querySelectorAll(selector)]);
    const seen = new Set(parts.map((part) => lines(part, "    ")));
    // What is as it was is not written again.
    for (const part of seen) if (!last.has(part)) text += part;
    for (const part of last) if (!seen.has(part)) text += `  no more${part.split("\n")[0]!.slice(3, 90)}\n`;
    [before, last] = [now, seen];
    if (shown.includes("places")) text += `  ${places()}\n`;
  }
  return text;
}

const pane = (side: string): string => `canvas[data-pane="${side}"]`;
/** What the root of a widget offers to tests in a browser. */
interface Handles {
  rtlabBoxAt(side: string, id: string): { x: number; y: number };
  rtlabView(side: string): number[] | null;
}
const places = (): string =>
  JSON.stringify(["node", "layer"].map((side) => (page.root as unknown as Handles).rtlabView(side)));

describe("what the page does", () => {
  it("with the choice", async () => {
    page = await open("two_outputs");
    const actions = `
      [data-value="fp16"]; build; [data-value="int8"]; ArrowRight @ [data-value="int8"]; calibrator/minmax
      settings/tensor; settings/sparse; settings/budget-60; treatments/equalize; treatments/equalize
      target/sm86; model/digits_gru; build; netron; save-study`;
    const shown = ["settings", "treatments"].map((name) => `[data-control="${name}"] > button`);
    await golden("actions/choice", await diary(actions, [...shown, '[data-control="build"]']));
  });

  it("with variants", async () => {
    page = await open("written");
    const shown = ["tr.rt-current", "tr.rt-compared", ".rt-what"];
    const actions = `
      [data-chip="fp16"] button; [data-chip="fp32"] button
      [data-chip="fp16"] [data-control="compare"]; fp16/baseline; fp16/rebuild; fp16/remove; close-other`;
    await golden("actions/variants", await diary(actions, shown));
  });

  it("with a variant that can be taken along", async () => {
    page = await open("two_outputs");
    const actions = "int8/save-onnx; int8/elsewhere; .rt-elsewhere footer button; Escape @ .rt-frame";
    await golden("actions/along", await diary(actions, [".rt-elsewhere"]));
  });

  it("with keys in a pane", async () => {
    page = await open("written", { view: { variant: "int8" } });
    const keys =
      "ArrowDown ArrowDown Enter ArrowDown ArrowDown ArrowRight ArrowUp Enter z u Escape d Escape c + - f s o Tab Escape";
    const keysOf = (side: string): string => keys.replaceAll(/(\S+) ?/g, `$1 @ ${side};`);
    await golden(
      "actions/keys",
      await diary(`${keysOf("node")}Enter @ + node;${keysOf("layer")}f @ layer`, ["places"]),
    );
  });

  it("with the search, groups, directions and panes", async () => {
    page = await open("control_flow");
    const shown = [".rt-search output", ".rt-strip", ".rt-legend", "canvas[aria-label]"];
    const actions = `
      / @ node; input[type=search] = conv; Enter @ input[type=search]; ArrowDown @ input[type=search]
      ArrowUp @ input[type=search]; filter-node; Escape @ input[type=search]
      more-node/group-layers; more-node/fold-all; more-node/open-all; more-node/group-scopes; more-node/group-repeats
      more-node/group-none; more-node/across; more-node/down; more-node/pane-layer; more-node/pane-layer
      more-layer/group-repeats; swap; stack; follow; colour-node/layer; colour-layer/precision`;
    await golden("actions/panes", await diary(actions, shown));
  });

  it("with the pointer on a graph", async () => {
    page = await open("written", { view: { variant: "int8" } });
    const point = (side: string, id: string, names: string, how: PointerEventInit = {}) => {
      const { x, y } = (page.root as unknown as Handles).rtlabBoxAt(side, id);
      const at = { clientX: x, clientY: y, bubbles: true, button: 0, buttons: 1, pointerId: 1, ...how };
      for (const name of names.split(" "))
        page.find(pane(side)).dispatchEvent(new PointerEvent(`pointer${name}`, at));
    };
    const wheel = (how: WheelEventInit) =>
      page.find(pane("node")).dispatchEvent(new WheelEvent("wheel", { clientX: 100, clientY: 100, ...how }));
    const drag = (dx: number, dy: number) => {
      point("node", "conv1", "down");
      const at = { clientX: 250 + dx, clientY: 150 + dy, pointerId: 1 };
      for (const name of ["pointermove", "pointerup"])
        page.find(pane("node")).dispatchEvent(new PointerEvent(name, at));
    };
    const double = { clientX: 250, clientY: 150 };
    const actions = `
      #point; #click; #add; #leave; #layer; #wheel; #zoom; #across; #drag; #jitter; #double
      [aria-label^="Zoom out"]; [aria-label^="Fit the graph"]`;
    const text = await diary(actions, [".rt-tip", ".rt-threads", "places"], {
      point: () => point("node", "conv1", "move"),
      click: () => point("node", "conv1", "down up"),
      add: () => point("node", "relu1", "down up", { shiftKey: true }),
      leave: () => page.find(pane("node")).dispatchEvent(new MouseEvent("pointerleave")),
      layer: () => point("layer", "1:conv1 + relu1", "down up"),
      wheel: () => wheel({ deltaY: 30 }),
      zoom: () => wheel({ deltaY: -40, ctrlKey: true }),
      across: () => wheel({ deltaX: -3, deltaMode: 1 }),
      drag: () => drag(20, -30),
      jitter: () => drag(2, 1),
      double: () => page.find(pane("node")).dispatchEvent(new MouseEvent("dblclick", double)),
    });
    await golden("actions/pointer", text);
  });

  it("with what is selected", async () => {
    page = await open("two_outputs");
    const [numbers, words] = [
      { count: 216, minimum: -1, maximum: 2, mean: 0.1, std: 0.4 },
      { dtype: "fp32", shape: "8×3×3×3" },
    ];
    const stats = {
      name: "w1",
      kind: "weight",
      origin: "measured",
      source: "",
      zeros: 0.25,
      lower: -1,
      upper: 2,
    };
    const tensors = [{ ...stats, ...numbers, ...words, counts: [1, 4, 9, 4, 0, 1] }] as TensorStats[];
    const select = (part: Partial<ViewState>) => page.model.set("view", { ...page.view(), ...part });
    const actions = `
      #node; #tensors; pin/fp16; prune; pins/stem; pin/fp16; unpin; trace-up; only; all; trace-down; extract
      #layer; .rt-panel .rt-link`;
    const shown = [".rt-panel > *", ".rt-threads", ".rt-strip", '[data-control="pins"]'];
    const text = await diary(actions, shown, {
      node: () => select({ selection: ["stem"], layers: [], anchor: "node" }),
      tensors: () => page.model.set("inspection", { node: "stem", tensors, note: "" }),
      layer: () => select({ selection: ["stem"], layers: ["4:stem"], anchor: "layer" }),
    });
    await golden("actions/selected", text);
  });

  it("with the decisions of a build", async () => {
    const fuse = (line: number, ...nodes: string[]) =>
      step(nodes, { line, rule: "ConvRelu", text: `Fusing ${nodes}` });
    const remove = { joins: false, action: "eliminate", line: 9, text: "Removing pool" } as const;
    const steps = [fuse(3, "conv1", "relu1"), step(["pool"], remove), fuse(12, "conv3", "add", "relu3")];
    const passes = [
      { name: "first", before: 9, after: 8, first: 0, steps: 1 },
      { name: "second", before: null, after: 6, first: 1, steps: 2 },
      { name: "third", before: 6, after: null, first: 3, steps: 0 },
    ];
    const candidate = (name: string, milliseconds: number) => {
      return {
        tactic: { tactic: `0x${milliseconds}`, name, milliseconds },
        formats: "Half(1,2)",
        name: `Caller ${name}`,
      };
    };
    const contests = ["conv1", "conv3"].map((layer, k) => {
      const [id, margin] = k ? ["", null] : ["1:conv1 + relu1", 0.25];
      return {
        layer,
        id,
        count: 3 + k,
        margin,
        candidates: [candidate("fast", 0.004), candidate("slow", 0.005 + k)],
      };
    });
    const told = { title: "A builder", counts: [9, 8, 6], passes, steps, contests, notes: ["Noted"] };
    page = await open("written", { view: { variant: "int8", tab: "build" } });
    page.model.set(
      "build_answer",
      await packed(story({ ...told, memory: [{ key: "Peak", value: "8 MB" }] })),
    );
    await page.rest();
    await golden("actions/story", lines(page.find(".rt-under")));
    const actions = `
      ArrowRight @ .rt-story; ArrowRight @ .rt-story; ArrowLeft @ .rt-story; End @ .rt-story; ArrowRight @ .rt-story
      Home @ .rt-story; next; last; prev; first; replay; .rt-story [data-step="3"]; .rt-passes li:nth-child(2) button
      ArrowDown @ .rt-passes; step = 1`;
    const shown = [".rt-story output", '[data-control="decision"]', ".rt-story [disabled]", pane("node")];
    await golden("actions/build", await diary(actions, shown));
  });

  it("in its tabs", async () => {
    page = await open("two_outputs");
    const items = ["a", "b", "b"].map((rule, k) => {
      const part = { rule, nodes: ["stem", "mix"].slice(k - 1), microseconds: 7 * k, fixable: k > 0 };
      return finding({ id: `f${k}`, ...part, cost: "● 7 µs", fix: "Do" });
    });
    page.model.set("findings_answer", await packed({ items, note: "All" }));
    await page.rest();
    const plot = (event: string) => () => {
      const place: unknown = page.find('[data-chart="timing"] .rt-plot');
      (place as { tell(...told: unknown[]): void }).tell(event, { points: [{ id: "4:stem" }] });
    };
    const actions = `
      tab table; .rt-under th:nth-child(6) button; .rt-under th:nth-child(6) button; .rt-under tbody tr:nth-child(2)
      + .rt-under tbody tr:nth-child(4); tab findings; .rt-findings li:nth-child(2) button; repair; repair-all
      tab timing; #pick; #hover; [data-order="time"]; [data-segment="batches"]; .rt-under [data-work]
      tab memory; tab calibration; .rt-under tbody tr:nth-child(2); tab build; tab recipe`;
    const shown = [
      ".rt-under [aria-sort]:not([aria-sort=none])",
      ".rt-under [aria-selected=true]",
      ".rt-findings > *",
    ];
    const own = { pick: plot("plotly_click"), hover: plot("plotly_hover") };
    await golden("actions/tabs", await diary(actions, shown, own));
  });

  it("with help, the tour and a presentation", async () => {
    page = await open("written");
    const shown = ["[role=separator]", ".rt-help", ".rt-stop", ".rt-showbar", ".rt-agenda"];
    const actions = `
      ? @ .rt-frame; Escape @ .rt-frame; T @ .rt-frame; ArrowRight @ .rt-frame; ArrowRight @ .rt-frame
      ArrowRight @ .rt-frame; ArrowRight @ .rt-frame; ArrowLeft @ .rt-frame; Escape @ .rt-frame
      show/steps; record; [data-chip="fp16"] button; tab memory; record; P @ .rt-frame; ArrowLeft @ .rt-frame
      ArrowLeft @ .rt-frame; ArrowRight @ .rt-frame; Home @ .rt-frame; End @ .rt-frame; Escape @ .rt-frame
      ArrowUp @ .rt-frame > [role=separator]; ArrowDown @ .rt-frame > [role=separator]
      ArrowDown @ .rt-frame > [role=separator]; Enter @ .rt-frame > [role=separator]
      ArrowRight @ .rt-seam [role=separator]`;
    await golden("actions/show", await diary(actions, shown));
  });

  it("as a report, and in states of the kernel", async () => {
    page = await open("written", { live: false });
    let text = lines(page.find(".rt-top")) + lines(page.find(".rt-variants"));
    page.close();
    const failure = {
      kind: "Cannot build",
      message: "It failed.",
      details: "line 1\nline 2",
      until: ["scores"],
      rewrites: ["inline op:Celu"],
      variant: "fp32",
    };
    const states: Parameters<typeof open>[1][] = [
      { traits: { build: { running: true, phase: "compiling fp16 · 3 of 8", fraction: 0.4, elapsed: 75 } } },
      { traits: { failure, notice: "Said\nwhat it is" } },
      {
        view: { variant: "fp32", compared: "int8", panes: ["node", "layer", "other"], selection: ["conv1"] },
      },
      { traits: { chips: [], layout: { comm_live: false } } as object },
    ];
    for (const state of states) {
      page = await open("written", state);
      const { root } = page;
      const snapshot = (): string => {
        const whole = root.cloneNode(true) as Element;
        for (const part of whole.querySelectorAll(
          ".rt-bottom, .rt-choices > .rt-select, header, .rt-segments",
        ))
          part.remove();
        // The clock of a build goes on meanwhile.
        return lines(whole).replaceAll(/1 min \d+ s/g, "1 min 15 s");
      };
      // Numbers of the layers follow the picture, later on a busy machine.
      let [before, now] = ["", snapshot()];
      while (before !== now) {
        await new Promise((resolve) => setTimeout(resolve, 200));
        [before, now] = [now, snapshot()];
      }
      text += now;
      if (state !== states.at(-1)) page.close();
    }
    await golden("actions/states", text);
  });

  it("without a kernel, in each tab, menu and list", async () => {
    // Only what was worked out before is there.
    page = await open("two_outputs", { traits: { layout: { comm_live: false } } as object });
    const names = [...page.root.querySelectorAll("[data-tab]")].map((tab) => tab.getAttribute("data-tab"));
    const tabs = names.map((name) => `tab ${name}`).join(";");
    const lists = [...page.root.querySelectorAll(".rt-select > button, [aria-haspopup=menu]")];
    const press = (k: number) => () => (lists[k] as HTMLElement).click();
    const own = Object.fromEntries(lists.map((_, k) => [`list${k}`, press(k)]));
    const away = () => document.body.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true }));
    const opened = lists.map((_, k) => `#list${k}; #away`).join(";");
    const shown = [
      ".rt-popup",
      "[role=listbox]",
      '[data-control="unanswered"]',
      ".rt-under h4",
      ".rt-under [disabled]",
    ];
    await golden("actions/alone", await diary(`${tabs};${opened}`, shown, { ...own, away }));
  });
});

describe("what is drawn", () => {
  it.each([
    ["control_flow", {}],
    ["control_flow", { grouping_nodes: "layers", grouping: "repeats", across: true }],
    ["written", { variant: "int8", selection: ["conv1"], colour_nodes: "layer", colour: "precision" }],
    ["two_outputs", { colour: "error", colour_nodes: "error", folds: [] }],
  ] as const)("of %s with %o", async (name, view) => {
    page = await open(name, { view: view as Partial<ViewState> });
    // Where a graph stands at first depends on which of the two was laid out first.
    for (const side of ["node", "layer"]) await page.key("f", pane(side));
    const both = () => ["node", "layer"].map((side) => drawing(page.picture(pane(side)))).join("");
    let text = both() + drawing(page.picture(".rt-map"));
    for (let k = 0; k < 5; k++) await page.click('[aria-label^="Zoom out"]');
    text += drawing(page.picture(pane("node")));
    await golden(`drawn/${name}${Object.keys(view).length}`, text);
  });

  it("into files", async () => {
    page = await open("written", { view: { variant: "int8" } });
    saved = [];
    await act("more-layer/svg");
    await vi.waitUntil(() => saved.length > 0);
    await golden("drawn/files", (await Promise.all(saved)).map(drawing).join(""));
  });
});
