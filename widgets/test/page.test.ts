import { describe, expect, it } from "vitest";
import type { Setting } from "../src/core/contract";
import { carried, chosenIn, LinkIndex, type PageInputs, pageOf, usable } from "../src/panels/page";
import { panel } from "./payloads";

const setting = (key: string, value: string): Setting => ({
  key,
  value,
  label: key,
  kind: "text",
  options: [],
  told: "",
  hint: "",
});

describe("the tabs", () => {
  const all: PageInputs = {
    offered: [
      "roofline",
      "samples",
      "batches",
      "difference",
      "variants",
      "memory",
      "schedule",
      "formulations",
    ],
    narrow: false,
    live: true,
    calibrated: false,
  };
  const tabs = (stock: Partial<PageInputs>) =>
    pageOf({ tab: "timing", settings: {} }, { ...all, ...stock }).tabs;

  it("are those that have something to show", () => {
    expect([
      "timing",
      "compare",
      "memory",
      "streams",
      "tuning",
      "engine",
      "build",
      "calibration",
      "findings",
      "table",
    ]).toEqual(tabs({}));
    expect(true).toBe(tabs({ offered: [...all.offered, "recurrence"] }).includes("recurrence"));
    expect(["timing", "engine", "build", "calibration", "findings", "table"]).toEqual(tabs({ offered: [] }));
    expect(true).toBe(tabs({ narrow: true }).includes("accuracy"));
  });

  it("of a report are what it holds, calibration only where there was one", () => {
    const saved = { live: false, narrow: true, offered: ["memory" as const, "roofline" as const] };
    expect(["timing", "memory", "accuracy", "engine", "build", "findings", "table"].sort()).toEqual(
      tabs(saved).sort(),
    );
    const page = pageOf({ tab: "streams", settings: {} }, { ...all, ...saved });
    expect(["timing", "layers"]).toEqual([page.tab, page.segment]);
    expect(["errors", "accuracy"]).toEqual(
      pageOf({ tab: "accuracy", settings: {} }, { ...all, ...saved, offered: ["accuracy"] }).segments,
    );
    // A notebook has a chart of the errors, and no second panel of them.
    expect(false).toBe(tabs({ offered: [...all.offered, "accuracy"] }).includes("accuracy"));
    expect(["errors"]).toEqual(
      pageOf({ tab: "accuracy", settings: {} }, { ...all, narrow: true, offered: ["accuracy"] }).segments,
    );
    // With other panels it is one of them, wherever there is room.
    const several = pageOf({ tab: "accuracy", settings: {} }, { ...all, offered: ["accuracy", "diagnosis"] });
    expect(["accuracy", ["errors", "diagnosis"]]).toEqual([several.tab, several.segments]);
    expect(["layers", "roofline"]).toEqual(
      pageOf({ tab: "timing", settings: {} }, { ...all, ...saved }).segments,
    );
  });

  it("remember which of their panels was in front, as long as there is one", () => {
    const settings = { timing: "samples" };
    const shown = (offered: PageInputs["offered"]) =>
      pageOf({ tab: "timing", settings }, { ...all, offered }).segment;
    expect(["samples", "layers"]).toEqual([shown(all.offered), shown(["roofline"])]);
    expect("difference").toBe(pageOf({ tab: "compare", settings }, all).segment);
    expect(null).toBe(pageOf({ tab: "engine", settings }, all).segment);
  });
});

describe("what was chosen", () => {
  const settings = { memory: "x", "memory.batch": "8", "memory.shape.n": "2", "memoryless.batch": "9" };

  it("is the panel's own", () => {
    expect({ batch: "8", "shape.n": "2" }).toEqual(chosenIn("memory", settings));
  });

  it("can be put right where it led to a problem", () => {
    const before = panel({
      title: "Memory",
      settings: [setting("batch", "8")],
      rows: [{ key: "a", cells: [], note: "" }],
    });
    const problem = panel({ problem: "No such batch" });
    const shown = carried(before, problem);
    expect(["Memory", "No such batch", 1, 0]).toEqual([
      shown.title,
      shown.problem,
      shown.settings.length,
      shown.rows.length,
    ]);
    // Others stay as they are: the first answer, one that is no problem, one that offers a choice of its own.
    const good = panel({ title: "" });
    const offering = panel({ problem: "No such batch", settings: [setting("shape", "")] });
    expect([good, problem, offering]).toEqual([
      carried(before, good),
      carried(undefined, problem),
      carried(before, offering),
    ]);
  });
});

describe("points and rows", () => {
  const links = {
    conv: { nodes: ["conv", "relu"], layers: ["A"], others: ["a1", "a2"] },
    split: { nodes: ["conv"], layers: ["B"], others: [] },
    folded: { nodes: ["const"], layers: [], others: [] },
  };
  const marked = (part: Partial<(typeof links)["conv"]>) =>
    [...new LinkIndex(links).keys({ nodes: [], layers: [], others: [], ...part })].sort();

  it("are marked where their layers are selected, or their nodes that have none", () => {
    expect(["conv"]).toEqual(marked({ layers: ["A"], nodes: ["conv", "relu"] }));
    expect(["folded"]).toEqual(marked({ nodes: ["const"] }));
    expect(["conv"]).toEqual(marked({ others: ["a2"] }));
    expect([]).toEqual(marked({}));
  });

  it("tell layers of the other variant only where that is the one on screen", () => {
    // Layers of two engines may bear one id.
    const against = (from: string) =>
      usable(links.conv, panel({ settings: [setting("from", from)] }), "int8").others;
    expect([["a1", "a2"], []]).toEqual([against("int8"), against("fp16")]);
    expect(["a1", "a2"]).toEqual(usable(links.conv, panel({}), "int8").others);
  });
});
