import type { Rect } from "./camera";

/** A colour as the pixels of a canvas hold it, as a signed number: alpha, blue, green, red from the highest byte down. */
export type Pixel = number;

const OPAQUE = 0xff000000 | 0;
const pixels = new Map<string, Pixel>();

/** Reads `#rrggbb`, `rgb()`, `rgba()` and `color(srgb …)`, which is all that stylesheets compute to. */
export function pixelOf(colour: string): Pixel {
  let pixel = pixels.get(colour);
  if (pixel === undefined) {
    const [r, g, b] = channels(colour);
    pixel = OPAQUE | (b << 16) | (g << 8) | r;
    pixels.set(colour, pixel);
  }
  return pixel;
}

export function channels(colour: string): [number, number, number, number] {
  if (colour.startsWith("#")) {
    const n = Number.parseInt(colour.slice(1, 7), 16);
    return [(n >> 16) & 255, (n >> 8) & 255, n & 255, 1];
  }
  const parts = colour.match(/[\d.]+(?:e-?\d+)?/g)?.map(Number) ?? [];
  const full = colour.startsWith("color") ? 255 : 1;
  const [r = 0, g = 0, b = 0, a = 1] = parts;
  return [Math.round(r * full), Math.round(g * full), Math.round(b * full), a];
}

/** `part` of a colour, from 0 to 1, over an opaque one. */
export function blend(under: string, over: string, part: number): string {
  const [a, b] = [channels(under), channels(over)];
  return `rgb(${[0, 1, 2].map((k) => Math.round(a[k]! + (b[k]! - a[k]!) * part)).join(", ")})`;
}

/** `part` of the colour over what is there, with `part` from 0 to 256. */
function mixed(under: Pixel, over: Pixel, part: number): Pixel {
  const rest = 256 - part;
  const redBlue = Math.imul(over & 0xff00ff, part) + Math.imul(under & 0xff00ff, rest);
  const green = Math.imul(over & 0xff00, part) + Math.imul(under & 0xff00, rest);
  return OPAQUE | ((redBlue >>> 8) & 0xff00ff) | ((green >>> 8) & 0xff00);
}

/**
 * Draws rectangles and lines straight into pixels, with smoothed edges. A canvas spends microseconds on every path,
 * which is too much for thousands of boxes of a few pixels each.
 */
export class Raster {
  readonly width: number;
  readonly height: number;
  readonly image: ImageData;
  readonly #pixels: Int32Array;
  /** The rectangle that is drawn into, in whole pixels. */
  #clip: Rect;

  constructor(width: number, height: number) {
    this.width = width;
    this.height = height;
    this.image = new ImageData(width, height);
    this.#pixels = new Int32Array(this.image.data.buffer);
    this.#clip = { x: 0, y: 0, width, height };
  }

  /** Fills a rectangle of whole pixels; until the next call nothing outside of it is drawn. */
  clear(colour: Pixel, clip: Rect = { x: 0, y: 0, width: this.width, height: this.height }): void {
    const { x, y, width, height } = clip;
    this.#clip = clip;
    for (let row = y; row < y + height; row++)
      this.#pixels.fill(colour, row * this.width + x, row * this.width + x + width);
  }

  /** Moves the picture by whole pixels and returns what came into view, which has to be drawn. */
  shift(dx: number, dy: number): Rect[] {
    const { width, height } = this;
    const by = dy * width + dx;
    if (by > 0) this.#pixels.copyWithin(by, 0);
    else this.#pixels.copyWithin(0, -by);
    const rows = Math.min(height, Math.abs(dy));
    const columns = Math.min(width, Math.abs(dx));
    return [
      { x: 0, y: dy > 0 ? 0 : height - rows, width, height: rows },
      {
        x: dx > 0 ? 0 : width - columns,
        y: Math.min(height, Math.max(0, dy)),
        width: columns,
        height: height - rows,
      },
    ].filter((part) => part.width && part.height);
  }

  /** Fills a rectangle with round corners. Edges may lie between pixels; `alpha` is from 0 to 1. */
  fill(x0: number, y0: number, x1: number, y1: number, radius: number, colour: Pixel, alpha = 1): void {
    const { x, y, width, height } = this.#clip;
    if (x1 <= x || y1 <= y || x0 >= x + width || y0 >= y + height) return;
    const last = Math.min(y + height, Math.ceil(y1));
    for (let row = Math.max(y, Math.floor(y0)); row < last; row++) {
      const covered = Math.min(row + 1, y1) - Math.max(row, y0);
      let inset = 0;
      if (radius > 0) {
        const beyond = Math.max(y0 + radius - row - 0.5, row + 0.5 - y1 + radius, 0);
        if (beyond > 0) inset = radius - Math.sqrt(Math.max(0, radius * radius - beyond * beyond));
      }
      this.#span(row, x0 + inset, x1 - inset, colour, covered * alpha * 256);
    }
  }

  line(x0: number, y0: number, x1: number, y1: number, colour: Pixel, alpha: number): void {
    const dx = x1 - x0;
    const dy = y1 - y0;
    const steep = Math.abs(dy) >= Math.abs(dx);
    const { x, y, width, height } = this.#clip;
    const [start, long, least, across] = steep
      ? [y, y + height, x, x + width]
      : [x, x + width, y, y + height];
    let [a0, b0, a1, b1] = steep ? [y0, x0, y1, x1] : [x0, y0, x1, y1];
    if (a0 > a1) [a0, b0, a1, b1] = [a1, b1, a0, b0];
    if (a1 < start || a0 >= long) return;
    const slope = a1 > a0 ? (b1 - b0) / (a1 - a0) : 0;
    let from = Math.max(start, Math.round(a0));
    let to = Math.min(long - 1, Math.max(Math.round(a0), Math.round(a1) - 1));
    // A line beside the last pixels covers a part of them.
    const limit = across + 0.5;
    if (slope) {
      const enter = a0 + ((slope > 0 ? least - 1 : limit) - b0) / slope;
      const leave = a0 + ((slope > 0 ? limit : least - 1) - b0) / slope;
      from = Math.max(from, Math.floor(enter));
      to = Math.min(to, Math.ceil(leave));
    } else if (b0 < least - 1 || b0 > limit) return;
    const pixels = this.#pixels;
    const step = steep ? this.width : 1;
    const side = steep ? 1 : this.width;
    const part = Math.round(alpha * 256);
    let b = b0 + slope * (from + 0.5 - a0) - 0.5;
    for (let a = from; a <= to; a++, b += slope) {
      const low = Math.floor(b);
      const share = ((b - low) * part) | 0;
      const at = a * step + low * side;
      if (low >= least && low < across) pixels[at] = mixed(pixels[at]!, colour, part - share);
      if (share && low >= least - 1 && low < across - 1)
        pixels[at + side] = mixed(pixels[at + side]!, colour, share);
    }
  }

  #span(row: number, x0: number, x1: number, colour: Pixel, part: number): void {
    const from = Math.max(this.#clip.x, x0);
    const to = Math.min(this.#clip.x + this.#clip.width, x1);
    if (to <= from) return;
    const pixels = this.#pixels;
    const base = row * this.width;
    const left = Math.floor(from);
    const right = Math.floor(to);
    if (left === right) {
      pixels[base + left] = mixed(pixels[base + left]!, colour, (to - from) * part);
      return;
    }
    const head = Math.ceil(from);
    if (head > left) pixels[base + left] = mixed(pixels[base + left]!, colour, (head - from) * part);
    if (part >= 255.5) pixels.fill(colour, base + head, base + right);
    else for (let x = head; x < right; x++) pixels[base + x] = mixed(pixels[base + x]!, colour, part);
    if (to > right) pixels[base + right] = mixed(pixels[base + right]!, colour, (to - right) * part);
  }
}
