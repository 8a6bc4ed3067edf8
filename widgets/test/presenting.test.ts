import { signal } from "@preact/signals";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Command, Step, ViewState } from "../src/contract";
import type { PaneSet } from "../src/paneset";
import { Presenting, python, recorded, replayed } from "../src/presenting";
import { START, Study } from "../src/state";
import { box, engineView, graph } from "./payloads";

let end = new AbortController();
beforeEach(() => {
  vi.stubGlobal("requestAnimationFrame", () => 1);
  vi.stubGlobal("cancelAnimationFrame", () => undefined);
});
afterEach(() => {
  end.abort();
  end = new AbortController();
  vi.unstubAllGlobals();
});

const engine = engineView({
  variant: "fp32",
  graph: graph("engine", [box({ id: "A", kind: "layer" }), box({ id: "B", kind: "layer" })]),
  pairs: [
    { node: "x", layer: "A", evidence: "declared", role: "work" },
    { node: "y", layer: "B", evidence: "declared", role: "work" },
  ],
});

/** A presentation on a study of two nodes in two layers, and what it asks of the kernel and leaves in the notebook. */
function presentation(steps: Step[] = [], view: Partial<ViewState> = {}, saved = false, stages: object = {}) {
  const state = { view: { ...START, variant: "fp32", ...view }, source: null, engine: null, other: null };
  const deaf = () => undefined;
  const quiet = {
    get: (name: keyof typeof state) => state[name],
    set: deaf,
    save_changes: deaf,
    on: deaf,
    off: deaf,
  };
  const study = new Study(quiet as unknown as ConstructorParameters<typeof Study>[0], end.signal);
  study.source.value = graph("model", [box({ id: "x" }), box({ id: "y" })]);
  study.engine.value = engine;
  const asked: Command[] = [];
  const kept: Step[][] = [];
  const paneSet = {
    stages,
    sides: signal(["node"]),
    morphing: signal(false),
    viewOf: () => [1, 2, 30, 40],
  } as unknown as PaneSet;
  const chips = signal(["fp32", "int8"].map((id) => ({ id, label: id })));
  const presenter = {
    study,
    paneSet,
    chips,
    end: end.signal,
    saved,
    send: (command: Command) => void asked.push(command),
  };
  const presenting = new Presenting(
    presenter,
    signal<Step[] | undefined>(steps),
    (made) => void kept.push(made),
  );
  return { study, presenting, asked, kept };
}

const step = (view: object, words = ""): Step => ({ words, view: view as Step["view"], places: {} });

describe("what a step keeps", () => {
  it("is what is not as at first, without what belongs to the machine or follows from the nodes", () => {
    const view: ViewState = {
      ...START,
      selection: ["x"],
      layers: ["A"],
      variant: "int8",
      baseline: "fp32",
      tab: "memory",
      settings: { "memory.batch": "4", "page.split": "50.00", "run.budget_s": "60" },
    };
    expect({ selection: ["x"], variant: "int8", tab: "memory", settings: { "memory.batch": "4" } }).toEqual(
      recorded(view),
    );
  });

  it("comes back whole, with the page's own choices as they are now", () => {
    const now = { ...START, tab: "table" as const, selection: ["y"], settings: { "page.split": "30.00" } };
    const then = replayed(
      step({ tab: "memory", settings: { "memory.batch": "4", "page.split": "70.00" } }),
      now,
    );
    expect([[], "memory", { "memory.batch": "4", "page.split": "30.00" }]).toEqual([
      then.selection,
      then.tab,
      then.settings,
    ]);
  });
});

describe("a presentation", () => {
  it("goes through its steps by keys and a presenter's remote, and stays at its ends", () => {
    const { presenting } = presentation([step({}), step({}), step({})]);
    const after = (key: string): number => {
      presenting.key(key);
      return presenting.at.value;
    };
    expect([0, 1, 2, 2, 1, 0, 0, 2, 0]).toEqual(
      [
        "ArrowRight",
        "PageDown",
        "ArrowRight",
        "ArrowRight",
        "PageUp",
        "ArrowLeft",
        "ArrowLeft",
        "End",
        "Home",
      ].map(after),
    );
    expect(false).toBe(presenting.key("ArrowUp"));
  });

  it("asks the kernel for the variants of a step, and only for others than those on screen", () => {
    const { presenting, asked } = presentation([
      step({ variant: "fp32" }),
      step({ variant: "int8", compared: "fp32" }),
    ]);
    presenting.play(0);
    expect([]).toEqual(asked);
    presenting.play(1);
    expect([
      { type: "show", variant: "int8" },
      { type: "compare", variant: "fp32" },
    ]).toEqual(asked);
  });

  it("names what a report lacks, and shows a step as far as it goes", () => {
    // A slide that shows another engine than its sentence tells of would be believed.
    const view = { variant: "int4", layers: ["A"], anchor: "layer" as const, tab: "memory" };
    const steps = [step(view, "Four bits"), step({ selection: ["y", "gone"] }, "Two nodes"), step({}, "All")];
    const { presenting, study, asked } = presentation(steps, {}, true);
    presenting.play(0);
    expect("Four bits (int4 is not in this report)").toBe(presenting.words.value);
    expect(["memory", [], "fp32"]).toEqual([
      study.view.value.tab,
      study.view.value.layers,
      study.view.value.variant,
    ]);
    presenting.play(1);
    expect("Two nodes (gone is not in this report)").toBe(presenting.words.value);
    expect(["B"]).toEqual(study.view.value.layers);
    presenting.play(2);
    expect(["All", 0]).toEqual([presenting.words.value, asked.length]);
  });
});

describe("the list", () => {
  it("is written as Python reads it", () => {
    const given = [
      { words: 'a "b"', view: { stacked: true, follow: false, tab: null }, places: { node: [1, -2.5] } },
    ];
    expect(
      '[{"words": "a \\"b\\"", "view": {"stacked": True, "follow": False, "tab": None}, "places": {"node": [1, -2.5]}}]',
    ).toBe(python(given));
  });
});
