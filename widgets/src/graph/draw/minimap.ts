import type { Look } from "../overlay";
import { flatColour } from "./box";
import type { Camera, Rect } from "./camera";
import { pixelOf, Raster } from "./raster";
import { rectOf, type Scene } from "./scene";
import type { Theme } from "./theme";

const LARGEST = { width: 72, height: 96 };
const NARROWEST = 36;
const PAD = 4;
const PART = 0.17;
const NARROW = 300;

const CORNERS = [
  [1, 1],
  [0, 1],
  [1, 0],
  [0, 0],
] as const;
const GAP = 10;

/** The first corner of a pane where a map of this size covers none of the rectangles; null where there is none. */
export function freeCorner(
  pane: { width: number; height: number },
  map: { width: number; height: number },
  boxes: readonly Rect[],
  corners: readonly (readonly [number, number])[] = CORNERS,
): readonly [number, number] | null {
  const free = ([right, down]: readonly [number, number]): boolean => {
    const left = right ? pane.width - map.width - GAP : GAP;
    const top = down ? pane.height - map.height - GAP : GAP;
    return !boxes.some(
      ({ x, y, width, height }) =>
        x < left + map.width && x + width > left && y < top + map.height && y + height > top,
    );
  };
  return corners.find(free) ?? null;
}

export class Minimap {
  readonly canvas: HTMLCanvasElement;
  #ground: ImageData | null = null;
  #corner: readonly [number, number] | null = CORNERS[0];
  #scaleX = 1;
  #scaleY = 1;
  #width = 0;
  #height = 0;

  constructor(canvas: HTMLCanvasElement) {
    this.canvas = canvas;
  }

  /** Draws the boxes; needed after a change of graph, colours, selection or the pane's size. */
  redraw(scene: Scene, camera: Camera, theme: Theme, look: Look, selected: ReadonlySet<number>): void {
    const { bounds } = scene;
    const widest = Math.min(LARGEST.width - 2 * PAD, camera.width * PART);
    const tallest = Math.min(LARGEST.height - 2 * PAD, camera.height * 2 * PART);
    const scale = Math.min(widest / bounds.width, tallest / bounds.height, 0.12);
    this.#width = Math.ceil(Math.max(NARROWEST, bounds.width * scale) + 2 * PAD);
    this.#height = Math.ceil(Math.max(NARROWEST, bounds.height * scale) + 2 * PAD);
    this.#scaleX = (this.#width - 2 * PAD) / Math.max(1, bounds.width);
    this.#scaleY = (this.#height - 2 * PAD) / Math.max(1, bounds.height);
    const ratio = devicePixelRatio;
    this.canvas.width = Math.round(this.#width * ratio);
    this.canvas.height = Math.round(this.#height * ratio);
    this.canvas.style.width = `${this.#width}px`;
    this.canvas.style.height = `${this.#height}px`;
    const raster = new Raster(this.canvas.width, this.canvas.height);
    raster.clear(pixelOf(theme.ground));
    const block = (i: number, colour: string, grow: number): void => {
      const w = Math.max(1.5, scene.width[i]! * this.#scaleX) / 2 + grow;
      const h = Math.max(1, scene.height[i]! * this.#scaleY * 0.9) / 2 + grow;
      const x = scene.x[i]! * this.#scaleX + PAD;
      const y = scene.y[i]! * this.#scaleY + PAD;
      const alpha = scene.figures[i]!.shape === "frame" ? 0.1 : 1;
      raster.fill(
        (x - w) * ratio,
        (y - h) * ratio,
        (x + w) * ratio,
        (y + h) * ratio,
        0,
        pixelOf(colour),
        alpha,
      );
    };
    scene.figures.forEach((figure, i) => {
      if (!selected.has(i)) block(i, flatColour(theme, figure, look, i), 0);
    });
    for (const i of selected) block(i, theme.select, 1);
    this.#ground = raster.image;
  }

  /** Draws the frame of the visible part; false when everything is visible or the pane is too narrow for a map. */
  frame(camera: Camera, scene: Scene, theme: Theme): boolean {
    const { x, y, width, height } = camera.view;
    const all = x <= 0 && y <= 0 && x + width >= scene.bounds.width && y + height >= scene.bounds.height;
    if (all || camera.width < NARROW || !this.#ground) return false;
    const ctx = this.canvas.getContext("2d")!;
    const ratio = devicePixelRatio;
    ctx.putImageData(this.#ground, 0, 0);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    const inset = (value: number, most: number): number => Math.min(most - 1, Math.max(1, value));
    const left = inset(x * this.#scaleX + PAD, this.#width);
    const top = inset(y * this.#scaleY + PAD, this.#height);
    const right = inset((x + width) * this.#scaleX + PAD, this.#width);
    const bottom = inset((y + height) * this.#scaleY + PAD, this.#height);
    ctx.strokeStyle = theme.hover;
    ctx.fillStyle = theme.hoverTint;
    ctx.lineWidth = 1.25;
    ctx.beginPath();
    ctx.roundRect(left, top, Math.max(3, right - left), Math.max(3, bottom - top), 2);
    ctx.fill();
    ctx.stroke();
    return true;
  }

  /** Moves into a corner where it covers no box, its own where that will do; false where there is none. */
  makeRoom(camera: Camera, scene: Scene): boolean {
    const boxes: Rect[] = [];
    scene.figures.forEach(({ shape }, i) => {
      if (shape !== "frame") boxes.push(camera.toScreen(rectOf(scene, i)));
    });
    const own = this.#corner ? [this.#corner, ...CORNERS] : CORNERS;
    this.#corner = freeCorner(camera, { width: this.#width + 2, height: this.#height + 2 }, boxes, own);
    if (!this.#corner) return false;
    const [right, down] = this.#corner;
    Object.assign(this.canvas.style, {
      left: right ? "auto" : `${GAP}px`,
      right: right ? `${GAP}px` : "auto",
      top: down ? "auto" : `${GAP}px`,
      bottom: down ? `${GAP}px` : "auto",
    });
    return true;
  }

  widthIn(camera: Camera): number {
    return camera.width < NARROW ? 0 : this.#width;
  }

  heightIn(camera: Camera): number {
    return camera.width < NARROW ? 0 : this.#height;
  }

  toWorld(mx: number, my: number): [number, number] {
    return [(mx - PAD) / this.#scaleX, (my - PAD) / this.#scaleY];
  }
}
