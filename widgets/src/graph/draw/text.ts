/** Longest text that is ever measured; the rest of a longer name cannot be visible anyway. */
const LIMIT = 160;

/** Measures and shortens text for one typeface, each distinct text once. */
export class Type {
  readonly family: string;
  readonly #context: CanvasRenderingContext2D;
  readonly #fonts = new Map<number, string>();
  readonly #widths = new Map<string, Map<string, number>>();
  readonly #cuts = new Map<string, string>();
  #font = "";

  constructor(family: string) {
    this.family = family;
    this.#context = document.createElement("canvas").getContext("2d")!;
  }

  font(size: number, weight = 400, italic = false): string {
    const key = (size * 1000 + weight) * (italic ? -1 : 1);
    let font = this.#fonts.get(key);
    if (font === undefined) {
      font = `${italic ? "italic " : ""}${weight} ${size}px ${this.family}`;
      this.#fonts.set(key, font);
    }
    return font;
  }

  width(text: string, font: string): number {
    let widths = this.#widths.get(font);
    if (!widths) {
      widths = new Map();
      this.#widths.set(font, widths);
    }
    let width = widths.get(text);
    if (width === undefined) {
      if (this.#font !== font) this.#context.font = this.#font = font;
      width = this.#context.measureText(text).width;
      widths.set(text, width);
    }
    return width;
  }

  /** The text, or as many of its first characters as fit followed by an ellipsis. */
  fit(text: string, font: string, width: number): string {
    const start = text.slice(0, LIMIT);
    const key = `${font}\n${width}\n${text.length > LIMIT}\n${start}`;
    let cut = this.#cuts.get(key);
    if (cut === undefined) {
      cut = this.#fit(start, text.length > LIMIT, font, width);
      this.#cuts.set(key, cut);
    }
    return cut;
  }

  #fit(text: string, longer: boolean, font: string, width: number): string {
    const clean = text.replace(/\s+/g, " ");
    if (!longer && this.width(clean, font) <= width) return clean;
    const letters = [...clean];
    let low = 0;
    let high = letters.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.width(`${letters.slice(0, middle).join("")}…`, font) <= width) low = middle;
      else high = middle - 1;
    }
    return `${letters.slice(0, low).join("")}…`;
  }
}
