import { signal } from "@preact/signals";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Command, Step, ViewState } from "../src/core/contract";
import { START, Study } from "../src/core/state";
import { Presentation, viewChanges, viewOfStep } from "../src/explorer/presentation";
import type { PaneSet } from "../src/graph/paneset";
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
function open(steps: Step[] = [], view: Partial<ViewState> = {}, saved = false, stages: object = {}) {
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
  const presentation = new Presentation(
    presenter,
    signal<Step[] | undefined>(steps),
    (made: Step[]) => void kept.push(made),
  );
  return { study, presentation, asked, kept };
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
      viewChanges(view),
    );
  });

  it("comes back whole, with the page's own choices as they are now", () => {
    const now = { ...START, tab: "table" as const, selection: ["y"], settings: { "page.split": "30.00" } };
    const then = viewOfStep(
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
    const { presentation } = open([step({}), step({}), step({})]);
    const after = (key: string): number => {
      presentation.key(key);
      return presentation.at.value;
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
    expect(false).toBe(presentation.key("ArrowUp"));
  });

  it("asks the kernel for the variants of a step, and only for others than those on screen", () => {
    const { presentation, asked } = open([
      step({ variant: "fp32" }),
      step({ variant: "int8", compared: "fp32" }),
    ]);
    presentation.play(0);
    expect([]).toEqual(asked);
    presentation.play(1);
    expect([
      { type: "show", variant: "int8" },
      { type: "compare", variant: "fp32" },
    ]).toEqual(asked);
  });

  it("names what a report lacks, and shows a step as far as it goes", () => {
    // A slide that shows another engine than its sentence tells of would be believed.
    const view = { variant: "int4", layers: ["A"], anchor: "layer" as const, tab: "memory" };
    const steps = [step(view, "Four bits"), step({ selection: ["y", "gone"] }, "Two nodes"), step({}, "All")];
    const { presentation, study, asked } = open(steps, {}, true);
    presentation.play(0);
    expect("Four bits (int4 is not in this report)").toBe(presentation.caption.value);
    expect(["memory", [], "fp32"]).toEqual([
      study.view.value.tab,
      study.view.value.layers,
      study.view.value.variant,
    ]);
    presentation.play(1);
    expect("Two nodes (gone is not in this report)").toBe(presentation.caption.value);
    expect(["B"]).toEqual(study.view.value.layers);
    presentation.play(2);
    expect(["All", 0]).toEqual([presentation.caption.value, asked.length]);
  });
});
