/** Pixels of a letter, and between two texts. */
const LETTER = 6.9;
const SPACE = 34;

/** Texts of one line: in full where all have room, else each to its first semicolon. */
export function fitting(texts: readonly string[], width: number): string[] {
  const taken = (text: string): number => LETTER * text.length + SPACE;
  const sum = (list: readonly string[]): number => list.reduce((before, text) => before + taken(text), 0);
  if (sum(texts) <= width) return [...texts];
  return texts.map((text) => text.split("; ")[0]!);
}

/** What stands around a cell in JupyterLab, and the heights between which the Explorer fits into the rest. */
const AROUND = 130;
const [LOW, HIGH] = [560, 760];

/** How high the Explorer is in a window where nobody chose that. */
export const fittingHeight = (window: number): number => Math.min(HIGH, Math.max(LOW, window - AROUND));

/** Below the first width panes stand above each other where each then has this height; below the second anyway. */
const [STACK, ALWAYS, LEAST] = [660, 480, 180];

/** Whether a place of this width and height in pixels has no room for two panes side by side. */
export function tooNarrow(width: number, height: number): boolean {
  return width < ALWAYS || (width < STACK && height >= 2 * LEAST);
}
