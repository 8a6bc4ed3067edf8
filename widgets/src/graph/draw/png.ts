import type { Look } from "../overlay";
import { hatch, paint } from "./paint";
import type { Scene } from "./scene";
import { EXPORT_SCALE, exported } from "./svg";
import type { Type } from "./text";
import type { Theme } from "./theme";

/** What every browser still paints: Chromium and Firefox end at these sizes, beyond them the picture stays empty. */
const LONGEST = 16_384;
const MOST = 120e6;

const SCALE = 2;

/** The largest scale up to the wanted one at which a picture of that size can be drawn. */
export function pngScale(width: number, height: number, target: number): number {
  return Math.min(target, LONGEST / width, LONGEST / height, Math.sqrt(MOST / (width * height)));
}

/** The whole graph as a PNG, of two pixels for one of the graph where a browser can draw that. */
export async function pngOf(scene: Scene, look: Look, theme: Theme, type: Type): Promise<Blob> {
  const view = exported(scene);
  const scale = pngScale(view.width, view.height, SCALE);
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.floor(view.width * scale));
  canvas.height = Math.max(1, Math.floor(view.height * scale));
  const ctx = canvas.getContext("2d", { alpha: false })!;
  ctx.fillStyle = theme.ground;
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.setTransform(scale, 0, 0, scale, -view.x * scale, -view.y * scale);
  const brush = { pen: ctx, theme, type, hatch: hatch(ctx, theme), across: scene.across };
  paint(brush, scene, look, view, Math.min(scale, EXPORT_SCALE));
  const blob = await new Promise<Blob | null>((done) => canvas.toBlob(done, "image/png"));
  if (blob) return blob;
  throw new Error(
    "The browser has no memory for a PNG of this size. Save the graph as SVG, or fold groups first.",
  );
}
