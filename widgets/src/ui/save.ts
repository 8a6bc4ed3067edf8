import type { Side } from "../core/contract";
import { pngOf } from "../graph/draw/png";
import { svgOf } from "../graph/draw/svg";
import type { PaneSet } from "../graph/paneset";

export function saveFile(name: string, content: Blob): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export async function savePicture(paneSet: PaneSet, side: Side, type: "svg" | "png"): Promise<void> {
  const { study, theme, type: font } = paneSet;
  const scene = paneSet.stages[side]?.scene;
  const colours = paneSet.colours[side].look.value;
  if (!scene || !colours) return;
  const name = `${(study.whole(side)?.id || side).replace(/[^\w.-]+/g, "_")}.${type}`;
  try {
    if (type === "svg") {
      const text = svgOf(scene, colours, theme.value, font.value);
      saveFile(name, new Blob([text], { type: "image/svg+xml" }));
    } else {
      saveFile(name, await pngOf(scene, colours, theme.value, font.value));
    }
  } catch (error) {
    paneSet.hint.value = { side, words: error instanceof Error ? error.message : String(error) };
  }
}
