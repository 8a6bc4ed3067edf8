/** Longest text that is ever measured; the rest of a longer name cannot be visible anyway. */
const LIMIT = 160;

/** Measures and shortens text for one typeface, each distinct text once. */
export class Type {
  readonly family: string;
  readonly #context: CanvasRenderingContext2D;
  readonly #widths = new Map<string, number>();

  constructor(family: string) {
    this.family = family;
    this.#context = document.createElement("canvas").getContext("2d")!;
  }

  font(size: number, weight = 400, italic = false): string {
    return `${italic ? "italic " : ""}${weight} ${size}px ${this.family}`;
  }

  width(text: string, font: string): number {
    const key = `${font}\n${text}`;
    let width = this.#widths.get(key);
    if (width === undefined) {
      this.#context.font = font;
      width = this.#context.measureText(text).width;
      this.#widths.set(key, width);
    }
    return width;
  }

  /** The text, or as many of its first characters as fit followed by an ellipsis. */
  fit(text: string, font: string, width: number): string {
    const clean = text.slice(0, LIMIT).replace(/\s+/g, " ");
    if (text.length <= LIMIT && this.width(clean, font) <= width) return clean;
    let low = 0;
    let high = clean.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.width(`${clean.slice(0, middle)}…`, font) <= width) low = middle;
      else high = middle - 1;
    }
    return `${clean.slice(0, low)}…`;
  }
}
