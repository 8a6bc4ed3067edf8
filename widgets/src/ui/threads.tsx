import { effect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Bench } from "../bench";
import type { Pair, Side } from "../contract";
import type { Rect } from "../draw/camera";

const MOST = 24;
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
  const pairs = pairsToShow(bench);
  const parts: SVGElement[] = [];
  if (pairs.length) {
    const home = svg.getBoundingClientRect();
    for (const pair of pairs) {
      const from = placeOf(bench, "node", pair.node, home);
      const to = placeOf(bench, "layer", pair.layer, home);
      if (from && to) parts.push(...thread(from, to, pair));
    }
  }
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

/** A box in the coordinates of the drawing, or null when its middle is out of sight. */
function placeOf(bench: Bench, side: Side, id: string, home: DOMRect): Rect | null {
  const stage = bench.stages[side];
  const box = stage?.scene?.index.get(id);
  const place = box === undefined ? null : stage!.place(box);
  if (!stage || !place) return null;
  const [mx, my] = [place.x + place.width / 2, place.y + place.height / 2];
  if (mx < 0 || my < 0 || mx > stage.camera.width || my > stage.camera.height) return null;
  const { left, top } = stage.origin;
  const right = Math.min(stage.camera.width, place.x + place.width);
  const start = Math.max(0, place.x);
  return { x: left - home.left + start, y: top - home.top + place.y, width: right - start, height: place.height };
}

function thread(from: Rect, to: Rect, { evidence }: Pair): SVGElement[] {
  const y0 = from.y + from.height / 2;
  const y1 = to.y + to.height / 2;
  // Side by side a thread leaves to the right; with stacked panes it may have to turn back.
  const x0 = from.x + from.width;
  const x1 = to.x;
  const bend = Math.max(40, Math.abs(x1 - x0) / 2);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", `M${x0} ${y0}C${x0 + bend} ${y0} ${x1 - bend} ${y1} ${x1} ${y1}`);
  path.setAttribute("class", evidence);
  if (evidence !== "inferred") return [path];
  const word = document.createElementNS(SVG, "text");
  word.setAttribute("x", String((x0 + x1) / 2));
  word.setAttribute("y", String((y0 + y1) / 2 - 5));
  word.textContent = "inferred";
  return [path, word];
}
