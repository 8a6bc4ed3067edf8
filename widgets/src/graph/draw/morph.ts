import type { OpChip } from "../../core/contract";
import { shortOp } from "../../core/format";
import type { Look } from "../overlay";
import { type Brush, paintBox, paintHead, RADIUS } from "./box";
import type { Place } from "./camera";
import { CARD, NODE } from "./measure";
import { detailAt, hatch, NO_MARKS, SHOW, seen, seenWires, strokes } from "./paint";
import { pixelOf } from "./raster";
import { around, rectOf, type Scene } from "./scene";
import { type Far, farBoxes, farFrames, farWires, type Screen, type View } from "./screen";
import type { Type } from "./text";
import type { Theme } from "./theme";

/** A box of A on its way to a chip of B, which is given in pixels of B by its corner and size. */
interface Glide {
  from: number;
  card: number;
  x: number;
  y: number;
  width: number;
  height: number;
  text: string;
  colour: string;
}

const clamped = (value: number): number => Math.min(1, Math.max(0, value));
/** 0 before `from`, 1 after `to`, smoothly between. */
const ramp = (t: number, from: number, to: number): number => {
  const s = clamped((t - from) / (to - from));
  return s * s * (3 - 2 * s);
};
const eased = (t: number): number => (t < 0.5 ? 4 * t ** 3 : 1 - (2 - 2 * t) ** 3 / 2);
const mix = (a: number, b: number, part: number): number => a + (b - a) * part;

/** Before into after: the nodes of scene A glide into the cards of the layers of scene B that they became. */
export class Morph {
  readonly a: Scene;
  readonly b: Scene;
  readonly #lookA: Look;
  readonly #lookB: Look;
  readonly #glides: Glide[] = [];
  /** Boxes of A that become nothing, and boxes of B that stand for no box of A. */
  readonly #lost: ReadonlySet<number>;
  readonly #new: ReadonlySet<number>;
  readonly #partners = new Map<number, number[]>();

  /** `pairs` are positions in A and in B of a node and a layer that it went into. */
  constructor(
    a: Scene,
    b: Scene,
    lookA: Look,
    lookB: Look,
    theme: Theme,
    pairs: readonly (readonly [number, number])[],
  ) {
    this.a = a;
    this.b = b;
    this.#lookA = lookA;
    this.#lookB = lookB;
    const met = new Set<number>();
    const seenPairs = new Set<number>();
    for (const [i, j] of [...pairs, ...pills(a, b)]) {
      const key = i * b.figures.length + j;
      if (seenPairs.has(key) || a.figures[i]!.shape === "frame") continue;
      seenPairs.add(key);
      met.add(j);
      const partners = this.#partners.get(i);
      if (partners) partners.push(j);
      else this.#partners.set(i, [j]);
      this.#glides.push(glideOf(a, b, i, j, theme));
    }
    const loose = (scene: Scene, known: (i: number) => boolean): Set<number> =>
      new Set(scene.figures.flatMap(({ shape }, i) => (shape === "frame" || known(i) ? [] : i)));
    this.#lost = loose(a, (i) => this.#partners.has(i));
    this.#new = loose(b, (j) => met.has(j));
  }

  /** A view of B that shows what has become of what a view of A shows. */
  target(camera: View & { width: number; height: number }): Place {
    const cards = seen(this.a, camera.view).flatMap((i) => this.#partners.get(i) ?? []);
    const rect = around(this.b, cards) ?? this.b.bounds;
    const { width, height } = camera;
    const PAD = 36;
    const fitting = Math.min((width - 2 * PAD) / rect.width, (height - 2 * PAD) / rect.height);
    // About as large as before; where names can be read now, they shall be at the end, from the first card on.
    const least = camera.scale >= SHOW.title ? SHOW.line : 1e-6;
    const scale = Math.max(least, Math.min(fitting, Math.max(camera.scale, 0.6)));
    const start = (from: number, length: number, room: number, main: boolean): number =>
      main && length * scale > room - 2 * PAD ? PAD - from * scale : room / 2 - (from + length / 2) * scale;
    const { across } = this.a;
    return {
      scale,
      x: start(rect.x, rect.width, width, across),
      y: start(rect.y, rect.height, height, !across),
    };
  }

  /** Paints the picture at `t` from 0 (A as `from` shows it) to 1 (B as `to` shows it). */
  paint(
    screen: Screen,
    t: number,
    ratio: number,
    from: View & { width: number; height: number },
    to: Place,
    theme: Theme,
    type: Type,
  ): void {
    const end = viewOf(to, from.width, from.height);
    if (t <= 0) screen.paint(ratio, this.a, from, theme, type, this.#lookA, NO_MARKS);
    else if (t >= 1) screen.paint(ratio, this.b, end, theme, type, this.#lookB, NO_MARKS);
    else if (Math.min(from.scale, to.scale) < SHOW.title) this.#far(screen, t, ratio, from, end, theme);
    else this.#near(screen, t, ratio, from, end, theme, type);
  }

  #near(screen: Screen, t: number, ratio: number, from: View, to: View, theme: Theme, type: Type): void {
    const { a, b } = this;
    const pen = screen.ctx;
    const brush: Brush = { pen, theme, type, hatch: hatch(pen, theme), across: a.across };
    screen.clear(theme);
    const look = (at: View): void =>
      pen.setTransform(ratio * at.scale, 0, 0, ratio * at.scale, ratio * at.x, ratio * at.y);
    const boxes = (scene: Scene, at: View, of: Look, alpha: number, wanted: (i: number) => boolean): void => {
      if (alpha <= 0) return;
      pen.globalAlpha = alpha;
      const detail = detailAt(at.scale);
      for (const i of seen(scene, at.view, of)) {
        if (!wanted(i)) continue;
        const figure = scene.figures[i]!;
        paintBox(brush, figure, rectOf(scene, i), of, i, detail);
        if (figure.shape === "frame") paintHead(brush, figure, rectOf(scene, i), of, i, detail);
      }
    };
    const wires = (scene: Scene, at: View, alpha: number): void => {
      if (alpha <= 0) return;
      pen.globalAlpha = alpha;
      strokes(pen, scene, seenWires(scene, at.view), theme.edge, Math.max(1.1, 0.7 / at.scale));
    };
    const isFrame =
      (scene: Scene) =>
      (i: number): boolean =>
        scene.figures[i]!.shape === "frame";
    pen.lineJoin = "round";
    look(from);
    boxes(a, from, this.#lookA, 1 - ramp(t, 0, 0.5), isFrame(a));
    wires(a, from, 1 - ramp(t, 0, 0.4));
    boxes(a, from, this.#lookA, 1 - ramp(t, 0, 0.6), (i) => this.#lost.has(i));
    look(to);
    boxes(b, to, this.#lookB, ramp(t, 0.6, 1), isFrame(b));
    wires(b, to, ramp(t, 0.7, 1));
    boxes(b, to, this.#lookB, ramp(t, 0.8, 1), (j) => this.#new.has(j));
    boxes(b, to, this.#lookB, ramp(t, 0.55, 0.95), (j) => !this.#new.has(j) && !isFrame(b)(j));
    pen.globalAlpha = 1;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const size = this.#screenSize(from);
    for (const glide of this.#glides) this.#glide(brush, pen, ratio, glide, t, from, to, size);
    pen.globalAlpha = 1;
  }

  #glide(
    brush: Brush,
    pen: CanvasRenderingContext2D,
    ratio: number,
    glide: Glide,
    t: number,
    from: View,
    to: View,
    [width, height]: [number, number],
  ): void {
    const { theme, type } = brush;
    const e = eased(t);
    const r = between(this.a, glide, e, from, to);
    if (r.x > width || r.y > height || r.x + r.width < 0 || r.y + r.height < 0) return;
    const figure = this.a.figures[glide.from]!;
    const scale = from.scale ** (1 - e) * to.scale ** e;
    const there = 1 - ramp(t, 0.88, 1);
    if (figure.shape === "pill") {
      const rect = { x: r.x / scale, y: r.y / scale, width: r.width / scale, height: r.height / scale };
      pen.globalAlpha = there;
      pen.setTransform(ratio * scale, 0, 0, ratio * scale, 0, 0);
      paintBox(brush, figure, rect, this.#lookA, glide.from, { titles: true, lines: false });
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      return;
    }
    const radius = mix(RADIUS * from.scale, 3 * to.scale, e);
    const colour = this.#colour(glide, theme);
    pen.globalAlpha = there;
    pen.beginPath();
    pen.roundRect(r.x, r.y, r.width, r.height, radius);
    pen.fillStyle = theme.card;
    pen.fill();
    pen.globalAlpha = there * (1 - e);
    pen.lineWidth = 1;
    pen.strokeStyle = theme.line;
    pen.stroke();
    pen.globalAlpha = there;
    const bar = Math.min(r.height, mix(NODE.bar * from.scale, CARD.chip * to.scale, e));
    pen.beginPath();
    const foot = bar >= r.height - 1 ? radius : 0;
    pen.roundRect(r.x, r.y, r.width, bar, [radius, radius, foot, foot]);
    pen.fillStyle = colour;
    pen.fill();
    if (scale < SHOW.title) return;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    const px = mix(12 * from.scale, 10.5 * to.scale, e);
    pen.font = type.font(Math.round(px * 4) / 4, 600);
    pen.fillStyle = "#ffffff";
    // The full name gives way to the short one before half-way, where the slider may rest.
    const name = figure.face.title;
    const changes = name !== glide.text;
    const say = (words: string, alpha: number): void => {
      pen.globalAlpha = there * alpha;
      if (alpha > 0) pen.fillText(words, r.x + r.width / 2, r.y + bar / 2 + 0.5);
    };
    say(name, changes ? 1 - ramp(e, 0.3, 0.42) : 1);
    if (changes) say(glide.text, ramp(e, 0.38, 0.5));
    const lines = 1 - e * 6;
    if (lines <= 0 || figure.shape !== "node") return;
    pen.globalAlpha = lines;
    pen.fillStyle = theme.muted;
    pen.font = type.font(Math.round(10.5 * from.scale * 4) / 4);
    figure.face.lines.forEach((line, k) => {
      pen.fillText(line, r.x + r.width / 2, r.y + bar + (9.5 + k * NODE.line) * from.scale);
    });
  }

  #far(screen: Screen, t: number, ratio: number, from: View, to: View, theme: Theme): void {
    const { a, b } = this;
    const raster = screen.raster(theme);
    const at = (scene: Scene, camera: View, look: Look): Far => ({
      raster,
      scene,
      look,
      theme,
      marks: NO_MARKS,
      camera,
      ratio,
      alpha: 1,
    });
    const before = at(a, from, this.#lookA);
    const after = at(b, to, this.#lookB);
    const there = seen(a, from.view);
    const here = seen(b, to.view);
    const step = (far: Far, alpha: number, paint: (far: Far) => void): void => {
      if (alpha > 0) paint({ ...far, alpha });
    };
    step(before, 1 - ramp(t, 0, 0.5), (far) => farFrames(far, there));
    step(before, 1 - ramp(t, 0, 0.4), farWires);
    step(before, 1 - ramp(t, 0, 0.6), (far) =>
      farBoxes(
        far,
        there.filter((i) => this.#lost.has(i)),
      ),
    );
    step(after, ramp(t, 0.6, 1), (far) => farFrames(far, here));
    step(after, ramp(t, 0.7, 1), farWires);
    step(after, ramp(t, 0.8, 1), (far) =>
      farBoxes(
        far,
        here.filter((j) => this.#new.has(j)),
      ),
    );
    step(after, ramp(t, 0.55, 0.95), (far) =>
      farBoxes(
        far,
        here.filter((j) => !this.#new.has(j)),
      ),
    );
    const e = eased(t);
    const alpha = 1 - ramp(t, 0.88, 1);
    for (const glide of this.#glides) {
      const r = between(a, glide, e, from, to);
      const grow = Math.max(0, 1.5 - r.width) / 2;
      const tall = Math.max(0, 1 - r.height) / 2;
      const { pixel } = pixelOf(this.#colour(glide, theme));
      raster.fill(
        (r.x - grow) * ratio,
        (r.y - tall) * ratio,
        (r.x + r.width + grow) * ratio,
        (r.y + r.height + tall) * ratio,
        3 * from.scale * ratio,
        pixel,
        alpha,
      );
    }
    screen.ctx.putImageData(raster.image, 0, 0);
  }

  #screenSize({ scale, view }: View): [number, number] {
    return [view.width * scale, view.height * scale];
  }

  #colour({ from, colour }: Glide, theme: Theme): string {
    const { box, shape } = this.a.figures[from]!;
    if (shape === "pill") return theme.line;
    return this.#lookA.colour[from] ?? (this.#lookA.families ? theme.family[box.family] : colour);
  }
}

function viewOf({ scale, x, y }: Place, width: number, height: number): View {
  return {
    scale,
    x,
    y,
    view: { x: -x / scale, y: -y / scale, width: width / scale, height: height / scale },
  };
}

function between(
  a: Scene,
  { from: i, x, y, width, height }: Glide,
  e: number,
  from: View,
  to: View,
): { x: number; y: number; width: number; height: number } {
  const r = rectOf(a, i);
  return {
    x: mix(r.x * from.scale + from.x, x * to.scale + to.x, e),
    y: mix(r.y * from.scale + from.y, y * to.scale + to.y, e),
    width: mix(r.width * from.scale, width * to.scale, e),
    height: mix(r.height * from.scale, height * to.scale, e),
  };
}

function pills(a: Scene, b: Scene): [number, number][] {
  const key = (scene: Scene, i: number): string =>
    `${scene.figures[i]!.box.kind} ${scene.figures[i]!.box.title}`;
  const isPill = (scene: Scene): number[] =>
    scene.figures.flatMap(({ shape }, i) => (shape === "pill" ? i : []));
  const known = new Map(isPill(b).map((j) => [key(b, j), j]));
  return isPill(a).flatMap((i): [number, number][] => {
    const j = known.get(key(a, i));
    return j === undefined ? [] : [[i, j]];
  });
}

function glideOf(a: Scene, b: Scene, i: number, j: number, theme: Theme): Glide {
  const { id, op, family } = a.figures[i]!.box;
  const { box, face, shape } = b.figures[j]!;
  const card = rectOf(b, j);
  const { chips } = face;
  const glide = { from: i, card: j, text: shortOp(op), colour: theme.family[family] };
  // The chip of this very node; other chips can stand for what was inserted at it.
  const rank = (chip: OpChip): number => 2 * Number(chip.node === id) + Number(chip.op === op);
  const best = box.chips.reduce((most, chip) => Math.max(most, rank(chip)), 0);
  const named = best ? box.chips.findIndex((chip) => rank(chip) === best) : 0;
  const chip = chips[Math.min(named, chips.length - 1)];
  // A slim step has no chips: the node becomes the step itself.
  if (!chip) return { ...glide, ...card };
  const row = shape === "group" ? CARD.row - 1 : 0;
  const y = card.y + 5 + row + (CARD.row - CARD.chip) / 2;
  return { ...glide, x: card.x + chip.x, y, width: chip.width, height: CARD.chip };
}
