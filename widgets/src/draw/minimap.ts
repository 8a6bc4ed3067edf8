import type { Look } from "../overlay";
import { flatColour } from "./box";
import type { Camera } from "./camera";
import type { Scene } from "./scene";
import type { Theme } from "./theme";

const LARGEST = { width: 72, height: 96 };
const NARROWEST = 36;
const PAD = 4;
/** At most this part of the pane is covered, twice as much of its height. */
const PART = 0.17;

/** The whole graph in a corner, with the visible part framed. Very long graphs are squeezed to stay readable. */
export class Minimap {
  readonly canvas: HTMLCanvasElement;
  readonly #ground: HTMLCanvasElement;
  #scaleX = 1;
  #scaleY = 1;
  #width = 0;
  #height = 0;

  constructor(canvas: HTMLCanvasElement) {
    this.canvas = canvas;
    this.#ground = document.createElement("canvas");
  }

  /** Draws the boxes; needed after a change of graph, colours, selection or the pane's size. */
  redraw(scene: Scene, camera: Camera, theme: Theme, look: Look, selected: ReadonlySet<number>): void {
    const { bounds } = scene;
    const widest = Math.min(LARGEST.width - 2 * PAD, camera.width * PART);
    const tallest = Math.min(LARGEST.height - 2 * PAD, camera.height * 2 * PART);
    const scale = Math.min(widest / bounds.width, tallest / bounds.height, 0.12);
    this.#width = Math.max(NARROWEST, bounds.width * scale) + 2 * PAD;
    this.#height = Math.max(NARROWEST, bounds.height * scale) + 2 * PAD;
    this.#scaleX = (this.#width - 2 * PAD) / bounds.width;
    this.#scaleY = (this.#height - 2 * PAD) / bounds.height;
    const ratio = devicePixelRatio;
    for (const canvas of [this.canvas, this.#ground]) {
      canvas.width = this.#width * ratio;
      canvas.height = this.#height * ratio;
    }
    this.canvas.style.width = `${this.#width}px`;
    this.canvas.style.height = `${this.#height}px`;
    const ctx = this.#ground.getContext("2d")!;
    ctx.setTransform(ratio, 0, 0, ratio, ratio * PAD, ratio * PAD);
    scene.figures.forEach((figure, i) => {
      if (selected.has(i)) return;
      ctx.fillStyle = flatColour(theme, figure, look, i);
      this.#block(ctx, scene, i, 0);
    });
    ctx.fillStyle = theme.select;
    for (const i of selected) this.#block(ctx, scene, i, 1);
  }

  #block(ctx: CanvasRenderingContext2D, scene: Scene, i: number, grow: number): void {
    const { width, height } = scene.figures[i]!;
    const w = Math.max(1.5, width * this.#scaleX) + 2 * grow;
    const h = Math.max(1, height * this.#scaleY * 0.9) + 2 * grow;
    ctx.fillRect(scene.x[i]! * this.#scaleX - w / 2, scene.y[i]! * this.#scaleY - h / 2, w, h);
  }

  /** Draws the frame of the visible part; false when everything is visible. */
  frame(camera: Camera, scene: Scene, theme: Theme): boolean {
    const { x, y, width, height } = camera.view;
    const all = x <= 0 && y <= 0 && x + width >= scene.bounds.width && y + height >= scene.bounds.height;
    if (all) return false;
    const ctx = this.canvas.getContext("2d")!;
    const ratio = devicePixelRatio;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, this.canvas.width, this.canvas.height);
    ctx.drawImage(this.#ground, 0, 0);
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

  get width(): number {
    return this.#width;
  }

  toWorld(mx: number, my: number): [number, number] {
    return [(mx - PAD) / this.#scaleX, (my - PAD) / this.#scaleY];
  }
}
