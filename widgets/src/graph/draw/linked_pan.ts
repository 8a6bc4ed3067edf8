import type { Scene } from "./scene";

/**
 * Where a pane looks so that it shows the counterpart of what another pane shows. Along the main axis it is a map
 * through the pairs that never runs backwards; across it the picture moves as much as in the leading pane.
 */
export class LinkedPan {
  readonly #across: boolean;
  /** Knots in the order of the main axis: where in A, where in B, and how far B lies aside of A. */
  readonly #from: number[] = [];
  readonly #to: number[] = [];
  readonly #aside: number[] = [];

  /** `pairs` are positions in A and in B that belong together. */
  constructor(a: Scene, b: Scene, pairs: readonly (readonly [number, number])[]) {
    this.#across = a.across;
    const main = (scene: Scene, i: number): number => (scene.across ? scene.x[i]! : scene.y[i]!);
    const cross = (scene: Scene, i: number): number => (scene.across ? scene.y[i]! : scene.x[i]!);
    const knots = pairs
      .map(([i, j]) => ({ from: main(a, i), to: main(b, j), aside: cross(b, j) - cross(a, i) }))
      .sort((p, q) => p.from - q.from);
    // Each knot lies beyond the one before it in both graphs, so that the map never runs backwards.
    for (const { from, to, aside } of knots) {
      if (this.#from.length && (from <= this.#from.at(-1)! || to <= this.#to.at(-1)!)) continue;
      this.#from.push(from);
      this.#to.push(to);
      this.#aside.push(aside);
    }
  }

  /** The point of B that belongs to a point of A. */
  at(x: number, y: number): [number, number] {
    const [main, cross] = this.#across ? [x, y] : [y, x];
    const [to, aside] = this.#knot(main);
    return this.#across ? [to, cross + aside] : [cross + aside, to];
  }

  #knot(main: number): [number, number] {
    const from = this.#from;
    const last = from.length - 1;
    if (last < 0) return [main, 0];
    if (main <= from[0]!) return [this.#to[0]! + main - from[0]!, this.#aside[0]!];
    if (main >= from[last]!) return [this.#to[last]! + main - from[last]!, this.#aside[last]!];
    const low = from.findLastIndex((at) => at <= main);
    const high = low + 1;
    const part = (main - from[low]!) / (from[high]! - from[low]!);
    const between = (list: readonly number[]): number => list[low]! + part * (list[high]! - list[low]!);
    return [between(this.#to), between(this.#aside)];
  }
}
