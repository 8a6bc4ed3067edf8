const LETTER = 6.9;
const SPACE = 34;
const MORE = 70;

/** Texts of one line: in full where all have room, else each to its first semicolon, as many as have room; one at least. */
export function textsThatFit(texts: readonly string[], width: number): string[] {
  const widthOf = (text: string): number => LETTER * text.length + SPACE;
  const sum = (list: readonly string[]): number => list.reduce((before, text) => before + widthOf(text), 0);
  if (sum(texts) <= width) return [...texts];
  const short = texts.map((text) => text.split("; ")[0]!);
  if (sum(short) <= width) return short;
  const most = short.findIndex((_, k) => sum(short.slice(0, k + 1)) > width - MORE);
  return short.slice(0, Math.max(1, most));
}

const [STACK, ALWAYS, LEAST] = [660, 480, 180];
const [LOW, HIGH] = [520, 1600];
/** Below this width rows wrap, and the panel of details lies below the graphs. */
const SLIM = 700;
const [TALL, TALLEST] = [860, 1080];
/** What a cell has around its output in a notebook, and what a page has that is none of the hosts below. */
const [CELL, AROUND] = [12, 130];

/** What scrolls a notebook, an output that was given a tab of its own, and a tab of a file's own. */
export const HOSTS = ".jp-WindowedPanel-outer, .jp-LinkedOutputView, .rtlab-document";

export const isSlim = (width: number): boolean => width < SLIM;

/** The default height of the Explorer: that of the element that scrolls it, or else of the window. */
export const heightThatFits = (window: number, host = 0, width = SLIM): number =>
  Math.min(
    HIGH,
    Math.max(
      width < ALWAYS ? TALLEST : isSlim(width) ? TALL : LOW,
      host ? Math.min(host, window) - CELL : window - AROUND,
    ),
  );

export const isLow = (tall: number): boolean => tall < 640;

/** From this height on open charts leave the graphs 45 % of it, beside three variants. */
const GRAPHS_FIRST = 900;
/** Of the height of the Explorer: below that, and from there on. */
const [LOW_SHARE, SHARE] = [0.37, 0.292];
/** So many pixels show choices, facts and a figure with short names of a panel at once. */
const WHOLE_PANEL = 282;

/** How high open charts and tables are: as they were dragged, a percentage, in every tab. */
export function bottomHeight(tall: number, dragged: string | undefined): number {
  const usual = tall < GRAPHS_FIRST ? Math.min(WHOLE_PANEL, LOW_SHARE * tall) : SHARE * tall;
  return Math.round((tall * Number(dragged)) / 100 || usual);
}

/** Whether a place of this width and height in pixels has no room for two panes side by side. */
export function tooNarrow(width: number, height: number): boolean {
  return width < ALWAYS || (width < STACK && height >= 2 * LEAST);
}
