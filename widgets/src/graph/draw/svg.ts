import type { Look } from "../overlay";
import type { Rect } from "./camera";
import { type Marks, NO_MARKS, paint } from "./paint";
import type { Pen } from "./pen";
import { channels } from "./raster";
import type { Scene } from "./scene";
import type { Type } from "./text";
import type { Theme } from "./theme";

export const MARGIN = 24;
export const EXPORT_SCALE = 1;

/** The whole graph as an SVG document: real text, no reference to anything outside. */
export function svgOf(scene: Scene, look: Look, theme: Theme, type: Type, marks: Marks = NO_MARKS): string {
  const pen = new SvgPen();
  const view = exported(scene);
  paint(
    { pen, theme, type, hatch: "url(#hatch)", across: scene.across },
    scene,
    look,
    view,
    EXPORT_SCALE,
    marks,
  );
  const { x, y, width, height } = view;
  const box = [x, y, width, height].map(short).join(" ");
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${short(width)}" height="${short(height)}" viewBox="${box}" ` +
    `font-family="${escaped(type.family)}">` +
    '<defs><pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse">' +
    `<path d="M-1 9L9 -1M-5 5L5 -5M3 13L13 3"${paintOf("stroke", theme.hatch)} stroke-width="1.7"/></pattern></defs>` +
    `<rect x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}"` +
    `${paintOf("fill", theme.ground)}/>${pen.text}</svg>`
  );
}

export function exported({ bounds }: Scene): Rect {
  return {
    x: bounds.x - MARGIN,
    y: bounds.y - MARGIN,
    width: bounds.width + 2 * MARGIN + 40,
    height: bounds.height + 2 * MARGIN,
  };
}

export const short = (value: number): string => String(Math.round(value * 100) / 100);

const FORBIDDEN =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what XML forbids in text
  /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
const ENTITY: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** Text for XML; characters that XML cannot hold become the replacement character. */
export function escaped(text: string): string {
  return text.replace(FORBIDDEN, "\ufffd").replace(/[&<>"]/g, (letter) => ENTITY[letter]!);
}

/** A fill or stroke that every viewer understands: opacity stands in an attribute of its own. */
export function paintOf(name: "fill" | "stroke", colour: string): string {
  if (colour.startsWith("url(")) return ` ${name}="${colour}"`;
  const [r, g, b, a] = channels(colour);
  const text = `#${[r, g, b].map((c) => c.toString(16).padStart(2, "0")).join("")}`;
  return ` ${name}="${text}"${a < 1 ? ` ${name}-opacity="${short(a)}"` : ""}`;
}

const ANCHOR: Partial<Record<CanvasTextAlign, string>> = { center: "middle", right: "end" };
/** From the middle of a line down to its base line, in parts of the font's size. */
const BASE = 0.35;

/** Writes down as SVG what the painter draws. */
export class SvgPen implements Pen {
  text = "";
  fillStyle: Pen["fillStyle"] = "#000000";
  strokeStyle: Pen["strokeStyle"] = "#000000";
  globalAlpha = 1;
  lineWidth = 1;
  lineJoin: CanvasLineJoin = "miter";
  font = "";
  textAlign: CanvasTextAlign = "left";
  textBaseline: CanvasTextBaseline = "alphabetic";
  #path = "";
  #dash: readonly number[] = [];

  setLineDash(dash: number[]): void {
    this.#dash = dash;
  }

  beginPath(): void {
    this.#path = "";
  }

  moveTo(x: number, y: number): void {
    this.#path += `M${short(x)} ${short(y)}`;
  }

  lineTo(x: number, y: number): void {
    this.#path += `L${short(x)} ${short(y)}`;
  }

  bezierCurveTo(...at: [number, number, number, number, number, number]): void {
    this.#path += `C${at.map(short).join(" ")}`;
  }

  closePath(): void {
    this.#path += "Z";
  }

  arc(x: number, y: number, radius: number): void {
    const [left, right, r, middle] = [x - radius, x + radius, radius, y].map(short);
    this.#path += `M${right} ${middle}A${r} ${r} 0 1 1 ${left} ${middle}A${r} ${r} 0 1 1 ${right} ${middle}`;
  }

  roundRect(x: number, y: number, w: number, h: number, radii: Parameters<Pen["roundRect"]>[4] = 0): void {
    const list = (typeof radii === "number" ? [radii] : [...(radii as number[])]) as number[];
    const most = Math.min(w, h) / 2;
    const [a, b, c, d] = [0, 1, 2, 3].map((k) => Math.max(0, Math.min(most, list[k % list.length]!))) as [
      number,
      number,
      number,
      number,
    ];
    const corner = (r: number, toX: number, toY: number): string =>
      r ? `A${short(r)} ${short(r)} 0 0 1 ${short(toX)} ${short(toY)}` : "";
    this.#path +=
      `M${short(x + a)} ${short(y)}H${short(x + w - b)}${corner(b, x + w, y + b)}V${short(y + h - c)}` +
      `${corner(c, x + w - c, y + h)}H${short(x + d)}${corner(d, x, y + h - d)}V${short(y + a)}${corner(a, x + a, y)}Z`;
  }

  fill(): void {
    this.#shape(paintOf("fill", this.fillStyle as string));
  }

  stroke(): void {
    this.#shape(` fill="none"${this.#line()}`);
  }

  fillRect(x: number, y: number, w: number, h: number): void {
    const at = `x="${short(x)}" y="${short(y)}" width="${short(w)}" height="${short(h)}"`;
    this.text += `<rect ${at}${paintOf("fill", this.fillStyle as string)}${this.#faint()}/>`;
  }

  fillText(words: string, x: number, y: number): void {
    this.#words(words, x, y, paintOf("fill", this.fillStyle as string));
  }

  strokeText(words: string, x: number, y: number): void {
    this.#words(words, x, y, ` fill="none"${this.#line()} stroke-linejoin="round"`);
  }

  #shape(paint: string): void {
    if (this.#path) this.text += `<path d="${this.#path}"${paint}${this.#faint()}/>`;
  }

  #line(): string {
    const dash = this.#dash.length ? ` stroke-dasharray="${this.#dash.join(" ")}"` : "";
    return `${paintOf("stroke", this.strokeStyle as string)} stroke-width="${short(this.lineWidth)}"${dash}`;
  }

  #faint(): string {
    return this.globalAlpha < 1 ? ` opacity="${short(this.globalAlpha)}"` : "";
  }

  #words(words: string, x: number, y: number, paint: string): void {
    const [, italic, weight, size] = /^(italic )?(\d+) ([\d.]+)px/.exec(this.font) ?? [];
    const px = Number(size ?? 10);
    const base = this.textBaseline === "middle" ? y + BASE * px : y;
    const anchor = ANCHOR[this.textAlign];
    this.text +=
      `<text x="${short(x)}" y="${short(base)}" font-size="${px}"` +
      (weight && weight !== "400" ? ` font-weight="${weight}"` : "") +
      (italic ? ' font-style="italic"' : "") +
      (anchor ? ` text-anchor="${anchor}"` : "") +
      `${paint}${this.#faint()}>${escaped(words)}</text>`;
  }
}
