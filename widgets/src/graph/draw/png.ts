import type { Look } from "../overlay";
import { hatch, type Marks, NO_MARKS, paint } from "./paint";
import type { Scene } from "./scene";
import { EXPORT_SCALE, exported } from "./svg";
import type { Type } from "./text";
import type { Theme } from "./theme";

/** What every browser still paints: Chromium and Firefox end at these sizes, beyond them the picture stays empty. */
const LONGEST = 16_384;
const MOST = 120e6;

export interface Png {
  blob: Blob;
  scale: number;
  /** Says in words when the picture is smaller than asked for; otherwise empty. */
  note: string;
}

/** The largest scale up to the wanted one at which a picture of that size can be drawn. */
export function pngScale(width: number, height: number, wanted: number): number {
  return Math.min(wanted, LONGEST / width, LONGEST / height, Math.sqrt(MOST / (width * height)));
}

export async function pngOf(
  scene: Scene,
  look: Look,
  theme: Theme,
  type: Type,
  marks: Marks = NO_MARKS,
  wanted = 2,
): Promise<Png> {
  const view = exported(scene);
  const scale = pngScale(view.width, view.height, wanted);
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.floor(view.width * scale));
  canvas.height = Math.max(1, Math.floor(view.height * scale));
  const ctx = canvas.getContext("2d", { alpha: false })!;
  ctx.fillStyle = theme.ground;
  ctx.fillRect(0, 0, canvas.width, canvas.height);
  ctx.setTransform(scale, 0, 0, scale, -view.x * scale, -view.y * scale);
  paint(
    { pen: ctx, theme, type, hatch: hatch(ctx, theme), across: scene.across },
    scene,
    look,
    view,
    Math.min(scale, EXPORT_SCALE),
    marks,
  );
  const blob = await new Promise<Blob | null>((done) => canvas.toBlob(done, "image/png"));
  if (!blob) {
    throw new Error(
      `Cannot make a PNG of ${canvas.width} by ${canvas.height} pixels: the browser has no memory for it. ` +
        "Save the graph as SVG, or fold groups first.",
    );
  }
  const note =
    scale < wanted
      ? `The picture has ${scale.toPrecision(2)} instead of ${wanted} pixels for one of the graph: a browser draws no larger one. SVG has no such limit.`
      : "";
  return { blob, scale, note };
}
