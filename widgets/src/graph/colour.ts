import type { Family } from "../core/contract";

export type Rgb = readonly [number, number, number];

export const FAMILY: Record<Family, string> = {
  convolution: "#2f66a8",
  matmul: "#4a51a6",
  activation: "#8f4a36",
  pool: "#3b7a38",
  shape: "#75654f",
  normalization: "#1d7774",
  quantize: "#7a4fa8",
  control: "#8a3a6b",
  other: "#545a64",
};

export const FAMILY_ON_DARK: Record<Family, string> = {
  convolution: "#7fb0ec",
  matmul: "#a3a9f2",
  activation: "#e09a84",
  pool: "#85c781",
  shape: "#c7b597",
  normalization: "#5fc4c0",
  quantize: "#c39df0",
  control: "#e48fc2",
  other: "#b9bfc9",
};

/** cividis at nine even steps: made to read alike with and without colour vision deficiency (Nuñez et al., 2018). */
const CIVIDIS: readonly Rgb[] = "#00224e #1a386f #434e6c #61656f #7d7c78 #9b9578 #bcaf6f #decb5d #fee838"
  .split(" ")
  .map(rgb);

export const CATEGORIES =
  "#3b73b9 #c9772b #3f8f5b #a9527a #7a6fc0 #8f7a2c #2d8c99 #b5534a #6b7d8f #5f8f2e".split(" ");

export function hex({ 0: r, 1: g, 2: b }: Rgb): string {
  return `#${[r, g, b].map((c) => Math.round(c).toString(16).padStart(2, "0")).join("")}`;
}

export function rgb(colour: string): Rgb {
  const n = Number.parseInt(colour.slice(1), 16);
  return [(n >> 16) & 255, (n >> 8) & 255, n & 255];
}

export function cividis(at: number): string {
  const place = Math.min(1, Math.max(0, at)) * (CIVIDIS.length - 1);
  const k = Math.min(CIVIDIS.length - 2, Math.floor(place));
  const [a, b] = [CIVIDIS[k]!, CIVIDIS[k + 1]!];
  const mix = (c: 0 | 1 | 2): number => a[c] + (b[c] - a[c]) * (place - k);
  return hex([mix(0), mix(1), mix(2)]);
}

function luminance(colour: string): number {
  const [r, g, b] = rgb(colour).map((c) => {
    const s = c / 255;
    return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
  }) as unknown as Rgb;
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Contrast ratio by WCAG 2.2, from 1 to 21. */
export function contrast(a: string, b: string): number {
  const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x) as [number, number];
  return (light + 0.05) / (dark + 0.05);
}

const INK = "#000000";
const PAPER = "#ffffff";

export function inkOn(ground: string): string {
  return contrast(PAPER, ground) >= contrast(INK, ground) ? PAPER : INK;
}

const LIT: Record<string, string> = {
  "#31688e": "#7aa9d0",
  "#d95f02": "#f0903f",
  "#2a8a57": "#4fb985",
  "#c0392b": "#ef7b70",
};

export const onGround = (colour: string): string => LIT[colour] ?? colour;
