import { effect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Evidence, Side } from "../core/contract";
import type { Study } from "../core/state";
import type { Rect } from "./draw/camera";
import { around } from "./draw/scene";
import type { PaneSet } from "./paneset";

/** So many pairs are looked at, and so many lines go to one layer. */
const MOST = 400;
const MANY = 5;
/** Where along a line its word stands, and how far across the line is by then. */
const ALONG = 0.66;
const EASED = ALONG ** 2 * (3 - 2 * ALONG);
const SVG = "http://www.w3.org/2000/svg";

/** Lines between what belongs together in panes side by side; dotted and named where inferred. */
export function LinkLines({ paneSet }: { paneSet: PaneSet }) {
  const svg = useRef<SVGSVGElement>(null);
  useEffect(() => {
    const draw = (): void => redraw(paneSet, svg.current!);
    paneSet.onFrame = draw;
    const stop = effect(() => {
      const { view, hover, mapping, other } = paneSet.study;
      void [view.value, hover.value, mapping.value, other.value, paneSet.sides.value];
      draw();
    });
    return () => {
      stop();
      paneSet.onFrame = () => {};
    };
  }, []);
  return <svg class="rt-threads" ref={svg} aria-hidden="true" />;
}

interface Joined {
  from: string;
  to: string;
  evidence: Evidence | "";
}

function redraw(paneSet: PaneSet, svg: SVGSVGElement): void {
  const sides = paneSet.sides.peek();
  const parts = sides.slice(1).flatMap((right, k) => {
    const left = sides[k]!;
    // Lines gather where there is one for many: at the engine.
    const gather = left === "node" ? "to" : "from";
    const joined = joinedOf(paneSet.study, left, right);
    return [...Map.groupBy(joined, (pair) => pair[gather])].flatMap(([hub, pairs]) => {
      const end = placeOf(paneSet, gather === "to" ? right : left, [hub]);
      if (!end) return [];
      const inferred = pairs.some(({ evidence }) => evidence === "inferred");
      const ids = pairs.map((pair) => pair[gather === "to" ? "from" : "to"]);
      // Many nodes of one layer lie in one frame, and one line from there says as much as many do.
      const starts = ids.length > MANY ? [ids] : ids.map((id) => [id]);
      return starts.flatMap((some, i) => {
        const start = placeOf(paneSet, gather === "to" ? left : right, some);
        if (!start) return [];
        const [a, b] = gather === "to" ? [start, end] : [end, start];
        return thread(
          a,
          b,
          paneSet.stacked.peek(),
          some.length > 1 && inferred ? "inferred" : pairs[i]!.evidence,
        );
      });
    });
  });
  if (parts.length || svg.childElementCount) svg.replaceChildren(...parts);
}

/** The pairs of the hovered box; without a hovered box those of the selection. Groups stand for their members. */
function joinedOf(study: Study, left: Side, right: Side): Joined[] {
  const at = study.hover.peek();
  const side = at?.side ?? study.view.peek().anchor;
  const ids = at ? study.members(at.side, at.id) : study.selected(side, study.view.peek());
  const ends = new Set(study.across(side, right, ids.slice(0, MOST)));
  const places = [left, right].map((one) => study.visible(one));
  const visibleId = (which: 0 | 1, id: string): string => {
    const visible = places[which];
    return visible?.graph.boxes[visible.place.get(id) ?? -1]?.id ?? id;
  };
  const pairs = new Map<string, Joined>();
  for (const id of study.across(side, left, ids.slice(0, MOST)).slice(0, MOST)) {
    for (const other of study.across(left, right, [id])) {
      if (!ends.has(other)) continue;
      const engine = left === "node" ? right : left;
      const evidence =
        engine !== "node" && (left === "node" || right === "node")
          ? study
              .mappingOf(engine)
              .evidence(...(left === "node" ? ([id, other] as const) : ([other, id] as const)))
          : null;
      const pair = { from: visibleId(0, id), to: visibleId(1, other), evidence: evidence ?? ("" as const) };
      pairs.set(JSON.stringify([pair.from, pair.to]), pair);
    }
  }
  return [...pairs.values()];
}

/** The visible part of boxes in the coordinates of the drawing, or null when their middle is out of sight. */
function placeOf({ stages }: PaneSet, side: Side, ids: string[]): Rect | null {
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

/** The line from one box to another: between facing edges, with its word where it is inferred. */
export function thread(from: Rect, to: Rect, stacked: boolean, evidence: Joined["evidence"]): SVGElement[] {
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
  word.setAttribute("x", String(x0 + ALONG * (x1 - x0)));
  word.setAttribute("y", String(y0 + EASED * (y1 - y0) - 5));
  word.textContent = "inferred";
  return [path, word];
}
