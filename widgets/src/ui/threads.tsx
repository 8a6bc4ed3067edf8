import { effect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Bench } from "../bench";
import type { Pair, Side } from "../contract";
import type { Rect } from "../draw/camera";
import { around } from "../draw/scene";

/** So many pairs are looked at, and so many lines go to one layer. */
const MOST = 400;
const MANY = 5;
const SVG = "http://www.w3.org/2000/svg";

/** Lines from nodes to the layers that swallowed them, across both panes; dotted and named where inferred. */
export function Threads({ bench }: { bench: Bench }) {
  const svg = useRef<SVGSVGElement>(null);
  useEffect(() => {
    const draw = (): void => redraw(bench, svg.current!);
    bench.onFrame = draw;
    const stop = effect(() => {
      void bench.study.view.value;
      void bench.study.hover.value;
      void bench.study.links.value;
      draw();
    });
    return () => {
      stop();
      bench.onFrame = () => {};
    };
  }, []);
  return <svg class="rt-threads" ref={svg} aria-hidden="true" />;
}

function redraw(bench: Bench, svg: SVGSVGElement): void {
  const { node, layer: right } = bench.stages;
  const stacked = Boolean(node && right && right.corner.x < node.corner.x + node.camera.width);
  const byLayer = Map.groupBy(pairsToShow(bench), ({ layer }) => layer);
  const parts = [...byLayer].flatMap(([layer, pairs]) => {
    const to = placeOf(bench, "layer", [layer]);
    if (!to) return [];
    const inferred = pairs.some(({ evidence }) => evidence === "inferred");
    const nodes = pairs.map(({ node }) => node);
    // Many nodes of one layer lie in one frame, and one line from there says as much as many do.
    const starts = nodes.length > MANY ? [nodes] : nodes.map((node) => [node]);
    return starts.flatMap((ids, k) => {
      const from = placeOf(bench, "node", ids);
      return from
        ? thread(from, to, stacked, ids.length > 1 && inferred ? "inferred" : pairs[k]!.evidence)
        : [];
    });
  });
  if (parts.length || svg.childElementCount) svg.replaceChildren(...parts);
}

/** The hovered box's pairs; without a hovered box those of the selection. */
function pairsToShow({ study }: Bench): Pair[] {
  const links = study.links.peek();
  const at = study.hover.peek();
  const of = (side: Side, id: string): readonly Pair[] =>
    side === "node" ? links.pairsOfNode(id) : links.pairsOfLayer(id);
  if (at) return of(at.side, at.id).slice(0, MOST);
  const { anchor, selection, layers } = study.view.peek();
  return (anchor === "node" ? selection : layers).flatMap((id) => of(anchor, id)).slice(0, MOST);
}

/** The visible part of boxes in the coordinates of the drawing, or null when their middle is out of sight. */
function placeOf({ stages }: Bench, side: Side, ids: string[]): Rect | null {
  const stage = stages[side];
  if (!stage?.scene) return null;
  const { index } = stage.scene;
  const world = around(
    stage.scene,
    ids.flatMap((id) => index.get(id) ?? []),
  );
  if (!world) return null;
  const place = stage.camera.toScreen(world);
  const { width, height } = stage.camera;
  const left = Math.max(0, place.x);
  const top = Math.max(0, place.y);
  const right = Math.min(width, place.x + place.width);
  const bottom = Math.min(height, place.y + place.height);
  const alone = ids.length === 1;
  const [mx, my] = [place.x + place.width / 2, place.y + place.height / 2];
  if (left >= right || top >= bottom) return null;
  if (alone && (mx < 0 || mx > width || my < 0 || my > height)) return null;
  return { x: stage.corner.x + left, y: stage.corner.y + top, width: right - left, height: bottom - top };
}

function thread(from: Rect, to: Rect, stacked: boolean, evidence: Pair["evidence"]): SVGElement[] {
  const [x0, y0] = stacked
    ? [from.x + from.width / 2, from.y + from.height]
    : [from.x + from.width, from.y + from.height / 2];
  const [x1, y1] = stacked ? [to.x + to.width / 2, to.y] : [to.x, to.y + to.height / 2];
  const bend = Math.max(24, Math.abs(stacked ? y1 - y0 : x1 - x0) / 2);
  const [dx, dy] = stacked ? [0, bend] : [bend, 0];
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", `M${x0} ${y0}C${x0 + dx} ${y0 + dy} ${x1 - dx} ${y1 - dy} ${x1} ${y1}`);
  path.setAttribute("class", evidence);
  if (evidence !== "inferred") return [path];
  const word = document.createElementNS(SVG, "text");
  word.setAttribute("x", String((x0 + x1) / 2));
  word.setAttribute("y", String((y0 + y1) / 2 - 5));
  word.textContent = "inferred";
  return [path, word];
}
