/** A page for measurements: graphs drawn as the widget draws them, and functions on `window` for Playwright. */

import type { GraphTraits } from "../src/core/channel";
import type { EngineView, Graph, Side } from "../src/core/contract";
import { Mapping } from "../src/core/mapping";
import { decode, fromBase64 } from "../src/core/payload";
import { START } from "../src/core/state";
import { LinkedPan } from "../src/graph/draw/linked_pan";
import { figures } from "../src/graph/draw/measure";
import { type Marks, NO_MARKS } from "../src/graph/draw/paint";
import { layoutInput, makeScene, rectOf, type Scene } from "../src/graph/draw/scene";
import { Stage } from "../src/graph/draw/stage";
import { svgOf } from "../src/graph/draw/svg";
import { Type } from "../src/graph/draw/text";
import { readTheme, type Theme } from "../src/graph/draw/theme";
import { render } from "../src/graph/graph";
import { LayoutClient } from "../src/graph/layout/client";
import type { LayoutInput } from "../src/graph/layout/types";
import { lookOf } from "../src/graph/overlay";
import { type Arrangement, arrange, PLAIN } from "../src/graph/visible_graph";
import { against, crossings } from "../test/crossings";

const root = document.body.appendChild(document.createElement("div"));
root.className = "rtlab";
root.style.cssText = "width: 100vw; height: 100vh; border: 0; border-radius: 0";
document.head.appendChild(document.createElement("style")).textContent = "body { margin: 0 }";
const panes = root.appendChild(document.createElement("div"));
panes.className = "rt-panes";
panes.style.cssText = "display: flex; height: 100%";

const dark = location.hash === "#dark";
root.classList.toggle("rt-dark", dark);
const theme: Theme = readTheme(root, dark);
const type = new Type(theme.font);
const layouts = new LayoutClient();
const end = new AbortController();

interface Pane {
  stage: Stage;
  input?: LayoutInput;
  drawn: Promise<void>;
}
let open: Pane[] = [];
/** How the first pane relates to the second, where that shows an engine. */
let joined = new Mapping(null);

function makePane(): Pane {
  const body = panes.appendChild(document.createElement("div"));
  body.className = "rt-body";
  body.style.cssText = "position: relative; flex: 1; min-width: 0";
  const canvas = body.appendChild(document.createElement("canvas"));
  canvas.style.cssText = "position: absolute; inset: 0; width: 100%; height: 100%";
  const map = body.appendChild(document.createElement("canvas"));
  map.className = "rt-map";
  const pane: Pane = { stage: undefined as unknown as Stage, drawn: Promise.resolve() };
  const events = {
    hover() {},
    click() {},
    drawn() {},
    frame() {},
    moved() {},
    failed(error: unknown) {
      throw error;
    },
  };
  pane.drawn = new Promise((done) => {
    events.drawn = done;
  });
  pane.stage = new Stage(canvas, map, events, end.signal);
  pane.stage.dress(theme, type);
  return pane;
}

interface Wish extends Partial<Arrangement> {
  /** All groups are open. */
  opened?: boolean;
  across?: boolean;
  colour?: string;
}

/**
 * Draws payloads side by side, each as the widget does it, and tells how long each step took in milliseconds. The
 * last one may be an engine, which then groups and explains the first.
 */
async function show(payloads: string[], wish: Wish = {}): Promise<Record<string, number>[]> {
  panes.replaceChildren();
  open = payloads.map(makePane);
  const told: Record<string, number>[] = [];
  const last = payloads.length > 1 ? await decode<EngineView>(fromBase64(payloads.at(-1)!)) : null;
  const engine = last && "graph" in last ? last : null;
  joined = new Mapping(engine);
  for (const [k, payload] of payloads.entries()) {
    const bytes = fromBase64(payload);
    const { stage, drawn: painted } = open[k]!;
    const times: Record<string, number> = {};
    let last = performance.now();
    const began = last;
    const lap = (name: string): void => {
      const now = performance.now();
      times[name] = now - last;
      last = now;
    };
    const given = (await decode<Graph | EngineView>(bytes))!;
    lap("decode");
    const graph = "graph" in given ? given.graph : given;
    const side = "graph" in given ? "layer" : "node";
    const links = side === "node" ? joined : new Mapping(null);
    const folds = new Set(wish.folds);
    const wanted = { ...PLAIN, ...wish, folds };
    let drawn = arrange(graph, wanted, engine, links);
    for (let shut = [0]; wish.opened && shut.length; drawn = arrange(graph, wanted, engine, links)) {
      shut = [...drawn.foldable].filter((v) => !drawn.frames.has(v));
      for (const v of shut) folds.add(drawn.graph.boxes[v]!.id);
    }
    const mode = wish.colour ?? (side === "node" ? "operator" : "precision");
    const look = lookOf({ side, visible: drawn, engine, links: joined }, mode);
    lap("arrange");
    const shapes = figures(drawn, links, type);
    lap("figures");
    const across = wish.across ?? false;
    const input = layoutInput(drawn, shapes, across, type);
    open[k]!.input = input;
    const layout = await layouts.layout(input);
    lap("layout");
    const scene = makeScene(drawn, shapes, layout, type, across);
    lap("scene");
    stage.show(scene, look, false);
    await painted;
    lap("frame");
    times.total = performance.now() - began;
    told.push({ ...times, boxes: scene.figures.length, wires: scene.wires.length });
  }
  return told;
}

const sceneOf = (pane: number): Scene => open[pane]!.stage.scene!;

/** Pairs of boxes that lie on each other though neither stands in the other. */
function overlaps(pane: number): number {
  const scene = sceneOf(pane);
  const order = scene.figures.map((_, i) => i).sort((a, b) => rectOf(scene, a).y - rectOf(scene, b).y);
  let found = 0;
  let active: number[] = [];
  for (const i of order) {
    const r = rectOf(scene, i);
    active = active.filter((j) => rectOf(scene, j).y + scene.height[j]! > r.y + 0.01);
    for (const j of active) {
      const s = rectOf(scene, j);
      const apart = s.x + s.width <= r.x + 0.01 || s.x >= r.x + r.width - 0.01;
      if (!apart && scene.figures[i]!.shape !== "frame" && scene.figures[j]!.shape !== "frame") found++;
    }
    active.push(i);
  }
  return found;
}

/** How often wires cross as they are drawn, and as dagre alone draws the same graph. */
const besideDagre = (pane: number): { ours: number; theirs: number } =>
  against(open[pane]!.input!, sceneOf(pane));

/** Pairs of wires that cross as they are drawn. */
function crossed(pane: number): number {
  const { points: p, offsets, wires } = sceneOf(pane);
  return crossings(
    wires.map(({ source, target }, e) => ({
      source,
      target,
      points: Array.from(p.subarray(2 * offsets[e]!, 2 * offsets[e + 1]!)),
    })),
  );
}

/** Frame times in milliseconds while `step` runs once a frame. */
function frames(count: number, step: (k: number) => void): Promise<number[]> {
  return new Promise((done) => {
    const times: number[] = [];
    let last = 0;
    let k = -3;
    const tick = (now: number): void => {
      // The first frames only bring the picture to where the sweep starts.
      if (k > 0) times.push(now - last);
      last = now;
      if (k >= count) {
        done(times);
        return;
      }
      step(Math.max(0, k++));
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  });
}

/** The densest place: where the most boxes are near. */
function crowd(scene: Scene): [number, number] {
  const middle = Math.floor(scene.x.length / 2);
  const near = scene.y[middle]!;
  let sum = 0;
  let count = 0;
  for (let i = 0; i < scene.x.length; i++) {
    if (Math.abs(scene.y[i]! - near) > 300) continue;
    sum += scene.x[i]!;
    count++;
  }
  return [sum / count, near];
}

function pan(scale: number, count: number): Promise<number[]> {
  const { stage } = open[0]!;
  const { camera } = stage;
  const scene = stage.scene!;
  const fit = camera.fitScale(scene.bounds, { left: 18, top: 18, right: 18, bottom: 18 }, 1);
  camera.centreOn(...crowd(scene), scale || fit);
  const STEP = 24;
  return frames(count, (k) => camera.pan(k % 40 < 20 ? STEP / 3 : -STEP / 3, k % 80 < 40 ? -STEP : STEP));
}

/** Zooms from the whole graph to twice its size and back. */
function zoom(count: number): Promise<number[]> {
  const { camera, scene } = open[0]!.stage;
  const fit = camera.fitScale(scene!.bounds, { left: 18, top: 18, right: 18, bottom: 18 }, 1);
  const [x, y] = crowd(scene!);
  const octaves = Math.log2(2 / fit);
  return frames(count, (k) => {
    const part = 1 - Math.abs(1 - (2 * k) / count);
    camera.centreOn(x, y, fit * 2 ** (octaves * part));
  });
}

/** Pans the first of two panes while the second follows. */
function together(scale: number, count: number): Promise<number[]> {
  const [a, b] = open.map(({ stage }) => stage) as [Stage, Stage];
  const pairs = a.scene!.figures.flatMap(({ box }, i): [number, number][] => {
    const other = b.scene!.index.get(box.id);
    return other === undefined ? [] : [[i, other]];
  });
  const follow = new LinkedPan(a.scene!, b.scene!, pairs);
  a.camera.centreOn(...crowd(a.scene!), scale);
  return frames(count, (k) => {
    a.camera.pan(0, k % 80 < 40 ? -24 : 24);
    const { x, y, width, height } = a.camera.view;
    b.follow(...follow.at(x + width / 2, y + height / 2), scale);
  });
}

/** Marks boxes of a pane, as the widget does after a click, and tells how long that and the frame took. */
async function light(pane: number, boxes: number[], part: Partial<Marks> = {}): Promise<number> {
  const { stage } = open[pane]!;
  // Work that is due in the same frame runs between the two callbacks.
  let began = 0;
  const before = performance.now();
  requestAnimationFrame(() => {
    began = performance.now();
  });
  stage.mark({ ...NO_MARKS, selected: new Set(boxes), groups: [boxes], ...part });
  const marked = performance.now() - before;
  return new Promise((done) => {
    requestAnimationFrame(() => done(marked + performance.now() - began));
  });
}

interface Widget extends HTMLElement {
  rtlabBoxAt(side: Side, id: string): { x: number; y: number } | null;
}

/** Shows the real widget instead of the panes, without a kernel; resolves when both graphs are drawn. */
async function widget(source: string, engine: string): Promise<void> {
  const state: GraphTraits = {
    source: fromBase64(source),
    engine: fromBase64(engine),
    other: new Uint8Array(),
    view: START,
    height: window.innerHeight,
  };
  const model = {
    get: (name: keyof GraphTraits) => state[name],
    set: (name: keyof GraphTraits, value: unknown) => void Object.assign(state, { [name]: value }),
    save_changes() {},
    on() {},
    off() {},
    send() {},
  };
  root.remove();
  const el = document.body.appendChild(document.createElement("div"));
  render({ model, el, css: "" } as unknown as Parameters<typeof render>[0]);
  await new Promise<void>((done) => {
    const look = (): void => {
      if (el.querySelector('.rtlab[data-ready="1"]')) done();
      else requestAnimationFrame(look);
    };
    look();
  });
}

const boxAt = (side: Side, id: string): { x: number; y: number } | null =>
  document.querySelector<Widget>(".rtlab")!.rtlabBoxAt(side, id);

/** Milliseconds of work from the next click to the frame that shows it on both sides; waiting is not counted. */
function nextClick(): Promise<number> {
  return new Promise((done) => {
    const first = (): void => {
      const began = performance.now();
      let frame = 0;
      requestAnimationFrame(() => {
        frame = performance.now();
      });
      const last = (): void => {
        const handled = performance.now() - began;
        requestAnimationFrame(() => done(handled + performance.now() - frame));
      };
      window.addEventListener("pointerup", last, { once: true });
    };
    window.addEventListener("pointerup", first, { once: true, capture: true });
  });
}

let clicked: Promise<number> = Promise.resolve(0);

const heap = (): number =>
  (performance as unknown as { memory?: { usedJSHeapSize: number } }).memory?.usedJSHeapSize ?? 0;

const svg = (pane: number): string => {
  const { stage } = open[pane]!;
  return svgOf(stage.scene!, stage.look!, theme, type);
};

Object.assign(window, {
  rtlab: {
    show,
    overlaps,
    crossings: crossed,
    besideDagre,
    pan,
    zoom,
    together,
    light,
    widget,
    boxAt,
    /** Before the click, and after it. */
    watchClick: () => {
      clicked = nextClick();
      return true;
    },
    clickTook: () => clicked,
    layers: () => JSON.parse(document.querySelector<HTMLElement>(".rtlab")!.dataset.layers ?? "[]"),
    heap,
    svg,
    stages: () => open.map(({ stage }) => stage),
  },
});
