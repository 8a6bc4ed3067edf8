import type { AnyModel } from "@anywidget/types";
import { describe, expect, it, vi } from "vitest";
import type { GraphTraits } from "../src/core/channel";
import type { BuildStory, Saved } from "../src/core/contract";
import { decode } from "../src/core/payload";
import { START, Study } from "../src/core/state";
import { StaticModel } from "../src/report/static_model";
import { box, engineView, graph, packed, panel, story } from "./payloads";

const base64 = async (value: unknown): Promise<string> => btoa(String.fromCharCode(...(await packed(value))));

const PLOTLY = new Uint8Array([1, 2, 3]);

/** A model of one node, which is in layer A of one variant and in layer B of the other. */
async function saved(): Promise<Saved> {
  const variant = async (id: string, layer: string) => ({
    id,
    engine: await base64(
      engineView({
        variant: id,
        graph: graph("engine", [box({ id: layer, kind: "layer" })]),
        pairs: [{ node: "conv", layer, evidence: "declared", role: "work" }],
      }),
    ),
    answers: { build: layer === "A" ? await base64(story({ title: id })) : "" },
    status: [{ origin: "reported" as const, text: `compiled: ${id}`, warning: false }],
    panels: [],
    charts: { timing: { data: [{ ids: [layer] }], layout: {} } },
  });
  return {
    model: "tiny",
    source: await base64(graph("model", [box({ id: "conv" })])),
    answers: {},
    variants: [await variant("fp32", "A"), await variant("__proto__", "B")],
    chips: [],
    view: {
      ...START,
      variant: "fp32",
      baseline: "fp32",
      colour: "time",
      colour_nodes: "operator",
      tab: "table",
    },
    steps: [],
    terms: [],
  };
}

describe("the model of a report", () => {
  it("lets the views switch variants as the kernel does", async () => {
    // The selected node stays, its layer is another: comparing is what a report is for.
    const model = new StaticModel(await saved(), PLOTLY);
    const end = new AbortController();
    const study = new Study(model as unknown as AnyModel<GraphTraits>, end.signal);
    await vi.waitUntil(() => study.pending.value === 0);
    study.select("node", "conv");
    const told = await decode<BuildStory>(model.get("build_answer"));
    expect(["fp32", ["A"]]).toEqual([study.engine.value?.variant, study.view.value.layers]);
    model.send({ type: "show", variant: "__proto__" });
    await vi.waitUntil(() => study.engine.value?.variant === "__proto__");
    expect([["conv"], ["B"]]).toEqual([study.view.value.selection, study.view.value.layers]);
    expect("__proto__").toBe(study.view.value.variant);
    expect([0, "fp32"]).toEqual([model.get("build_answer").byteLength, told?.title]);
    expect([{ origin: "reported", text: "compiled: __proto__", warning: false }]).toEqual(
      model.get("status"),
    );
    end.abort();
  });

  it("puts a second engine beside the first, and takes it away", async () => {
    // Two variants side by side need no kernel.
    const model = new StaticModel(await saved(), PLOTLY);
    const end = new AbortController();
    const study = new Study(model as unknown as AnyModel<GraphTraits>, end.signal);
    await vi.waitUntil(() => study.pending.value === 0);
    study.select("node", "conv");
    model.send({ type: "compare", variant: "__proto__" });
    await vi.waitUntil(() => study.other.value !== null);
    expect([["A"], ["B"], "__proto__"]).toEqual([
      study.view.value.layers,
      study.view.value.others,
      study.view.value.compared,
    ]);
    model.send({ type: "compare", variant: "" });
    await vi.waitUntil(() => study.other.value === null);
    expect("").toBe(study.view.value.compared);
    end.abort();
  });

  it("holds what calibration saw, whatever variant is shown", async () => {
    // The histograms of a report are those of the study; a study that observed nothing has none.
    const calibration = { samples: 512, values: [] };
    const model = new StaticModel(
      {
        ...(await saved()),
        answers: { calibration: await base64(calibration) },
      },
      PLOTLY,
    );
    model.send({ type: "show", variant: "__proto__" });
    expect(calibration).toEqual(await decode(model.get("calibration_answer")));
    expect(null).toBe(await decode(new StaticModel(await saved(), PLOTLY).get("calibration_answer")));
  });

  it("answers for the panels that it holds, and offers those that have something to tell", async () => {
    // Without figures and without work, a sweep that nobody measured is an empty page.
    const held = await saved();
    const facts = [{ key: "Peak", value: "8 kB", origin: "estimated" as const, note: "" }];
    held.variants[0]!.panels = [panel({ name: "memory", facts }), panel({ name: "batches" })];
    const model = new StaticModel(held, PLOTLY);
    expect(["memory"]).toEqual(model.get("saved")?.fp32);
    const told: unknown[] = [];
    model.on("msg:custom", (message) => told.push(message));
    const ask = (name: string, variant: string): void =>
      model.send({ type: "panel", id: `${name}.7`, panel: name, variant, settings: {} });
    ask("memory", "fp32");
    ask("memory", "constructor");
    ask("schedule", "fp32");
    expect(0).toBe(told.length);
    await Promise.resolve();
    expect([{ type: "answer", id: "memory.7", panel: held.variants[0]!.panels[0] }]).toEqual(told);
  });

  it("draws the figures of the variant shown with the library that the file brings along", async () => {
    const model = new StaticModel(await saved(), PLOTLY);
    expect(model.get("charts")).toMatchObject({ timing: { data: [{ ids: ["A"] }] } });
    model.send({ type: "show", variant: "__proto__" });
    expect(model.get("charts")).toMatchObject({ timing: { data: [{ ids: ["B"] }] } });
    const sent: [unknown, DataView[]][] = [];
    model.on("msg:custom", (message, buffers) => sent.push([message, buffers as DataView[]]));
    model.send({ type: "plotly" });
    await Promise.resolve();
    expect({ type: "plotly" }).toEqual(sent[0]![0]);
    expect(2).toBe(sent[0]![1][0]!.getUint8(1));
  });

  it("leaves everything as it is when a command needs a kernel or a variant is not there", async () => {
    // What the views still send must do no harm.
    const model = new StaticModel(await saved(), PLOTLY);
    const before = [model.get("engine"), model.get("view"), model.get("chips")];
    model.send({ type: "build", choice: model.get("choice") });
    model.send({ type: "remove", variant: "fp32" });
    model.send({ type: "show", variant: "constructor" });
    expect(before).toEqual([model.get("engine"), model.get("view"), model.get("chips")]);
  });

  it("tells each listener until it leaves", async () => {
    // A listener that takes itself off must not cost another its turn.
    const model = new StaticModel(await saved(), PLOTLY);
    const told: string[] = [];
    const once = (): void => {
      told.push("once");
      model.off("change:height", once);
    };
    model.on("change:height", once);
    model.on("change:height", () => told.push("always"));
    model.set("height", 500);
    model.set("height", 600);
    expect(["once", "always", "always"]).toEqual(told);
    expect(600).toBe(model.get("height"));
  });
});
