export interface Rect {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Insets {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

const READABLE = 0.5;
const LARGEST = 4;
const GLIDE_MS = 260;

/** What a camera shows: screen = world × scale + offset. */
export interface Place {
  scale: number;
  x: number;
  y: number;
}

export const calm = (): boolean => matchMedia("(prefers-reduced-motion: reduce)").matches;

export class Camera {
  scale = 1;
  x = 0;
  y = 0;
  width = 1;
  height = 1;
  least = 0.02;
  readonly #changed: () => void;
  #glide = 0;
  #run: { from: Place; goal: Place } | null = null;

  constructor(changed: () => void) {
    this.#changed = changed;
  }

  resize(width: number, height: number): void {
    this.width = Math.max(1, width);
    this.height = Math.max(1, height);
  }

  toWorld(sx: number, sy: number): [number, number] {
    return [(sx - this.x) / this.scale, (sy - this.y) / this.scale];
  }

  toScreen(rect: Rect): Rect {
    const { scale } = this;
    return {
      x: rect.x * scale + this.x,
      y: rect.y * scale + this.y,
      width: rect.width * scale,
      height: rect.height * scale,
    };
  }

  get view(): Rect {
    const [x, y] = this.toWorld(0, 0);
    return { x, y, width: this.width / this.scale, height: this.height / this.scale };
  }

  pan(dx: number, dy: number): void {
    this.#set(this.scale, this.x + dx, this.y + dy);
  }

  /** Moves the picture without ending a running glide: what is on its way arrives, moved as much. */
  shift(dx: number, dy: number): void {
    for (const place of [this, ...(this.#run ? [this.#run.from, this.#run.goal] : [])]) {
      place.x += dx;
      place.y += dy;
    }
    this.#changed();
  }

  /** Sees to it that at rest at least so many pixels of the rectangle are in view. */
  keep(rect: Rect, pixels: number): void {
    const { scale, x, y } = this.#run?.goal ?? this;
    const left = rect.x * scale + x;
    const top = rect.y * scale + y;
    const dx = Math.min(this.width - pixels - left, Math.max(pixels - left - rect.width * scale, 0));
    const dy = Math.min(this.height - pixels - top, Math.max(pixels - top - rect.height * scale, 0));
    if (dx || dy) this.shift(dx, dy);
  }

  zoomAt(sx: number, sy: number, factor: number): void {
    const scale = Math.min(LARGEST, Math.max(this.least, this.scale * factor));
    const [wx, wy] = this.toWorld(sx, sy);
    this.#set(scale, sx - wx * scale, sy - wy * scale);
  }

  /** Shows all of the rectangle in the middle of what the edges leave free. */
  fit(rect: Rect, keep: Insets, { largest = 1.25, glide = false } = {}): void {
    const scale = this.fitScale(rect, keep, largest);
    this.#go(scale, ...this.#centred(rect, scale, keep), glide);
  }

  fitScale(rect: Rect, keep: Insets, largest: number): number {
    const across = (this.width - keep.left - keep.right) / Math.max(1, rect.width);
    const down = (this.height - keep.top - keep.bottom) / Math.max(1, rect.height);
    return Math.max(1e-6, Math.min(across, down, largest));
  }

  /** Shows the start of the rectangle: its top, or in a graph from left to right its left; a strip at the far side stays free. */
  start(rect: Rect, padding: number, scale: number, strip: number, across: boolean): void {
    const keep = { left: 0, top: 0, right: across ? 0 : strip, bottom: across ? strip : 0 };
    const [x, y] = this.#centred(rect, scale, keep);
    this.#set(scale, across ? padding - rect.x * scale : x, across ? y : padding - rect.y * scale);
  }

  /** Moves as little as needed to have the rectangle in view, and zooms out only where it would not fit. */
  reveal(rect: Rect, keep: Insets, glide: boolean): void {
    const now = this.#run?.goal ?? this;
    const room = { width: this.width - keep.left - keep.right, height: this.height - keep.top - keep.bottom };
    const fitting = Math.min(room.width / rect.width, room.height / rect.height);
    const scale = Math.max(1e-6, Math.min(Math.max(now.scale, READABLE), fitting));
    let { x, y } = now;
    if (scale !== now.scale) [x, y] = this.#centred(rect, scale, keep);
    const left = rect.x * scale + x;
    const right = left + rect.width * scale;
    const top = rect.y * scale + y;
    const bottom = top + rect.height * scale;
    if (right < 0 || left > this.width || bottom < 0 || top > this.height)
      [x, y] = this.#centred(rect, scale, keep);
    else {
      if (left < keep.left) x += keep.left - left;
      else if (right > this.width - keep.right) x -= right - this.width + keep.right;
      if (top < keep.top) y += keep.top - top;
      else if (bottom > this.height - keep.bottom) y -= bottom - this.height + keep.bottom;
    }
    if (x !== now.x || y !== now.y || scale !== now.scale) this.#go(scale, x, y, glide);
  }

  centreOn(wx: number, wy: number, scale = this.scale): void {
    this.#set(scale, this.width / 2 - wx * scale, this.height / 2 - wy * scale);
  }

  stop(): void {
    cancelAnimationFrame(this.#glide);
    this.#run = null;
  }

  #centred(rect: Rect, scale: number, keep: Insets): [number, number] {
    return [
      (this.width + keep.left - keep.right) / 2 - (rect.x + rect.width / 2) * scale,
      (this.height + keep.top - keep.bottom) / 2 - (rect.y + rect.height / 2) * scale,
    ];
  }

  #go(scale: number, x: number, y: number, glide: boolean): void {
    if (!glide || calm() || ![scale, x, y].every(Number.isFinite)) {
      this.#set(scale, x, y);
      return;
    }
    this.stop();
    const from = { scale: this.scale, x: this.x, y: this.y };
    const goal = { scale, x, y };
    this.#run = { from, goal };
    const began = performance.now();
    const step = (now: number): void => {
      // A frame's time is that of its start, which lies before the glide's when the page was busy.
      const t = Math.min(1, Math.max(0, (now - began) / GLIDE_MS));
      const eased = 1 - (1 - t) ** 3;
      this.scale = from.scale + (goal.scale - from.scale) * eased;
      this.x = from.x + (goal.x - from.x) * eased;
      this.y = from.y + (goal.y - from.y) * eased;
      this.#changed();
      if (t < 1) this.#glide = requestAnimationFrame(step);
      else this.#run = null;
    };
    this.#glide = requestAnimationFrame(step);
  }

  #set(scale: number, x: number, y: number): void {
    if (![scale, x, y].every(Number.isFinite)) return;
    this.stop();
    this.scale = scale;
    this.x = x;
    this.y = y;
    this.#changed();
  }
}
