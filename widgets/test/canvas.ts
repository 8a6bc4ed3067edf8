import { vi } from "vitest";
import type { Box, Edge } from "../src/core/contract";
import { Mapping } from "../src/core/mapping";
import { FAMILY } from "../src/graph/colour";
import { figures } from "../src/graph/draw/measure";
import { layoutInput, makeScene, type Scene } from "../src/graph/draw/scene";
import { SvgPen } from "../src/graph/draw/svg";
import { Type } from "../src/graph/draw/text";
import type { Theme } from "../src/graph/draw/theme";
import { layout } from "../src/graph/layout/layout";
import type { Look } from "../src/graph/overlay";
import type { VisibleGraph } from "../src/graph/visible_graph";
import { graph } from "./payloads";

/** Every letter is as wide as in a typewriter. */
const LETTER = 6;

/** A context that writes down what is drawn, transforms and pixels included. */
export class Recorder extends SvgPen {
  canvas = { width: 800, height: 600 };

  setTransform(...at: number[]): void {
    this.text += `<g transform="${at.join(" ")}">`;
  }

  putImageData({ data }: { data: Uint8ClampedArray }): void {
    let sum = 0;
    for (let k = 0; k < data.length; k++) sum = (sum * 31 + data[k]!) % 1_000_003;
    this.text += `<image sum="${sum}">`;
  }

  createPattern(): null {
    return null;
  }

  measureText(words: string): { width: number } {
    return { width: LETTER * [...words].length };
  }
}

export class Pixels {
  readonly data: Uint8ClampedArray;
  constructor(
    readonly width: number,
    readonly height: number,
  ) {
    this.data = new Uint8ClampedArray(4 * width * height);
  }
}

/** A page without a browser: canvases that measure and record. */
export function stubCanvas(): void {
  vi.stubGlobal("cancelAnimationFrame", () => {});
  vi.stubGlobal("document", {
    createElement: () => ({ getContext: () => new Recorder() }),
  });
  vi.stubGlobal("ImageData", Pixels);
}

export const theme: Theme = {
  dark: false,
  font: "Sans",
  ground: "rgb(255, 255, 255)",
  card: "rgb(255, 255, 255)",
  ink: "rgb(28, 34, 43)",
  muted: "rgb(90, 101, 117)",
  line: "rgb(195, 202, 212)",
  edge: "rgb(139, 149, 163)",
  tag: "rgb(237, 240, 244)",
  select: "rgb(217, 127, 6)",
  selectTint: "rgba(240, 160, 20, 0.13)",
  hover: "rgb(26, 111, 224)",
  hoverTint: "rgba(26, 111, 224, 0.1)",
  hatch: "rgb(221, 226, 233)",
  family: FAMILY,
  familyInk: FAMILY,
};

interface Part {
  boxes: Box[];
  edges?: [number, number][];
  /** What stands on all wires, or on each by its number; each has a short text of its own otherwise. */
  label?: string | string[];
  /** The tensors on the wires; each has one of its own otherwise. */
  value?: string[];
  parent?: number[];
  frames?: number[];
  foldable?: number[];
  /** Boxes that are not drawn, with the position that shows them. */
  hidden?: [string, number][];
}

export function drawnOf({
  boxes,
  edges = [],
  label,
  value,
  parent,
  frames = [],
  foldable = frames,
  hidden = [],
}: Part): VisibleGraph {
  const wires = edges.map(
    ([source, target], e): Edge => ({
      source,
      target,
      value: value?.[e] ?? `t${e}`,
      label: (Array.isArray(label) ? label[e] : label) ?? `${e}×8`,
    }),
  );
  return {
    graph: { ...graph("g", boxes), edges: wires },
    parent: Int32Array.from(parent ?? boxes.map(() => -1)),
    frames: new Set(frames),
    foldable: new Set(foldable),
    place: new Map([...boxes.map(({ id }, i): [string, number] => [id, i]), ...hidden]),
    members: (id) => [id],
    copies: () => 1,
  };
}

export function sceneOf(part: Part, across = false): { scene: Scene; type: Type; drawn: VisibleGraph } {
  const type = new Type("Sans");
  const drawn = drawnOf(part);
  const shapes = figures(drawn, new Mapping(null), type);
  const scene = makeScene(drawn, shapes, layout(layoutInput(drawn, shapes, across, type)), type, across);
  return { scene, type, drawn };
}

export function lookFor(scene: Scene, part: Partial<Look> = {}): Look {
  const none = scene.figures.map(() => null);
  return { colour: none, text: none, badge: none, italic: false, families: true, legend: null, ...part };
}
