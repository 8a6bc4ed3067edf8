import { afterAll, beforeAll, expect, it, vi } from "vitest";
import type { Role } from "../src/core/contract";
import { svgOf } from "../src/graph/draw/svg";
import { lookFor, sceneOf, stubCanvas, theme } from "./canvas";
import { box } from "./payloads";

beforeAll(stubCanvas);
afterAll(() => void vi.unstubAllGlobals());

const chip = (op: string, role: Role = "work") =>
  ({ op, family: "convolution", node: op, role, title: op }) as const;
const boxes = [
  box({ id: "image", kind: "input", lines: ["1×3×8×8 fp32"] }),
  box({ id: "conv", lines: ["64×3×7×7", "stride 2"], precision: "int8", reads: "fp32", writes: "int8" }),
  box({ id: "a name that is much longer than any box", op: "GlobalAveragePool", family: "pool" }),
  box({ id: "relu", op: "Relu", family: "activation" }),
  box({ id: "frame", kind: "group", title: "block", lines: ["1 node"] }),
  box({ id: "inner", op: "Add" }),
  box({
    id: "folded",
    kind: "group",
    title: "stage",
    lines: ["9 nodes"],
    chips: [chip("Conv"), chip("Relu")],
  }),
  box({
    id: "card",
    kind: "layer",
    title: "Conv · ReLU",
    lines: ["12 µs"],
    chips: [chip("Conv"), chip("Q", "Q")],
    stream: 1,
    precision: "fp16",
  }),
  box({ id: "many", kind: "layer", title: "kernel", chips: [..."abcdefghij"].map((op) => chip(op)) }),
  box({ id: "slim", kind: "layer", title: "layout move", slim: true, lines: ["fp32 → int8"] }),
  box({ id: "classes", kind: "output" }),
];
const edges = boxes.slice(1).map((_, i): [number, number] => [i, i + 1]);

it.each([
  ["plain", {}],
  ["families", { families: false, colour: boxes.map((_, i) => (i % 2 ? "#123456" : null)) }],
  [
    "values",
    {
      text: boxes.map((_, i) => (i % 3 ? `${i} ms` : null)),
      badge: boxes.map((_, i) => `S${i}`),
      italic: true,
    },
  ],
])("boxes are painted as in the file: %s", async (name, look) => {
  for (const across of [false, true]) {
    const { scene, type } = sceneOf(
      { boxes, edges, parent: boxes.map((_, i) => (i === 5 ? 4 : -1)), frames: [4], foldable: [4, 6] },
      across,
    );
    const text = svgOf(scene, lookFor(scene, look), theme, type).replaceAll("><", ">\n<");
    await expect(text).toMatchFileSnapshot(`golden/boxes/${name}${across ? "-across" : ""}.txt`);
  }
});
