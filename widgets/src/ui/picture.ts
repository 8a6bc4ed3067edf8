import { escaped, paintOf, short } from "../draw/svg";
import type { Theme } from "../draw/theme";
import type { ExplorerState } from "../explorerstate";
import { GLYPH } from "../format";
import { declared, segmentLabel } from "../panels";
import { saveFile } from "./save";

/** What stands around a panel in its picture. */
interface Frame {
  title: string;
  /** Where its numbers are from, a line each. */
  sources: readonly string[];
  theme: Theme;
}

/** What only a page can use. */
const CONTROLS =
  ".rt-field, .rt-tool, .rt-segments, .rt-settings, .rt-spoken, input, select, style, script, [hidden], " +
  '[data-control="more-facts"], [data-control="use"][aria-label^="Use "]';
/** What an element of a drawing takes from the page's style. */
const DRAWN = [
  ..."fill fill-opacity stroke stroke-width stroke-opacity stroke-dasharray opacity paint-order".split(" "),
  ..."font-size font-family font-weight text-anchor visibility display".split(" "),
];
const [EDGE, LINE] = [14, 16];
/** How wide a panel is at least in its picture, and how far it grows for its tables, in pixels. */
const [COMFORT, WIDEST] = [1200, 2000];
/** Rows of a table that a picture has, and the height of one in pixels. */
const [ROWS, ROW] = [30, 25];
/** How long a picture waits for what is drawn anew, in milliseconds. */
const PATIENCE = 3000;
/** A panel beside the page, as large as what it tells: nothing scrolls, and what was one line may be several. */
const LAID = `[data-pictured] {
position: fixed; top: 0; left: -20000px; flex-direction: column;
> section { flex: none; border-left: 0; }
:is(${CONTROLS}) { display: none; }
:not(pre, button, button *, table, table *, svg, svg *, .rt-table, .rt-chart, .rt-chart *, .rt-cost, i) { overflow: visible; max-height: none; -webkit-line-clamp: none; white-space: normal; }
pre { overflow: visible; max-height: none; }
.rt-lead { flex-wrap: wrap; }
.rt-lead :is(h4, p) { display: block; flex: none; max-width: 100%; }
.rt-lead p { flex-basis: 100%; }
.rt-caption { flex-wrap: wrap; min-height: 26px; }
.rt-caption:not(:has(> :not(${CONTROLS}))) { display: none; }
.rt-caption > b:first-child { direction: ltr; }
.rt-facts-row { flex-basis: 100%; }
.rt-drawn { display: flex; flex-direction: column; height: auto; }
.rt-drawn > section { flex: none; width: 100%; height: auto; border-left: 0; }
.rt-chart { flex: 1 1 360px; height: clamp(340px, var(--rt-height, 0px), 1600px); min-height: 0; }
section > .rt-chart:not(.rt-figures > *) { flex: none; }
.rt-table { flex: none; margin-bottom: 22px; }
.rt-table td { max-width: 420px; }
}`.replaceAll(";", "!important;");
/** Pixels of a PNG for one of the page. */
const SHARP = 2;

type Box = Pick<DOMRect, "left" | "top" | "right" | "bottom">;

/** Saves what a tab shows, with its sources. */
export async function savePanel(explorer: ExplorerState, type: "svg" | "png"): Promise<void> {
  const root = explorer.paneSet.root.querySelector<HTMLElement>(".rt-under")!;
  const shown = explorer.study.view.value.variant;
  const variant = explorer.chips.value.find(({ id }) => id === shown)?.label ?? "";
  const { tab, segment } = explorer.page.value;
  const { label } = declared(tab);
  const part = segment && segmentLabel(segment) !== label ? segmentLabel(segment) : "";
  const title = [explorer.choice.value.model.split(/[\\/]/).at(-1), variant, label, part]
    .filter(Boolean)
    .join(" · ");
  const marks = Object.entries(GLYPH).map(([origin, sign]) => `${sign} ${origin}`);
  const sources = [
    ...explorer.status.value.map(
      ({ origin, text, warning }) => `${GLYPH[origin]} ${warning ? "⚠ " : ""}${text}`,
    ),
    `${marks.join(", ")}. rtlab`,
  ];
  const frame = { title, sources, theme: explorer.paneSet.theme.value };
  const svg = await laidOut(root, () => pictureOf(root, frame));
  const name = `${title.replace(/[^\w.-]+/g, "_")}.${type}`;
  try {
    saveFile(name, type === "svg" ? new Blob([svg], { type: "image/svg+xml" }) : await pixelsOf(svg));
  } catch (error) {
    const words = error instanceof Error ? error.message : String(error);
    explorer.paneSet.hint.value = { side: "node", words };
  }
}

/** Draws a part of the page while it has the room that it likes best, out of sight; then it is back in its place. */
async function laidOut<T>(root: HTMLElement, draw: () => T): Promise<T> {
  const scrolled = [...root.querySelectorAll("*")].flatMap((one) =>
    one.scrollTop || one.scrollLeft ? [[one, one.scrollTop, one.scrollLeft] as const] : [],
  );
  const tables = [...root.querySelectorAll<HTMLElement>(".rt-table")];
  const style = document.createElement("style");
  style.textContent = LAID;
  const width = Math.max(COMFORT, root.clientWidth);
  // Before all else: a table that is once as high as its rows forgets how far it was scrolled.
  for (const table of tables) {
    const head = table.querySelector("thead")?.offsetHeight ?? ROW;
    table.style.maxHeight = `${head + ROWS * ROW}px`;
    table.scrollLeft = 0;
  }
  root.append(style);
  root.dataset.pictured = "";
  root.style.width = `${width}px`;
  try {
    const wider = Math.max(1, ...tables.map((one) => one.scrollWidth / (one.clientWidth || one.scrollWidth)));
    root.style.width = `${Math.max(width, Math.min(WIDEST, Math.ceil(width * wider)))}px`;
    await settled(root);
    return draw();
  } finally {
    style.remove();
    delete root.dataset.pictured;
    root.style.removeProperty("width");
    for (const table of tables) table.style.removeProperty("max-height");
    for (const [one, top, left] of scrolled) one.scrollTo(left, top);
  }
}

/** Waits until the figures have the size of their places, and the tables their rows. */
async function settled(root: HTMLElement): Promise<void> {
  const began = performance.now();
  const fits = (plot: HTMLElement): boolean => {
    const drawn = plot.querySelector(".main-svg");
    const [wide, tall] = [plot.clientWidth, plot.clientHeight];
    if (!drawn || !wide || !tall) return true;
    return drawn.getAttribute("width") === `${wide}` && drawn.getAttribute("height") === `${tall}`;
  };
  for (let calm = 0; calm < 4 && performance.now() - began < PATIENCE; calm++) {
    // A page in the background has no frames.
    await new Promise((done) => setTimeout(done, 30));
    if (![...root.querySelectorAll<HTMLElement>(".rt-plot")].every(fits)) calm = -1;
  }
}

/** A part of the page as an SVG document: what of it is shown, as text, lines and the figures' own drawings. */
function pictureOf(root: HTMLElement, { title, sources, theme }: Frame): string {
  const place = root.getBoundingClientRect();
  const [width, above] = [place.width, EDGE + 2 * LINE];
  const body = shapes(root, place);
  const told = sources.flatMap((line) => broken(line, width - 2 * EDGE));
  const below = above + place.height + EDGE;
  const height = below + told.length * LINE + EDGE;
  const line = (text: string, y: number, look: string): string =>
    `<text x="${EDGE}" y="${y}" ${look}>${escaped(text)}</text>`;
  const muted = `font-size="11"${paintOf("fill", theme.muted)}`;
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${short(width)}" height="${short(height)}" ` +
    `viewBox="0 0 ${short(width)} ${short(height)}" font-family="${escaped(theme.font)}" role="img">` +
    `<title>${escaped(title)}</title><rect width="100%" height="100%"${paintOf("fill", theme.ground)}/>` +
    line(title, EDGE + LINE, `font-size="15" font-weight="600"${paintOf("fill", theme.ink)}`) +
    `<g transform="translate(${short(-place.left)} ${short(above - place.top)})">${body}</g>` +
    `<path d="M${EDGE} ${short(below)}H${short(width - EDGE)}"${paintOf("stroke", theme.line)}/>` +
    told.map((text, k) => line(text, below + (k + 1) * LINE, muted)).join("") +
    "</svg>"
  );
}

/** A picture's pixels. */
async function pixelsOf(svg: string): Promise<Blob> {
  const url = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = image.width * SHARP;
    canvas.height = image.height * SHARP;
    canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
    const blob = await new Promise<Blob | null>((done) => canvas.toBlob(done, "image/png"));
    if (!blob) throw new Error("The browser has no memory for a picture of this size. Save it as SVG.");
    return blob;
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** The element and what is in it, as far as it can be seen within `view`. */
function shapes(element: Element, view: Box): string {
  if (element.matches(CONTROLS)) return "";
  const style = getComputedStyle(element);
  if (style.display === "none" || style.visibility === "hidden") return "";
  const box = element.getBoundingClientRect();
  if (element instanceof SVGSVGElement) return seen(box, view) ? drawing(element, box) : "";
  if (element instanceof HTMLCanvasElement)
    return `<image ${at(box)} preserveAspectRatio="none" href="${element.toDataURL()}"/>`;
  let inner = style.overflow === "visible" ? view : meet(view, box);
  // What is scrolled below the head of its table cannot be seen.
  if (element.matches(".rt-table tbody"))
    inner = { ...view, top: Math.max(view.top, headOf(element.parentElement!)) };
  const parts = [seen(box, view) ? ground(meet(view, box), style) : ""];
  if (element.matches(".rt-table")) parts.push(counted(element, inner));
  for (const child of element.childNodes) {
    if (child instanceof Element) parts.push(shapes(child, inner));
    else if (child instanceof Text) parts.push(words(child, inner, style));
  }
  return parts.join("");
}

/** Where the head of a table ends, which stays on top of its rows. */
const headOf = (table: Element): number =>
  table.querySelector("thead th")?.getBoundingClientRect().bottom ?? table.getBoundingClientRect().top;

/** Below a table that is longer than its picture, which of its rows are there. */
function counted(table: Element, view: Box): string {
  const total = Number(table.querySelector("[aria-rowcount]")?.getAttribute("aria-rowcount"));
  const there = [...table.querySelectorAll("[aria-rowindex]")]
    .filter((row) => seen(row.getBoundingClientRect(), { ...view, top: headOf(table) }))
    .map((row) => Number(row.getAttribute("aria-rowindex")));
  if (!there.length || there.length >= total) return "";
  const [from, to] = [there[0]!, there.at(-1)!];
  const said = from === 1 ? `first ${to} of ${total} rows` : `rows ${from} to ${to} of ${total}`;
  const { color } = getComputedStyle(table.querySelector("th button") ?? table);
  return `<text x="${short(view.left + 8)}" y="${short(view.bottom + LINE)}" font-size="12"${paintOf("fill", color)}>${said}</text>`;
}

/** The ground of a box and the lines at its edges. */
function ground(box: Box, style: CSSStyleDeclaration): string {
  const { left, top, right, bottom } = box;
  const clear = / 0\)$|, 0\)$|^transparent$/;
  const shades = style.backgroundImage.match(/^linear-gradient\(90deg, (.*)\)$/)?.[1];
  if (shades) return ramp(box, shades.split(/,\s*(?![^(]*\))/));
  const parts = clear.test(style.backgroundColor)
    ? []
    : [
        `<rect ${at(box)} rx="${Number.parseFloat(style.borderTopLeftRadius) || 0}"${paintOf("fill", style.backgroundColor)}/>`,
      ];
  const edges = { Top: [left, top, right, top], Right: [right, top, right, bottom] } as const;
  const others = { Bottom: [left, bottom, right, bottom], Left: [left, top, left, bottom] } as const;
  for (const [side, [x, y, to, down]] of Object.entries({ ...edges, ...others })) {
    const width = Number.parseFloat(style.getPropertyValue(`border-${side.toLowerCase()}-width`));
    const colour = style.getPropertyValue(`border-${side.toLowerCase()}-color`);
    if (width && !clear.test(colour))
      parts.push(
        `<path d="M${short(x)} ${short(y)}L${short(to)} ${short(down)}" stroke-width="${width}"${paintOf("stroke", colour)}/>`,
      );
  }
  return parts.join("");
}

/** A bar whose colour goes from the left to the right. */
function ramp(box: Box, shades: readonly string[]): string {
  const name = `ramp-${short(box.left)}-${short(box.top)}`;
  const stops = shades.map(
    (shade, k) =>
      `<stop offset="${short(k / Math.max(1, shades.length - 1))}" stop-color="${escaped(shade)}"/>`,
  );
  return `<linearGradient id="${name}">${stops.join("")}</linearGradient><rect ${at(box)} rx="2" fill="url(#${name})"/>`;
}

/** A text line by line, each cut where its room ends. */
function words(node: Text, view: Box, style: CSSStyleDeclaration): string {
  const lines: { left: number; base: number; text: string }[] = [];
  const range = document.createRange();
  const size = Number.parseFloat(style.fontSize);
  let cut = false;
  for (const { 0: word, index } of node.data.matchAll(/\S+/g)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const box = range.getBoundingClientRect();
    const before = lines.at(-1);
    if (before && !cut && box.left >= view.right - 1 && before.base > box.top && before.base < box.bottom) {
      before.text += "…";
      cut = true;
    }
    if (!box.width || !seen(box, view) || cut) continue;
    let text = word;
    let left = box.left;
    if (left < view.left - 1) {
      // A name whose end tells it from others is cut at its beginning.
      text = `…${word.slice(Math.ceil((word.length * (view.left - left)) / box.width) + 1)}`;
      left = view.left;
    }
    if (box.right > view.right + 1) {
      // What is cut ends in an ellipsis, as on the page.
      text = `${text.slice(0, Math.max(0, Math.floor((word.length * (view.right - box.left)) / box.width) - 1))}…`;
      cut = true;
    }
    const last = lines.at(-1);
    const base = (box.top + box.bottom) / 2 + 0.35 * size;
    if (last && Math.abs(last.base - base) < size / 2) last.text += ` ${text}`;
    else lines.push({ left, base, text });
  }
  const look =
    `font-size="${short(size)}" font-weight="${style.fontWeight}" font-style="${style.fontStyle}"` +
    `${/mono/.test(style.fontFamily) ? ' font-family="monospace"' : ""}${paintOf("fill", style.color)}`;
  return lines
    .map(
      ({ left, base, text }) => `<text x="${short(left)}" y="${short(base)}" ${look}>${escaped(text)}</text>`,
    )
    .join("");
}

/** A drawing of the page with the looks that the page's style gives it. */
function drawing(source: SVGSVGElement, box: DOMRect): string {
  const copy = source.cloneNode(true) as SVGSVGElement;
  const [from, to] = [source.querySelectorAll("*"), copy.querySelectorAll("*")];
  from.forEach((part, k) => {
    const style = getComputedStyle(part);
    for (const name of DRAWN) to[k]!.setAttribute(name, style.getPropertyValue(name));
    to[k]!.removeAttribute("style");
  });
  for (const name of ["style", "class"]) copy.removeAttribute(name);
  const { width, height } = source.viewBox.baseVal ?? {};
  if (!width || !height) copy.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
  const own: Record<string, number> = { x: box.left, y: box.top, width: box.width, height: box.height };
  for (const [name, value] of Object.entries(own)) copy.setAttribute(name, short(value));
  const look = getComputedStyle(source);
  // Labels may stand beyond the edges of their drawing.
  for (const name of ["fill", "stroke", "stroke-width", "color", "overflow"])
    copy.setAttribute(name, look.getPropertyValue(name));
  return new XMLSerializer().serializeToString(copy);
}

const at = ({ left, top, right, bottom }: Box): string =>
  `x="${short(left)}" y="${short(top)}" width="${short(right - left)}" height="${short(bottom - top)}"`;

const meet = (a: Box, b: Box): Box => ({
  left: Math.max(a.left, b.left),
  top: Math.max(a.top, b.top),
  right: Math.min(a.right, b.right),
  bottom: Math.min(a.bottom, b.bottom),
});

/** Whether the middle of a line can be seen, or a box at all. */
const seen = (box: Box, view: Box): boolean => {
  const { left, top, right, bottom } = meet(box, view);
  return right - left > 0.5 && bottom - top > Math.min(4, (box.bottom - box.top) / 2);
};

/** A text in lines of at most so many pixels. */
function broken(text: string, width: number): string[] {
  const pen = document.createElement("canvas").getContext("2d")!;
  pen.font = "11px sans-serif";
  const lines = [""];
  for (const word of text.split(" ")) {
    const tried = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
    if (pen.measureText(tried).width <= width) lines[lines.length - 1] = tried;
    else lines.push(word);
  }
  return lines;
}
