import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { Camera } from "../src/graph/draw/camera";
import { type Marks, NO_MARKS, roomBeside } from "../src/graph/draw/paint";
import { pngScale } from "../src/graph/draw/png";
import { channels, pixelOf, Raster } from "../src/graph/draw/raster";
import { boxAt, foldAt, rectOf, type Scene, wireAt } from "../src/graph/draw/scene";
import { Screen } from "../src/graph/draw/screen";
import { svgOf } from "../src/graph/draw/svg";
import { lookFor, Recorder, sceneOf, stubCanvas, theme } from "./canvas";
import { box } from "./payloads";

beforeAll(stubCanvas);
afterAll(() => void vi.unstubAllGlobals());

const FRAMED = {
  boxes: [
    box({ id: "in", kind: "input", title: "image" }),
    box({ id: "group", kind: "group", title: "layer 3", lines: ["2 nodes"] }),
    box({ id: "conv" }),
    box({ id: "relu", op: "Relu", family: "activation" }),
    box({
      id: "folded",
      kind: "group",
      title: "stage",
      lines: ["9 nodes"],
      chips: [{ op: "Conv", family: "convolution", node: "a", role: "work", title: "Conv" }],
    }),
  ],
  edges: [
    [0, 2],
    [2, 3],
    [3, 4],
  ] as [number, number][],
  parent: [-1, -1, 1, 1, -1],
  frames: [1],
  foldable: [1, 4],
  hidden: [["a", 4]] as [string, number][],
};

const centre = (scene: Scene, i: number): [number, number] => [scene.x[i]!, scene.y[i]!];

describe("the display list", () => {
  it("stands a frame around its members", () => {
    // A member outside of its frame would say that it belongs elsewhere.
    const { scene } = sceneOf(FRAMED);
    const frame = rectOf(scene, 1);
    for (const member of [2, 3].map((i) => rectOf(scene, i))) {
      expect(frame.x < member.x && frame.x + frame.width > member.x + member.width).toBe(true);
      expect(frame.y < member.y && frame.y + frame.height > member.y + member.height).toBe(true);
    }
  });

  it("finds the innermost box under the pointer, and the frame beside its members", () => {
    // A click in a group must reach the node that was aimed at.
    const { scene } = sceneOf(FRAMED);
    expect(2).toBe(boxAt(scene, ...centre(scene, 2)));
    const { x, y } = rectOf(scene, 1);
    expect(1).toBe(boxAt(scene, x + 3, y + 3));
    expect(-1).toBe(boxAt(scene, x - 500, y));
  });

  it("labels one wire of each tensor, and none that says what the wire above said", () => {
    const { scene } = sceneOf({
      boxes: ["a", "b", "c", "d", "e"].map((id) => box({ id })),
      edges: [
        [0, 1],
        [0, 2],
        [0, 3],
        [1, 4],
        [2, 4],
      ],
      value: ["x", "x", "y", "z", "w"],
      label: ["8", "8", "8", "8", "4"],
    });
    expect([true, false, true, false, true]).toEqual(scene.wires.map(({ informative }) => informative));
  });

  it("points hidden boxes to the group that shows them", () => {
    // A selection of a folded node must light its group.
    expect(4).toBe(sceneOf(FRAMED).scene.index.get("a"));
  });

  it("has a fold glyph in the top right corner of what can be folded, and nowhere else", () => {
    // The one place that folds instead of selecting.
    const { scene } = sceneOf(FRAMED);
    for (const i of [1, 4]) {
      const { x, y, width } = rectOf(scene, i);
      expect(i).toBe(foldAt(scene, x + width - 12, y + 12));
      expect(-1).toBe(foldAt(scene, x + 12, y + 12));
    }
    const { x, y, width } = rectOf(scene, 2);
    expect(-1).toBe(foldAt(scene, x + width - 12, y + 12));
    expect(["", "−", "", "", "+"]).toEqual(scene.figures.map(({ fold }) => fold));
  });

  it.each([false, true])("joins boxes where wires start and end, across: %s", (across) => {
    // Wires leave at the bottom and enter at the top; from left to right they leave right and enter left.
    const { scene } = sceneOf(FRAMED, across);
    scene.wires.forEach(({ source, target }, e) => {
      const from = rectOf(scene, source);
      const to = rectOf(scene, target);
      const p = scene.points.subarray(2 * scene.offsets[e]!, 2 * scene.offsets[e + 1]!);
      const leaves = across ? [p[0], from.x + from.width] : [p[1], from.y + from.height];
      const enters = across ? [p.at(-2), to.x] : [p.at(-1), to.y];
      for (const [wire, edge] of [leaves, enters]) expect(wire).toBeCloseTo(edge!, 2);
    });
  });

  it.each([false, true])("finds a wire near its middle, across: %s", (across) => {
    // Hover on a thin line must work in both directions.
    const { scene } = sceneOf(FRAMED, across);
    const [x0, y0, x1, y1] = scene.points.subarray(2 * scene.offsets[1]!, 2 * scene.offsets[1]! + 4);
    expect(1).toBe(wireAt(scene, (x0! + x1!) / 2, (y0! + y1!) / 2, 4));
  });
});

/** Reads a document as an XML parser does; the names of its elements, or an error where it is not well formed. */
function elements(text: string): string[] {
  const token = /<([a-z]+)((?: [\w:-]+="[^"<]*")*)(\/?)>|<\/([a-z]+)>|[^<>&]+|&(?:amp|lt|gt|quot);/y;
  const names: string[] = [];
  const stack: string[] = [];
  while (token.lastIndex < text.length) {
    const at = token.lastIndex;
    const found = token.exec(text);
    if (!found) throw new Error(`Not well formed at ${at}: ${text.slice(at, at + 60)}`);
    const [, open, attributes, alone, close] = found;
    if (attributes && /&(?!amp;|lt;|gt;|quot;)/.test(attributes)) throw new Error(`Bare & in ${attributes}`);
    if (open) names.push(open);
    if (open && !alone) stack.push(open);
    if (close && stack.pop() !== close) throw new Error(`Unexpected </${close}>`);
  }
  if (stack.length) throw new Error(`Not closed: ${stack}`);
  return names;
}

const svg = (name: string): string => {
  const { scene, type } = sceneOf({ boxes: [box({ id: "a", kind: "group", title: name, lines: [name] })] });
  return svgOf(scene, lookFor(scene), { ...theme, font: `"Segoe UI", ${name}` }, type);
};

describe("an SVG", () => {
  it("is well-formed XML whatever names say, and runs nothing", () => {
    // A node's name comes from a file that anybody may have written.
    const hostile = fc.oneof(
      fc.string({ unit: "binary" }),
      fc.constantFrom(
        "<script>alert(1)</script>",
        "]]>",
        "\ud800",
        "\u0000\u001b[0m",
        "&amp;",
        "‮abc",
        "👩‍👩‍👧",
      ),
    );
    fc.assert(
      fc.property(hostile, (name) => {
        const names = elements(svg(name));
        expect([]).toEqual(
          names.filter((tag) => !["svg", "defs", "pattern", "path", "rect", "text"].includes(tag)),
        );
      }),
    );
  });

  it("holds every name as text and refers to nothing outside", () => {
    // It must open in any viewer, be searchable there, and fetch nothing.
    const { scene, type } = sceneOf(FRAMED);
    const text = svgOf(scene, lookFor(scene), theme, type);
    for (const name of ["image", "layer 3", "2 nodes", "Conv", "Relu", "stage", "9 nodes"])
      expect(text).toContain(`>${name}</text>`);
    expect(['xmlns="http://www.w3.org/2000/svg"']).toEqual(text.match(/[\w:]+="[^"]*:\/\/[^"]*"/g));
    expect(null).toBe(text.match(/href|url\((?!#)/));
  });

  it("shows all of the graph", () => {
    // An export of what happens to be in view would be a screenshot.
    const { scene, type } = sceneOf(FRAMED);
    const [x, y, width, height] = /viewBox="([^"]*)"/
      .exec(svgOf(scene, lookFor(scene), theme, type))![1]!
      .split(" ")
      .map(Number) as [number, number, number, number];
    expect(x <= 0 && y <= 0).toBe(true);
    expect(x + width >= scene.bounds.width && y + height >= scene.bounds.height).toBe(true);
  });

  it("writes no label over another one, and the one that is pointed at in any case", () => {
    // Of two sizes in one place neither can be read.
    const boxes = ["a", "b", "c", "d"].map((id) => box({ id }));
    const edges = [1, 2, 3].map((to): [number, number] => [0, to]);
    const label = ["1×64×112×112", "1×64×56×56", "1×64×28×28"];
    const { scene, type } = sceneOf({ boxes, edges, label });
    const written = (marks: Marks): string[] => {
      const text = svgOf(scene, lookFor(scene), theme, type, marks);
      return label.filter((words) => text.includes(`>${words}<`));
    };
    expect([label[0]]).toEqual(written(NO_MARKS));
    expect(written({ ...NO_MARKS, wire: 2 })).toContain(label[2]);
  });

  it("draws all but the clear boxes pale", () => {
    // What a filter leaves must stand out in the exported picture too.
    const { scene, type } = sceneOf({ boxes: [box({ id: "a", op: "Conv" }), box({ id: "b", op: "Relu" })] });
    const marks: Marks = { ...NO_MARKS, clear: new Set([1]) };
    const text = svgOf(scene, lookFor(scene), theme, type, marks);
    expect(text).toMatch(/opacity="0\.2">Conv</);
    expect(text).toMatch(/fill="#ffffff">Relu</);
  });

  it("shows the badge of a box", () => {
    // The second sign beside colour must survive the export.
    const { scene, type } = sceneOf({ boxes: [box({ id: "a" })] });
    expect(svgOf(scene, lookFor(scene, { badge: ["L4"] }), theme, type)).toContain(">L4</text>");
  });
});

describe("a PNG", () => {
  it("is never larger than a browser can draw", () => {
    // Beyond that a browser gives an empty picture without a word.
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 2e6 }), fc.integer({ min: 1, max: 2e6 }), (width, height) => {
        const scale = pngScale(width, height, 2);
        expect(scale).toBeLessThanOrEqual(2);
        expect(Math.max(width, height) * scale).toBeLessThanOrEqual(16_385);
        expect(width * height * scale * scale).toBeLessThanOrEqual(120.1e6);
      }),
    );
    expect(2).toBe(pngScale(900, 4000, 2));
  });
});

describe("pixels", () => {
  const red = pixelOf("#ff0000");
  const sum = (raster: Raster): number =>
    raster.image.data.reduce((all, value, k) => all + (k % 4 === 0 ? value : 0), 0);

  it("hold as much colour as a shape has area, wherever it lies between them", () => {
    // Otherwise boxes would flicker while the picture moves.
    fc.assert(
      fc.property(
        fc.tuple(...Array.from({ length: 4 }, () => fc.double({ min: 0.5, max: 9, noNaN: true }))),
        ([x, y, width, height]) => {
          const raster = new Raster(20, 20);
          raster.clear(pixelOf("#000000"));
          raster.fill(x!, y!, x! + width!, y! + height!, 0, red);
          expect(Math.abs(sum(raster) / 255 - width! * height!)).toBeLessThan(0.5);
        },
      ),
    );
  });

  it("take lines that lie partly or wholly outside", () => {
    // A wire from one end of a long graph to the other passes the pane far on both sides.
    const far = fc.double({ min: -1e6, max: 1e6, noNaN: true });
    fc.assert(
      fc.property(far, far, far, far, (x0, y0, x1, y1) => {
        const raster = new Raster(8, 8);
        raster.clear(pixelOf("#000000"));
        raster.line(x0, y0, x1, y1, red, 1);
        raster.fill(x0, y0, x1, y1, 3, red, 0.5);
      }),
    );
    const raster = new Raster(8, 8);
    raster.clear(pixelOf("#000000"));
    raster.line(4, -1000, 4, 1000, red, 1);
    expect(8).toBeCloseTo(sum(raster) / 255, 0);
    // A pixel wide around 8.25, it covers a quarter of the last column of each row.
    raster.clear(pixelOf("#000000"));
    raster.line(8.25, -1, 8.25, 9, red, 1);
    expect(2).toBeCloseTo(sum(raster) / 255, 1);
  });

  it("read every way in which a browser tells a colour", () => {
    // A theme that cannot be read would paint black boxes.
    expect([47, 102, 168, 1]).toEqual(channels("#2f66a8"));
    expect([26, 111, 224, 0.1]).toEqual(channels("rgba(26, 111, 224, 0.1)"));
    expect([255, 0, 128, 0.5]).toEqual(channels("color(srgb 1 0 0.5 / 0.5)"));
  });
});

describe("a graph seen from afar", () => {
  const SIZE = { width: 160, height: 120 };

  /** Keeps the pixels that are put on the canvas. */
  class Keeper extends Recorder {
    override canvas = SIZE;
    data = new Uint8ClampedArray();
    override putImageData(image: { data: Uint8ClampedArray }): void {
      this.data = image.data.slice();
    }
  }

  it("is the same picture whether it was moved there or drawn there", () => {
    // A moved picture of which an edge is missing, or drawn twice, shows what the graph does not have.
    const { scene, type } = sceneOf(FRAMED);
    const look = lookFor(scene);
    const marks = { ...NO_MARKS, selected: new Set([2]), hovered: new Set([3]) };
    const blank = (): { pen: Keeper; screen: Screen } => {
      const pen = new Keeper();
      return { pen, screen: new Screen({ getContext: () => pen } as unknown as HTMLCanvasElement) };
    };
    const step = fc.tuple(fc.integer({ min: -170, max: 170 }), fc.double({ min: -30, max: 30, noNaN: true }));
    fc.assert(
      fc.property(
        fc.constantFrom(1 / 32, 1 / 8, 1 / 4, 3 / 8),
        fc.constantFrom(1, 1.25, 2),
        fc.array(step, { minLength: 1, maxLength: 4 }),
        (scale, ratio, steps) => {
          const [used, fresh] = [blank(), blank()];
          const camera = new Camera(() => {});
          camera.resize(SIZE.width / ratio, SIZE.height / ratio);
          camera.centreOn(...centre(scene, 2), scale);
          const paint = ({ screen }: { screen: Screen }): void =>
            screen.paint(ratio, scene, camera, theme, type, look, marks);
          for (const [dx, dy] of steps) {
            paint(used);
            camera.pan(dx, dy);
          }
          used.pen.text = "";
          paint(used);
          paint(fresh);
          expect(used.pen.text).toBe(fresh.pen.text);
          // A slanted line starts at another place, and its parts of a pixel round otherwise.
          const apart = fresh.pen.data.reduce(
            (most, v, k) => Math.max(most, Math.abs(v - used.pen.data[k]!)),
            0,
          );
          expect(apart).toBeLessThanOrEqual(2);
        },
      ),
    );
  });
});

describe("camera", () => {
  it("fits a graph of any size", () => {
    // The whole of a very long graph must be one key away.
    const camera = new Camera(() => {});
    camera.resize(800, 600);
    const rect = { x: 0, y: 0, width: 900, height: 900_000 };
    camera.fit(rect, { left: 10, top: 10, right: 10, bottom: 10 });
    const { y, height } = camera.toScreen(rect);
    expect([10, 590]).toEqual([Math.round(y), Math.round(y + height)]);
  });
});

describe("a word beside a box", () => {
  const BESIDE = {
    boxes: [box({ id: "left" }), box({ id: "right" }), box({ id: "below" })],
    edges: [
      [0, 2],
      [1, 2],
    ] as [number, number][],
  };

  it("has room up to the next box on its level, whatever stands above and below", () => {
    // "folded" ran under the box at its right.
    const { scene } = sceneOf(BESIDE);
    const { x, width } = scene;
    const [first, second] = x[0]! < x[1]! ? [0, 1] : [1, 0];
    const gap = x[second]! - width[second]! / 2 - (x[first]! + width[first]! / 2);
    expect(gap).toBe(roomBeside(scene, first, [0, 1, 2]));
    expect(Infinity).toBe(roomBeside(scene, second, [0, 1, 2]));
    expect(Infinity).toBe(roomBeside(scene, first, [first, 2]));
  });
});
