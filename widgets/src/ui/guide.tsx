import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Rect } from "../draw/camera";
import { rectOf as boxRect } from "../draw/scene";
import type { ExplorerState } from "../explorerstate";
import type { Boxes, Spot } from "../guide";
import { merged, placeCard } from "../placecard";
import { Close } from "./icons";
import { Tool } from "./tool";

/** What is pointed at moves with the page, and comes with the kernel's answers: it is looked for so often. */
const LOOK_MS = 150;
const NEAREST: ScrollIntoViewOptions = { block: "nearest", inline: "nearest", behavior: "instant" };
/** Between a spot and the line around it. */
const AIR = 4;

/** Who was never here is asked once whether to be shown around. */
export function Offer({ explorer: { guide } }: { explorer: ExplorerState }) {
  if (!guide.offered.value) return null;
  return (
    <span class="rt-notice rt-offer" data-control="offer">
      <span>First time?</span>
      <button
        type="button"
        class="rt-link"
        title="Five stops that show how to read the Explorer; Escape leaves them at any time"
        onClick={() => guide.begin()}
      >
        A minute's tour
      </button>
      <Tool
        label="No tour"
        told="This line does not come again; the tour stays behind ? and the key T."
        control="no-tour"
        icon={<Close />}
        onClick={() => guide.decline()}
      />
    </span>
  );
}

/** The stop at which the tour is: lines around what it points at, and beside them the card that tells of it. */
export function GuideView({ explorer, root }: { explorer: ExplorerState; root: HTMLElement }) {
  const { guide } = explorer;
  const stop = guide.stop.value;
  const card = useRef<HTMLDivElement>(null);
  const next = useRef<HTMLButtonElement>(null);
  const [rings, setRings] = useState<readonly Rect[]>([]);
  const [place, setPlace] = useState({ x: 0, y: 0 });
  const name = stop?.name ?? "";
  useLayoutEffect(() => {
    if (!stop) return;
    const look = (): void => {
      const now = guide.stop.peek();
      if (!now || !card.current) return;
      const found = merged(now.spots.flatMap((spot) => rectOf(explorer, root, spot) ?? []));
      setRings((was) => (same(was, found) ? was : found));
      const { offsetWidth: width, offsetHeight: height } = card.current;
      const room = { width: root.clientWidth, height: root.clientHeight };
      const at = placeCard(found, { width, height }, room);
      setPlace((was) => (was.x === at.x && was.y === at.y ? was : at));
    };
    const [spot] = stop.spots;
    if (typeof spot === "string") root.querySelector(spot)?.scrollIntoView(NEAREST);
    look();
    const timer = setInterval(look, LOOK_MS);
    return () => clearInterval(timer);
  }, [name, stop?.words]);
  // In a window that is lower than the Explorer too the card is in view.
  useEffect(() => card.current?.scrollIntoView(NEAREST), [name, place]);
  // The keys of the tour work from its card on, wherever the focus was.
  useEffect(() => next.current?.focus({ preventScroll: true }), [name]);
  if (!stop) return null;
  const stops = guide.stops.value;
  const at = stops.indexOf(stop);
  const last = at === stops.length - 1;
  const { clientWidth, clientHeight } = root;
  const holes = rings.map(({ x, y, width, height }) => `M${x} ${y}h${width}v${height}h${-width}z`);
  return (
    <div class="rt-guide">
      <div
        class="rt-dim"
        style={{ clipPath: `path(evenodd, "M0 0H${clientWidth}V${clientHeight}H0z${holes.join("")}")` }}
      />
      {rings.map(({ x, y, width, height }, k) => (
        <div
          key={k}
          class="rt-ring"
          style={{ left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px` }}
        />
      ))}
      <div
        class="rt-card rt-stop"
        role="dialog"
        aria-labelledby="rt-stop-title"
        aria-describedby="rt-stop-words"
        data-control="guide"
        data-stop={stop.name}
        ref={card}
        style={{ transform: `translate(${place.x}px, ${place.y}px)` }}
      >
        <header>
          <h3 id="rt-stop-title">{stop.title}</h3>
          <Tool
            label="Leave the tour (Esc)"
            told="All is put back as it was before."
            control="leave"
            icon={<Close />}
            onClick={() => guide.leave()}
          />
        </header>
        <p id="rt-stop-words" aria-live="polite">
          {stop.words}
        </p>
        <footer>
          <span class="rt-quiet" data-control="count">
            {at + 1} of {stops.length}
          </span>
          <span class="rt-fill" />
          <button
            type="button"
            class="rt-field"
            data-control="back"
            disabled={at === 0}
            title="The stop before (←)"
            onClick={() => guide.go(at - 1)}
          >
            Back
          </button>
          <button
            type="button"
            class="rt-field rt-chief"
            data-control="next"
            title={last ? "All is put back as it was before" : "The next stop (→)"}
            ref={next}
            onClick={() => guide.go(at + 1)}
          >
            {last ? "Done" : "Next"}
          </button>
        </footer>
      </div>
    </div>
  );
}

const same = (a: readonly Rect[], b: readonly Rect[]): boolean => JSON.stringify(a) === JSON.stringify(b);

/** Where a spot is in the widget, as far as it can be seen; null where it cannot. */
function rectOf(explorer: ExplorerState, root: HTMLElement, spot: Spot): Rect | null {
  const home = root.getBoundingClientRect();
  const found =
    typeof spot === "string" ? root.querySelector(spot)?.getBoundingClientRect() : drawn(explorer, spot);
  if (!found?.width || !found.height) return null;
  const edge = (value: number, most: number): number => Math.round(Math.max(2, Math.min(value, most - 2)));
  const left = edge(found.left - home.left - AIR, root.clientWidth);
  const top = edge(found.top - home.top - AIR, root.clientHeight);
  const right = edge(found.right - home.left + AIR, root.clientWidth);
  const bottom = edge(found.bottom - home.top + AIR, root.clientHeight);
  return right > left && bottom > top ? { x: left, y: top, width: right - left, height: bottom - top } : null;
}

/** The part of a pane that its boxes take, cut where the pane ends. */
function drawn({ study, paneSet }: ExplorerState, { side, ids }: Boxes): DOMRect | null {
  const stage = paneSet.stages[side];
  const { scene } = stage ?? {};
  if (!stage || !scene) return null;
  const places = ids.flatMap((id) => {
    // A node in a folded group is drawn as the group.
    const at = scene.index.get(id) ?? scene.index.get(groupOf(study, side, id));
    return at === undefined ? [] : stage.camera.toScreen(boxRect(scene, at));
  });
  if (!places.length) return null;
  const pane = stage.origin;
  const left = Math.max(0, Math.min(...places.map(({ x }) => x)));
  const top = Math.max(0, Math.min(...places.map(({ y }) => y)));
  const right = Math.min(pane.width, Math.max(...places.map(({ x, width }) => x + width)));
  const bottom = Math.min(pane.height, Math.max(...places.map(({ y, height }) => y + height)));
  return right > left && bottom > top
    ? new DOMRect(pane.left + left, pane.top + top, right - left, bottom - top)
    : null;
}

function groupOf(study: ExplorerState["study"], side: Boxes["side"], id: string): string {
  const graph = study.drawn(side);
  return graph?.graph.boxes[graph.place.get(id) ?? -1]?.id ?? "";
}
