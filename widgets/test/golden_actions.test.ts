// @vitest-environment happy-dom
import { afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import type { ViewState } from "../src/contract";
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

/** What is done to the page: a key on an element, or a click on one; with + the shift key is held. */
type Action = string | [words: string, () => unknown];

/** Does what is told, and writes down what the kernel is asked, what of the view changes, and what is said. */
async function diary(actions: readonly Action[], shown: string[] = []): Promise<string> {
  let before = page.view() as unknown as Record<string, unknown>;
  let text = "";
  let last = new Set<string>();
  const flat = (value: unknown): string =>
    JSON.stringify(value, (key, own) => (key === "id" && /^\w+\.\d+$/.test(own) ? "" : own));
  for (const action of actions) {
    page.sent.length = 0;
    if (typeof action !== "string") {
      await action[1]();
      await page.rest();
    } else {
      const [, key, shift, selector] = /^(?:(\S+) @ )?(\+ )?(.*)$/.exec(action)!;
      const how = { shiftKey: shift !== undefined };
      if (key) await page.key(key, selector, how);
      else await page.click(selector!, how);
    }
    const now = page.view() as unknown as Record<string, unknown>;
    text += `${typeof action === "string" ? action : action[0]}\n`;
    for (const command of page.sent) text += `  asks ${flat(command)}\n`;
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
  }
  return text;
}

const pane = (side: string): string => `canvas[data-pane="${side}"]`;
const item = (menu: string, id: string): Action[] => [
  `[data-control="${menu}"] :is(button[aria-expanded="false"], [role="menu"])`,
  `[data-item="${id}"]`,
];
const option = (list: string, value: string): Action[] => [
  `[data-control="${list}"] button`,
  `[data-control="${list}"] [data-value="${value}"]`,
];
/** Writes into a field, or chooses from a list. */
const write = (selector: string, value: string): Action => [
  `${selector} = ${value}`,
  () => {
    const field = page.find<HTMLInputElement>(selector);
    field.value = value;
    for (const name of ["input", "change"]) field.dispatchEvent(new Event(name, { bubbles: true }));
  },
];
const places = () =>
  JSON.stringify(
    ["node", "layer", "other"].map((side) =>
      (page.root as unknown as { rtlabView(side: string): number[] }).rtlabView(side),
    ),
  );

describe("what the page does", () => {
  it("with the choice", async () => {
    page = await open("two_outputs");
    const build = '[data-control="build"]';
    await golden(
      "actions/choice",
      await diary(
        [
          '[data-value="fp16"]',
          build,
          '[data-value="int8"]',
          'ArrowRight @ [data-value="int8"]',
          ...option("calibrator", "minmax"),
          ...item("settings", "tensor"),
          ...item("settings", "sparse"),
          ...item("settings", "budget-60"),
          ...item("treatments", "equalize"),
          ...item("treatments", "undo"),
          ...option("target", "sm86"),
          ...option("model", "digits_gru"),
          build,
          '[data-control="netron"]',
        ],
        ['[data-control="settings"] > button', '[data-control="treatments"] > button', build],
      ),
    );
  });

  it("with variants", async () => {
    page = await open("written");
    const more = (id: string, name: string): Action[] => [
      `[data-chip="${id}"] .rt-more`,
      `[data-item="${name}"]`,
    ];
    await golden(
      "actions/variants",
      await diary(
        [
          '[data-chip="fp16"] > button',
          '[data-chip="fp32"] > button',
          ...["compare", "baseline", "netron", "rebuild", "remove"].flatMap((name) => more("fp16", name)),
          '[data-control="close-other"]',
        ],
        [".rt-current > button", ".rt-compared > button", ".rt-what", ".rt-elsewhere"],
      ),
    );
  });

  it("with a variant that can be taken along", async () => {
    page = await open("two_outputs");
    const more = (name: string): Action[] => ['[data-chip="int8"] .rt-more', `[data-item="${name}"]`];
    const actions = [...more("save-scales"), ...more("elsewhere"), ".rt-elsewhere footer button"];
    await golden("actions/along", await diary([...actions, "Escape @ .rt-frame"], [".rt-elsewhere"]));
  });

  it("with keys in a pane", async () => {
    page = await open("written", { view: { variant: "int8" } });
    const keys = [
      "ArrowDown",
      "ArrowDown",
      "Enter",
      "ArrowDown",
      "+ArrowDown",
      "ArrowRight",
      "ArrowUp",
      "Enter",
      "z",
      "u",
      "Escape",
      "d",
      "Escape",
      "c",
      "+",
      "-",
      "f",
      "s",
      "o",
      "Tab",
      "Escape",
    ];
    const act = (side: string) =>
      keys.map(
        (key): Action =>
          `${key.replace(/^\+(?=.)/, "")} @ ${key.length > 1 && key[0] === "+" ? "+ " : ""}${pane(side)}`,
      );
    const text = [];
    for (const action of [...act("node"), `Enter @ + ${pane("node")}`, ...act("layer")])
      text.push(await diary([action]), `  ${places()}\n`);
    await golden("actions/keys", text.join(""));
  });

  it("with the search, groups, directions and panes", async () => {
    page = await open("control_flow");
    await golden(
      "actions/panes",
      await diary(
        [
          `/ @ ${pane("node")}`,
          write("input[type=search]", "conv"),
          "Enter @ input[type=search]",
          "ArrowDown @ input[type=search]",
          "ArrowUp @ input[type=search]",
          '[data-control="filter-node"]',
          "Escape @ input[type=search]",
          ...[
            "group-layers",
            "open-all",
            "fold-all",
            "group-scopes",
            "group-repeats",
            "group-none",
            "across",
            "down",
            "pane-layer",
            "pane-layer",
          ].flatMap((id) => item("more-node", id)),
          ...item("more-layer", "group-repeats"),
          '[data-control="swap"]',
          '[data-control="stack"]',
          '[data-control="follow"]',
          ...option("colour-node", "layer"),
          ...option("colour-layer", "precision"),
        ],
        [".rt-search output", ".rt-strip", ".rt-legend", "canvas[aria-label]"],
      ),
    );
  });

  it("with the pointer on a graph", async () => {
    page = await open("written", { view: { variant: "int8" } });
    const point = (side: string, id: string, name: string, how: PointerEventInit = {}) => {
      const { x, y } = (
        page.root as unknown as { rtlabBoxAt(side: string, id: string): { x: number; y: number } }
      ).rtlabBoxAt(side, id);
      const at = { clientX: x, clientY: y, bubbles: true, button: 0, buttons: 1, pointerId: 1, ...how };
      page.find(pane(side)).dispatchEvent(new PointerEvent(name, at));
    };
    const click = (side: string, id: string, how: PointerEventInit = {}) => {
      point(side, id, "pointerdown", how);
      point(side, id, "pointerup", how);
    };
    const wheel = (how: WheelEventInit) =>
      page.find(pane("node")).dispatchEvent(new WheelEvent("wheel", { clientX: 100, clientY: 100, ...how }));
    const drag = (dx: number, dy: number) => {
      point("node", "conv1", "pointerdown");
      const at = { clientX: 250 + dx, clientY: 150 + dy, pointerId: 1 };
      for (const name of ["pointermove", "pointerup"])
        page.find(pane("node")).dispatchEvent(new PointerEvent(name, at));
    };
    const actions: Action[] = [
      ["point at conv1", () => point("node", "conv1", "pointermove")],
      ["click conv1", () => click("node", "conv1")],
      ["click relu1 with Shift", () => click("node", "relu1", { shiftKey: true })],
      ["leave", () => page.find(pane("node")).dispatchEvent(new MouseEvent("pointerleave"))],
      ["click layer 1", () => click("layer", "1:conv1 + relu1")],
      ["wheel down", () => wheel({ deltaY: 30 })],
      ["wheel with Ctrl", () => wheel({ deltaY: -40, ctrlKey: true })],
      ["wheel lines across", () => wheel({ deltaX: -3, deltaMode: 1 })],
      ["drag", () => drag(20, -30)],
      ["drag by less than counts", () => drag(2, 1)],
      [
        "double click",
        () =>
          page.find(pane("node")).dispatchEvent(new MouseEvent("dblclick", { clientX: 250, clientY: 150 })),
      ],
      '[aria-label^="Zoom out"]',
      '[aria-label^="Fit the graph"]',
    ];
    let text = "";
    for (const action of actions)
      text += `${await diary([action], [".rt-tip", ".rt-threads", ".rt-seen li"])}  ${places()}\n`;
    await golden("actions/pointer", text);
  });

  it("with what is selected", async () => {
    page = await open("two_outputs");
    const stats = {
      name: "w1",
      kind: "weight",
      dtype: "fp32",
      shape: "8×3×3×3",
      origin: "measured",
      source: "",
      count: 216,
      minimum: -1,
      maximum: 2,
      mean: 0.1,
      std: 0.4,
      zeros: 0.25,
      lower: -1,
      upper: 2,
      counts: [1, 4, 9, 4, 0, 1],
    };
    const box = (id: string): Action[] => [
      [
        `select ${id}`,
        () => page.model.set("view", { ...page.view(), selection: [id], layers: [], anchor: "node" }),
      ],
    ];
    const layer: Action = [
      "select a layer",
      () =>
        page.model.set("view", { ...page.view(), selection: ["stem"], layers: ["4:stem"], anchor: "layer" }),
    ];
    const inspect: Action = [
      "tensors come",
      () => page.model.set("inspection", { node: "stem", tensors: [stats], note: "" } as never),
    ];
    await golden(
      "actions/selected",
      await diary(
        [
          ...box("stem"),
          inspect,
          ...option("pin", "fp16"),
          '[data-control="prune"]',
          '[data-control="pins"] button',
          '[data-item="stem"]',
          '[data-control="undo-pins"]',
          '[data-control="unpin"]',
          '[data-control="trace-up"]',
          '[data-control="only"]',
          '[data-control="all"]',
          '[data-control="trace-down"]',
          '[data-control="extract"]',
          layer,
          ".rt-panel .rt-link",
          "Enter @ + .rt-panel",
        ],
        [".rt-panel > *", ".rt-threads", ".rt-strip", '[data-control="pins"]'],
      ),
    );
  });

  it("with the decisions of a build", async () => {
    const fuse = (line: number, ...nodes: string[]) =>
      step(nodes, { line, rule: "ConvRelu", text: `Fusing ${nodes}` });
    const steps = [
      fuse(3, "conv1", "relu1"),
      step(["pool"], { joins: false, action: "eliminate", line: 9, text: "Removing pool" }),
      fuse(12, "conv3", "add", "relu3"),
    ];
    const passes = [
      { name: "first", before: 9, after: 8, first: 0, steps: 1 },
      { name: "second", before: null, after: 6, first: 1, steps: 2 },
      { name: "third", before: 6, after: null, first: 3, steps: 0 },
    ];
    const candidate = (name: string, milliseconds: number) => ({
      tactic: { tactic: `0x${milliseconds}`, name, milliseconds },
      formats: "Half(1,2)",
      name: `Caller ${name}`,
    });
    const contests = ["conv1", "conv3"].map((layer, k) => ({
      layer,
      id: k ? "" : "1:conv1 + relu1",
      count: 3 + k,
      margin: k ? null : 0.25,
      candidates: [candidate("fast", 0.004), candidate("slow", 0.005 + k)],
    }));
    const told = story({
      title: "A builder",
      counts: [9, 8, 6],
      passes,
      steps,
      contests,
      memory: [{ key: "Peak", value: "8 MB" }],
      notes: ["Noted"],
    });
    page = await open("written", { view: { variant: "int8", tab: "build" } });
    page.model.set("build_answer", await packed(told));
    await page.rest();
    await golden("actions/story", lines(page.find(".rt-under")));
    const keys = ["ArrowRight", "ArrowRight", "ArrowLeft", "End", "ArrowRight", "Home"].map(
      (key) => `${key} @ .rt-story`,
    );
    await golden(
      "actions/build",
      await diary(
        [
          ...keys,
          ...["next", "last", "prev", "first"].map((name) => `[data-control="${name}"]`),
          '[data-control="replay"]',
          '.rt-story [data-step="3"]',
          ".rt-passes li:nth-child(2) button",
          "ArrowDown @ .rt-passes",
          write('[data-control="step"]', "1"),
          '[data-control="play"]',
        ],
        [".rt-story output", '[data-control="decision"]', ".rt-story [disabled]", "canvas[data-pane=node]"],
      ),
    );
  });

  it("in its tabs", async () => {
    page = await open("two_outputs");
    const items = ["a", "b", "b"].map((rule, k) =>
      finding({
        id: `f${k}`,
        rule,
        nodes: ["stem", "mix"].slice(k - 1),
        microseconds: 7 * k,
        fixable: k > 0,
        cost: "● 7 µs",
        fix: "Do",
      }),
    );
    page.model.set("findings_answer", await packed({ items, note: "All" }));
    await page.rest();
    const plot = (event: string, told: object): Action => {
      const place = () =>
        page.find('[data-chart="timing"] .rt-plot') as unknown as { tell(...told: unknown[]): void };
      return [`${event} ${JSON.stringify(told)}`, () => place().tell(event, told)];
    };
    await golden(
      "actions/tabs",
      await diary(
        [
          '[data-tab="table"]',
          ".rt-under th:nth-child(6) button",
          ".rt-under th:nth-child(6) button",
          ".rt-under tbody tr:nth-child(2)",
          "+ .rt-under tbody tr:nth-child(4)",
          '[data-tab="findings"]',
          ".rt-findings li:nth-child(2) input",
          '[data-control="repair"]',
          write('[data-control="rule"]', "b"),
          '[data-control="repair"]',
          '[data-tab="timing"]',
          plot("plotly_click", { points: [{ id: "4:stem" }] }),
          plot("plotly_hover", { points: [{ id: "4:stem" }] }),
          '[data-order="time"]',
          '[data-segment="batches"]',
          ".rt-under [data-work]",
          '[data-tab="memory"]',
          '[data-tab="calibration"]',
          ".rt-under tbody tr:nth-child(2)",
          '[data-tab="build"]',
          '[data-tab="recipe"]',
        ],
        [".rt-under [aria-sort]:not([aria-sort=none])", ".rt-under [aria-selected=true]", ".rt-findings"],
      ),
    );
  });

  it("with help, the tour and a presentation", async () => {
    page = await open("written");
    const shown = ["[role=separator]", ".rt-help", ".rt-guide", ".rt-showbar", ".rt-steps", ".rt-spot"];
    await golden(
      "actions/show",
      await diary(
        [
          "? @ .rt-frame",
          "Escape @ .rt-frame",
          "T @ .rt-frame",
          ...["ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft", "Escape"].map(
            (key) => `${key} @ .rt-frame`,
          ),
          ...item("show", "steps"),
          '[data-control="record"]',
          '[data-chip="fp16"] > button',
          '[data-tab="memory"]',
          '[data-control="record"]',
          "P @ .rt-frame",
          ...["ArrowLeft", "ArrowLeft", "ArrowRight", "Home", "End", "Escape"].map(
            (key) => `${key} @ .rt-frame`,
          ),
          ...["ArrowUp", "ArrowDown", "ArrowDown", "Enter"].map(
            (key) => `${key} @ .rt-frame > [role=separator]`,
          ),
          "ArrowRight @ .rt-seam [role=separator]",
        ],
        shown,
      ),
    );
  });

  it("as a report, and in states of the kernel", async () => {
    page = await open("written", { live: false });
    let text = lines(page.find(".rt-top")) + lines(page.find(".rt-chips"));
    page.close();
    const failure = { kind: "Cannot build", message: "It failed.", details: "line 1\nline 2" };
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
      const whole = page.root.cloneNode(true) as Element;
      for (const part of whole.querySelectorAll(".rt-bottom, .rt-choices > .rt-select, header, .rt-segments"))
        part.remove();
      text += lines(whole);
      if (state !== states.at(-1)) page.close();
    }
    await golden("actions/states", text);
  });
});

/** Gives each element of the page a place that follows from its place in the tree, and words one of their own. */
function placeInTurn(): void {
  const rect = (left: number, top: number, width: number, height: number) =>
    ({ left, top, width, height, right: left + width, bottom: top + height }) as DOMRect;
  const under = page.find(".rt-under");
  const places = new Map(
    [...under.querySelectorAll("*")].map((el, k) => [el as Element, rect(5 + (k % 7), 3 + 4 * k, 220, 24)]),
  );
  vi.spyOn(Element.prototype, "getBoundingClientRect").mockImplementation(function (this: Element) {
    return places.get(this) ?? rect(0, 0, 240, 500);
  });
  vi.spyOn(Range.prototype, "getBoundingClientRect").mockImplementation(function (this: Range) {
    const { left, top } = (this.startContainer.parentElement as Element).getBoundingClientRect();
    return rect(left - 6 + 6 * this.startOffset, top + 6, 6 * (this.endOffset - this.startOffset), 12);
  });
  const style = page.root.appendChild(document.createElement("style"));
  style.textContent =
    ".rt-under * { font-size: 12px; color: rgb(1, 2, 3); background-color: transparent; overflow: hidden; border-bottom: 1px solid rgb(4, 5, 6); } .rt-under li, .rt-under ul, .rt-under section, .rt-under div { overflow: visible; }";
}

describe("what is drawn", () => {
  it.each([
    ["control_flow", {}],
    ["control_flow", { grouping_nodes: "layers", grouping: "repeats", across: true }],
    [
      "written",
      {
        variant: "int8",
        selection: ["conv1"],
        layers: ["1:conv1 + relu1"],
        colour_nodes: "layer",
        colour: "precision",
      },
    ],
    ["two_outputs", { colour: "error", colour_nodes: "error", folds: [] }],
  ] as const)("of %s with %o", async (name, view) => {
    page = await open(name, { view: view as Partial<ViewState> });
    const both = () => ["node", "layer"].map((side) => drawing(page.picture(pane(side)))).join("");
    let text = both() + drawing(page.picture(".rt-map"));
    for (let k = 0; k < 5; k++) await page.click('[aria-label^="Zoom out"]');
    text += drawing(page.picture(pane("node")));
    await golden(`drawn/${name}${Object.keys(view).length}`, text);
  });

  it("half the way from nodes to layers, and into files", async () => {
    page = await open("written", { view: { variant: "int8" } });
    await page.click('[data-control="morph"]');
    const slider = page.find<HTMLInputElement>('[data-control="morph-slider"]');
    slider.value = "0.5";
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    await page.rest();
    await golden("drawn/morph", drawing(page.picture(pane("node"))) + lines(page.find(".rt-morph")));
    saved = [];
    await page.click('[data-control="more-layer"] button');
    await page.click('[data-item="svg"]');
    await page.click('[data-tab="findings"]');
    placeInTurn();
    await page.click('[data-control="picture"] button');
    await page.click('[data-item="svg"]');
    await vi.waitUntil(() => saved.length > 1);
    await golden("drawn/files", (await Promise.all(saved)).map(drawing).join(""));
  });
});
