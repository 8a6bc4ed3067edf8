import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { Camera } from "../src/graph/draw/camera";
import { Morph } from "../src/graph/draw/morph";
import { NO_MARKS } from "../src/graph/draw/paint";
import { Screen } from "../src/graph/draw/screen";
import { lookFor, Recorder, sceneOf, stubCanvas, theme } from "./canvas";
import { box } from "./payloads";

beforeAll(stubCanvas);
afterAll(() => void vi.unstubAllGlobals());

const chip = (node: string, op: string) => ({
  op,
  family: "convolution" as const,
  node,
  role: "work" as const,
  title: op,
});

function stage(scale: number) {
  const before = sceneOf({
    boxes: ["conv", "relu", "dead"].map((id) => box({ id, op: id })),
    edges: [
      [0, 1],
      [1, 2],
    ],
  });
  const after = sceneOf({
    boxes: [
      box({ id: "L", kind: "layer", chips: [chip("conv", "conv"), chip("relu", "relu")] }),
      box({ id: "move", kind: "layer", slim: true }),
    ],
    edges: [[0, 1]],
  });
  const looks = [lookFor(before.scene), lookFor(after.scene)] as const;
  const morph = new Morph(before.scene, after.scene, ...looks, theme, [
    [0, 0],
    [1, 0],
  ]);
  const from = new Camera(() => {});
  from.resize(800, 600);
  from.zoomAt(0, 0, scale);
  const to = { scale, x: 30, y: 40 };
  const pictureOf = (paint: (screen: Screen) => void): string => {
    const ctx = new Recorder();
    paint(new Screen({ getContext: () => ctx } as unknown as HTMLCanvasElement));
    return ctx.text;
  };
  const at = (t: number): string =>
    pictureOf((screen) => morph.paint(screen, t, 1, from, to, theme, before.type));
  return { before, after, looks, from, to, pictureOf, at };
}

describe.each([1, 0.3])("before into after at scale %s", (scale) => {
  it("begins as the one picture and ends as the other, pixel for pixel", () => {
    // A jump at either end of the slider would look like a change that the compiler did not make.
    const { before, after, looks, from, to, pictureOf, at } = stage(scale);
    const there = new Camera(() => {});
    there.resize(800, 600);
    Object.assign(there, to);
    const first = pictureOf((screen) =>
      screen.paint(1, before.scene, from, theme, before.type, looks[0], NO_MARKS),
    );
    const last = pictureOf((screen) =>
      screen.paint(1, after.scene, there, theme, after.type, looks[1], NO_MARKS),
    );
    expect(first).toBe(at(0));
    expect(last).toBe(at(1));
    expect(first).not.toBe(last);
  });

  it("is another picture at every step", () => {
    // The slider shows the fusion happen, not a cut.
    const { at } = stage(scale);
    const pictures = [0, 0.1, 0.3, 0.5, 0.7, 0.9, 1].map(at);
    expect(7).toBe(new Set(pictures).size);
  });
});

describe("a morph", () => {
  it("lets a node without a layer vanish before the layers are there", () => {
    // What the compiler removed must not seem to go into a layer.
    const { at } = stage(1);
    expect(at(0.3)).toContain(">dead<");
    expect(at(0.65)).not.toContain(">dead<");
    expect(at(0.65)).toContain(">conv<");
  });

  it("looks at the layers of what was in view", () => {
    // Otherwise the nodes would all glide out of the pane.
    const { before, after, looks, from } = stage(1);
    const morph = new Morph(before.scene, after.scene, ...looks, theme, [[0, 0]]);
    const { scale, x, y } = morph.target(from);
    expect(400).toBeCloseTo(after.scene.x[0]! * scale + x, 3);
    expect(300).toBeCloseTo(after.scene.y[0]! * scale + y, 3);
  });

  it("begins at the first of layers that are higher than the pane, and centres them across it", () => {
    const before = sceneOf({ boxes: [box({ id: "a" }), box({ id: "b" })] });
    const many = Array.from({ length: 30 }, (_, k) => k);
    const after = sceneOf({
      boxes: many.map((k) => box({ id: `L${k}`, kind: "layer", chips: [chip("a", "a")] })),
      edges: many.slice(1).map((k) => [k - 1, k]),
    });
    const looks = [lookFor(before.scene), lookFor(after.scene)] as const;
    const morph = new Morph(before.scene, after.scene, ...looks, theme, [
      [0, 0],
      [0, 29],
    ]);
    const from = new Camera(() => {});
    from.resize(800, 600);
    const { scale, x, y } = morph.target(from);
    const top = after.scene.y[0]! - after.scene.figures[0]!.height / 2;
    expect(36).toBeCloseTo(top * scale + y, 3);
    expect(400).toBeCloseTo(after.scene.x[0]! * scale + x, 3);
  });
});
