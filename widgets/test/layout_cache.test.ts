import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Reason } from "../src/core/contract";
import { Mapping } from "../src/core/mapping";
import { LayoutCache } from "../src/graph/draw/layout_cache";
import { Type } from "../src/graph/draw/text";
import { layout } from "../src/graph/layout/layout";
import type { LayoutInput } from "../src/graph/layout/types";
import { drawnOf, stubCanvas } from "./canvas";
import { box, engineView } from "./payloads";

beforeEach(stubCanvas);

const drawn = drawnOf({
  boxes: [
    box({ id: "in", kind: "input", op: "x" }),
    box({ id: "a", op: "AVeryLongOperatorOfADomain" }),
    box({ id: "b", op: "Reshape" }),
  ],
  edges: [
    [0, 1],
    [1, 2],
  ],
});
const linksFor = (reason: Reason): Mapping =>
  new Mapping(engineView({ unmapped: ["a", "b"].map((node) => ({ node, reason, text: "" })) }));

function pane() {
  const asked = vi.fn(async (input: LayoutInput) => layout(input));
  return { asked, placing: new LayoutCache({ layout: asked }), type: new Type("Sans") };
}

describe("placing", () => {
  it("lays nodes out once, while they are alone and when their engine arrives, before the layout or after", async () => {
    const { asked, placing, type } = pane();
    const alone = placing.of(drawn, new Mapping(null), type, false).output();
    const early = placing.of(drawn, linksFor("view"), type, false).output();
    await alone;
    const late = placing.of(drawn, linksFor("dead"), type, false).output();
    const first = await alone;
    for (const output of [early, late]) expect(first).toBe(await output);
    expect(asked).toHaveBeenCalledTimes(1);
  });

  it("keeps every size, and gives the signs of the engine that came last", () => {
    const { placing, type } = pane();
    const sizes = ({ figures }: ReturnType<LayoutCache["of"]>) => figures.map((f) => [f.width, f.height]);
    const alone = placing.of(drawn, new Mapping(null), type, false);
    const before = sizes(alone);
    expect(["", "", ""]).toEqual(alone.figures.map((f) => f.reason));
    const first = placing.of(drawn, linksFor("view"), type, false);
    const second = placing.of(drawn, linksFor("dead"), type, false);
    expect([before, before]).toEqual([sizes(first), sizes(second)]);
    expect(["", "✕", "✕"]).toEqual(second.figures.map((f) => f.reason));
    expect("✕ Reshape").toBe(second.figures[2]!.face.title);
    expect(before).toEqual(sizes(pane().placing.of(drawn, linksFor("dead"), type, false)));
  });

  it("lays out anew for another arrangement, another typeface, and from left to right", async () => {
    const { asked, placing, type } = pane();
    const links = new Mapping(null);
    await placing.of(drawn, links, type, false).output();
    await placing.of(drawn, links, type, true).output();
    await placing.of({ ...drawn }, links, type, true).output();
    await placing.of({ ...drawn }, links, new Type("Serif"), true).output();
    expect(asked).toHaveBeenCalledTimes(4);
  });
});
