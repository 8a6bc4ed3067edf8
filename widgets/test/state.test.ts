import type { AnyModel } from "@anywidget/types";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { GraphTraits } from "../src/core/channel";
import type { EngineView, Later, ViewState } from "../src/core/contract";
import { Study, sidesInView } from "../src/core/state";
import { ariaText, boxName } from "../src/graph/aria_text";
import { box, engineView, graph, overlay, packed, reading, step, story } from "./payloads";

const bytes = async (value: unknown): Promise<Uint8Array> =>
  value === null ? new Uint8Array() : packed(value);

/** A model in memory that behaves as the widget manager's does. */
class MemoryModel {
  readonly saved: Partial<GraphTraits>[] = [];
  readonly #state: GraphTraits;
  readonly #listeners = new Map<string, Set<() => void>>();
  #dirty: Partial<GraphTraits> = {};

  constructor(state: GraphTraits) {
    this.#state = state;
  }

  get<K extends keyof GraphTraits>(key: K): GraphTraits[K] {
    return this.#state[key];
  }

  set<K extends keyof GraphTraits>(key: K, value: GraphTraits[K]): void {
    this.#state[key] = value;
    this.#dirty[key] = value;
    for (const listener of this.#listeners.get(`change:${key}`) ?? []) listener();
  }

  save_changes(): void {
    this.saved.push(this.#dirty);
    this.#dirty = {};
  }

  on(name: string, listener: () => void): void {
    const listeners = this.#listeners.get(name) ?? new Set();
    this.#listeners.set(name, listeners.add(listener));
  }

  off(name: string, listener: () => void): void {
    this.#listeners.get(name)?.delete(listener);
  }
}

const model = graph("model", [
  box({ id: "conv", title: "stem/conv" }),
  box({ id: "relu", op: "Relu", title: "stem/relu" }),
  box({ id: "reshape", op: "Reshape", title: "head/reshape" }),
]);
const engine: EngineView = engineView({
  graph: graph("engine", [box({ id: "A", kind: "layer" }), box({ id: "B", kind: "layer" })]),
  pairs: [
    { node: "conv", layer: "A", evidence: "declared", role: "work" },
    { node: "relu", layer: "A", evidence: "inferred", role: "work" },
  ],
  unmapped: [{ node: "reshape", reason: "view", text: "" }],
  overlays: [overlay({ nodes: { conv: reading(0.21, 2) } })],
});
const split = engineView({
  variant: "int8@sm86",
  graph: engine.graph,
  pairs: [{ node: "conv", layer: "B", evidence: "declared", role: "work" }],
});

let end = new AbortController();
afterEach(() => {
  end.abort();
  end = new AbortController();
});

async function start(view: Partial<ViewState> = {}, shown: EngineView | null = engine) {
  const fake = new MemoryModel({
    source: await bytes(model),
    engine: await bytes(shown),
    other: new Uint8Array(),
    view: view as ViewState,
    height: 400,
  });
  const study = new Study(fake as unknown as AnyModel<GraphTraits>, end.signal);
  await vi.waitUntil(() => study.pending.value === 0);
  return { fake, study };
}

describe("a model whose engine is still on its way", () => {
  it("is drawn at once and stays as it is drawn; ready is only when the engine is there too", async () => {
    // The kernel hands over the nodes first, because an engine's view takes it longer than their layout takes here.
    const { fake, study } = await start({ variant: "fp32@sm86" }, null);
    const early = study.visible("node");
    expect(3).toBe(early?.graph.boxes.length);
    expect([true, false]).toEqual([study.preparing.value, study.ready.value]);
    fake.set("engine", await bytes(engine));
    await vi.waitUntil(() => study.pending.value === 0);
    expect([false, true]).toEqual([study.preparing.value, study.ready.value]);
    expect(2).toBe(study.visible("layer")?.graph.boxes.length);
    expect(early).toBe(study.visible("node"));
  });

  it("is nothing to wait for where no engine was named", async () => {
    // Before the first build there is none.
    const { study } = await start({}, null);
    expect([false, true]).toEqual([study.preparing.value, study.ready.value]);
  });
});

describe("a large engine, whose numbers follow its picture", () => {
  const port = { name: "x", dtype: "fp16", shape: "1×8", format: "", constant: false };
  const told = (key: string) => ({ inputs: [port], outputs: [], details: [{ key, value: "7" }] });
  const later: Later = {
    of: "fp32@sm86",
    boxes: [told("tactic"), told("stream")],
    overlays: [overlay({ layers: { A: reading(0.21, 2) } })],
  };
  const bare = engineView({
    ...engine,
    overlays: [],
    graph: { ...engine.graph, later: true },
  });

  it("is pictured at once, ready when they are there, and not drawn anew", async () => {
    const { fake, study } = await start({ variant: "fp32@sm86", selection: ["conv"] }, bare);
    const [drawn, links, revealed] = [study.visible("layer"), study.mapping.value, study.revealRequest.value];
    expect([true, false, true]).toEqual([
      study.graphsDrawn.value,
      study.ready.value,
      study.isLoading("layer"),
    ]);
    expect([]).toEqual(study.box("layer", "A")?.details);
    fake.set("engine_later", await bytes(later));
    await vi.waitUntil(() => study.ready.value);
    expect(false).toBe(study.isLoading("layer"));
    expect(later.boxes[1]).toEqual(told(study.box("layer", "B")!.details[0]!.key));
    expect([port]).toEqual(study.box("layer", "B")?.inputs);
    expect(later.overlays).toEqual(study.engine.value?.overlays);
    // A layout of thousands of boxes, and a camera that somebody has moved since, stay.
    expect([true, true, true]).toEqual([
      study.visible("layer") === drawn,
      study.mapping.value === links,
      study.revealRequest.value === revealed,
    ]);
  });

  it("takes no numbers of another variant, and its own also when they come first", async () => {
    const { fake, study } = await start({ variant: "fp32@sm86" }, null);
    fake.set("engine_later", await bytes(later));
    await new Promise((resolve) => setTimeout(resolve, 20));
    fake.set("engine", await bytes(engineView({ ...bare, variant: "int8@sm86" })));
    await vi.waitUntil(() => study.graphsDrawn.value);
    expect([true, []]).toEqual([study.isLoading("layer"), study.engine.value?.overlays]);
    fake.set("engine", await bytes(bare));
    await vi.waitUntil(() => study.ready.value);
    expect(1).toBe(study.engine.value?.overlays.length);
  });
});

describe("selection", () => {
  it("of a node selects its layers and tells the kernel both", async () => {
    // The kernel's own code reads selection and layers without another round trip.
    const { fake, study } = await start();
    study.select("node", "relu");
    const { selection, layers, anchor } = fake.saved.at(-1)!.view!;
    expect([["relu"], ["A"], "node"]).toEqual([selection, layers, anchor]);
  });

  it("of a layer selects all its nodes", async () => {
    // This is the question "what is inside this kernel".
    const { study } = await start();
    study.select("layer", "A");
    expect([["conv", "relu"], "layer"]).toEqual([study.view.value.selection, study.view.value.anchor]);
  });

  it("grows with Shift and shrinks when clicked again", async () => {
    // As in every file manager.
    const { study } = await start();
    study.select("node", "conv");
    study.select("node", "reshape", { add: true });
    expect(["conv", "reshape"]).toEqual(study.view.value.selection);
    study.select("node", "conv", { add: true });
    expect([["reshape"], []]).toEqual([study.view.value.selection, study.view.value.layers]);
  });

  it("that Python makes is completed here and brings both sides into view", async () => {
    // explorer.select("conv") in a cell must look like a click.
    const { fake, study } = await start();
    fake.set("view", { ...study.view.value, selection: ["conv"], layers: [] });
    expect([["conv"], ["A"]]).toEqual([study.view.value.selection, study.view.value.layers]);
    expect(["node", "layer", "other"]).toEqual(study.revealRequest.value.sides);
    expect(["A"]).toEqual(fake.saved.at(-1)!.view!.layers);
  });

  it("keeps its nodes when another variant is shown", async () => {
    // Comparing variants means asking where the same node went.
    const { fake, study } = await start();
    study.select("node", "conv");
    fake.set("engine", await bytes(split));
    await vi.waitUntil(() => study.engine.value?.variant === "int8@sm86");
    expect([["conv"], ["B"]]).toEqual([study.view.value.selection, study.view.value.layers]);
  });

  it("of a node does not grow when the kernel names its layers in another order", async () => {
    // After a build the kernel tells them anew; what was picked is a node, not all nodes of its layers.
    const { fake, study } = await start();
    study.select("node", "conv");
    fake.set("view", { ...study.view.value, layers: ["B", "A"] });
    expect([["conv"], "node"]).toEqual([study.view.value.selection, study.view.value.anchor]);
  });

  it("does not answer its own echo", async () => {
    // Two sides that answer each other never come to rest.
    const { fake, study } = await start();
    study.select("node", "conv");
    const count = fake.saved.length;
    fake.set("view", { ...fake.get("view") });
    expect(count).toBe(fake.saved.length);
  });

  it("follows the kernel back to what was once published here", async () => {
    // A tab picked by hand, another one shown by a cell, and the first by a cell again.
    const { fake, study } = await start();
    study.change({ tab: "table" });
    const picked = { ...fake.get("view") };
    fake.set("view", { ...picked, tab: "memory" });
    fake.set("view", picked);
    expect("table").toBe(study.view.value.tab);
  });

  it("leaves the rest of the view alone", async () => {
    // Colour and tab are the user's too.
    const { study } = await start({ colour: "time", tab: "table", baseline: "fp32@sm86" });
    study.select("node", "conv");
    const { colour, tab, baseline } = study.view.value;
    expect(["time", "table", "fp32@sm86"]).toEqual([colour, tab, baseline]);
  });
});

describe("what a point of a panel stands for", () => {
  const link = (nodes: string[], layers: string[] = []) => ({ nodes, layers, others: [] });

  it("is selected on all sides at once, as the panel says, and comes into view", async () => {
    // A tensor is written by one layer and read by another: no mapping from nodes would tell that.
    const { fake, study } = await start();
    study.follow(link(["conv"], ["A", "B"]));
    const { selection, layers, anchor } = fake.saved.at(-1)!.view!;
    expect([["conv"], ["A", "B"], "node", 1]).toEqual([selection, layers, anchor, fake.saved.length]);
    expect(["node", "layer", "other"]).toEqual(study.revealRequest.value.sides);
  });

  it("follows from the pairs where the panel names one side alone", async () => {
    const { study } = await start();
    study.follow(link([], ["A"]));
    expect(["conv", "relu"]).toEqual(study.view.value.selection);
    study.follow(link(["relu"]));
    expect([["relu"], ["A"]]).toEqual([study.view.value.selection, study.view.value.layers]);
  });

  it("grows with Shift, and goes when all of it was selected", async () => {
    const { study } = await start();
    study.follow(link(["reshape"], ["B"]));
    study.follow(link(["conv"], ["A"]), true);
    expect([
      ["reshape", "conv"],
      ["B", "A"],
    ]).toEqual([study.view.value.selection, study.view.value.layers]);
    study.follow(link(["reshape"], ["B"]), true);
    expect([["conv"], ["A"]]).toEqual([study.view.value.selection, study.view.value.layers]);
  });

  it("is left alone where nothing of it is on screen", async () => {
    // A panel may be of an engine that is being replaced.
    const { fake, study } = await start();
    study.select("node", "conv");
    study.follow(link(["gone"], ["Z"]));
    expect([["conv"], 1]).toEqual([study.view.value.selection, fake.saved.length]);
  });
});

describe("a step of the build", () => {
  const told = story({ steps: [step(["conv", "relu", "gone"]), step([], { joins: false })] });

  it("selects what it is about, and the layers of that, in one change", async () => {
    // Two messages would show the new step beside the old selection for a moment.
    const { fake, study } = await start();
    study.story.value = told;
    const count = fake.saved.length;
    study.replay(1);
    expect(count + 1).toBe(fake.saved.length);
    expect([1, ["conv", "relu"], ["A"]]).toEqual([
      fake.saved.at(-1)!.view!.step,
      study.view.value.selection,
      study.view.value.layers,
    ]);
  });

  it("that is about no node of the model leaves nothing selected", async () => {
    // What the step before was about would be mistaken for this one's.
    const { study } = await start();
    study.story.value = told;
    study.replay(1);
    study.replay(2);
    expect([2, []]).toEqual([study.view.value.step, study.view.value.selection]);
  });

  it("draws frames around what is fused so far, where the graph is grouped by the replay", async () => {
    const { study } = await start({ grouping_nodes: "replay" });
    study.story.value = told;
    const frames = (): number => study.visible("node")!.frames.size;
    expect(0).toBe(frames());
    study.replay(1);
    expect(1).toBe(frames());
    const drawn = study.visible("node");
    study.replay(2);
    // A decision that joins nothing lays nothing out anew.
    expect(drawn).toBe(study.visible("node"));
    study.change({ grouping_nodes: "auto" });
    expect(0).toBe(frames());
  });
});

describe("panes", () => {
  it("show no nodes where files of an engine came without their model", () => {
    // An empty pane would take half of the room.
    expect([["layer"], ["layer", "other"], ["layer"]]).toEqual([
      sidesInView(["node", "layer"], true),
      sidesInView(["node", "layer", "other"], true),
      sidesInView(["node"], true),
    ]);
    expect([
      ["layer", "node"],
      ["node", "layer"],
    ]).toEqual([sidesInView(["layer", "node"], false), sidesInView([], false)]);
  });

  it("know an engine without a model from a model that is still loading", async () => {
    const { fake, study } = await start();
    expect(false).toBe(study.modelless.value);
    fake.set("source", await bytes(graph("", [])));
    await vi.waitUntil(() => study.modelless.value);
    fake.set("source", await bytes(null));
    await vi.waitUntil(() => study.source.value === null);
    expect(false).toBe(study.modelless.value);
  });
});

describe("hover", () => {
  it("lights up the other side from the pairs alone", async () => {
    // No round trip to the kernel: it may be busy building.
    const { fake, study } = await start();
    study.point("layer", "A");
    expect(["conv", "relu"]).toEqual(study.hovered("node"));
    study.point("node", "relu");
    expect(["A"]).toEqual(study.hovered("layer"));
    expect(0).toBe(fake.saved.length);
  });
});

describe("spoken", () => {
  it("says the node, its layer, its company, and numbers with their origin", async () => {
    // It is all that a screen reader's user gets of the picture.
    const { study } = await start();
    study.select("node", "conv");
    expect("Conv stem/conv, in layer 1 of 2 with Relu, time 210 microseconds measured").toBe(ariaText(study));
  });

  it("says a layer by its operators and its place, not by the name of its kernel", async () => {
    // Who listens cannot skip over __myl_MulAddReluMulMinMaxRounCast_myl0_2.
    const chips = ["Conv", "Relu"].map((op) => ({
      op,
      family: "other" as const,
      node: op,
      role: "work" as const,
      title: op,
    }));
    expect("layer: Conv, Relu").toBe(boxName(box({ id: "__myl_2", kind: "layer", chips })));
    const { study } = await start();
    study.select("layer", "A");
    expect(ariaText(study)).toContain(", layer 1 of 2");
  });

  it("says that an attribution is inferred, and why a node has no layer", async () => {
    // The dotted line and the dashed box, in words.
    const { study } = await start();
    study.select("node", "relu");
    expect(ariaText(study)).toContain("inferred");
    study.select("node", "reshape");
    expect("Reshape head/reshape, no layer: view, writes in place").toBe(ariaText(study));
  });
});

describe("payloads", () => {
  it("may lack an engine", async () => {
    // The model is on screen before the first build.
    const { study } = await start({}, null);
    study.select("node", "conv");
    expect([["conv"], []]).toEqual([study.view.value.selection, study.view.value.layers]);
  });

  it("that cannot be read become a problem to show", async () => {
    // A blank widget explains nothing.
    const { fake, study } = await start();
    fake.set("engine", new Uint8Array([31, 139, 8, 0, 1]));
    await vi.waitUntil(() => study.problem.value !== null);
    expect(study.problem.value).toBeInstanceOf(Error);
  });
});
