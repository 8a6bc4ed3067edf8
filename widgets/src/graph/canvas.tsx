import { computed, effect, type Signal, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Graph, Side } from "../core/contract";
import { onKeys } from "../core/keys";
import { boxName } from "./aria_text";
import { LayoutCache } from "./draw/layout_cache";
import type { Figure } from "./draw/measure";
import type { Marks } from "./draw/paint";
import { makeScene, type Scene } from "./draw/scene";
import { Stage } from "./draw/stage";
import { engineSide } from "./overlay";
import { moveOthers } from "./pan_together";
import { paneKeys } from "./pane_keys";
import type { PaneSet } from "./paneset";
import { Tip, type Tipped } from "./tooltip";
import type { VisibleGraph } from "./visible_graph";

interface Props {
  paneSet: PaneSet;
  side: Side;
  hits: readonly string[];
  hit: string;
  onSearch(): void;
  onHit(by: number): void;
}

/** One graph: lays it out, draws it, and turns pointer and keys into hover and selection. */
export function Canvas({ paneSet, side, hits, hit, onSearch, onHit }: Props) {
  const { study } = paneSet;
  const canvas = useRef<HTMLCanvasElement>(null);
  const map = useRef<HTMLCanvasElement>(null);
  const tip = useSignal<Tipped | null>(null);
  const search = useSignal<{ hits: readonly string[]; hit: string }>({ hits, hit });
  const visible = useSignal<readonly string[]>([]);
  const step = useRef(onHit);
  step.current = onHit;
  useEffect(() => {
    search.value = { hits, hit };
  }, [hits, hit]);
  const { look } = paneSet.colours[side];

  // Before the payloads can arrive, so that "ready" never precedes the first picture.
  useLayoutEffect(() => {
    const end = new AbortController();
    let scene: Scene | null = null;
    let awaited = 0;
    let revealPending = false;
    const settle = (): void => {
      study.pending.value = study.pending.peek() - awaited;
      awaited = 0;
    };
    const stage = new Stage(
      canvas.current!,
      map.current!,
      {
        hover(box, x, y) {
          const id = scene?.figures[box]?.box.id;
          const old = study.hover.peek();
          if (id === undefined) {
            tip.value = null;
            if (old?.side === side) study.hover.value = null;
          } else {
            if (old?.side !== side || old.id !== id) study.hover.value = { side, id };
            paneSet.reading.value = null;
            tip.value = { id, x, y };
          }
        },
        click(box, add) {
          tip.value = null;
          const id = scene?.figures[box]?.box.id;
          if (id !== undefined) study.select(side, id, { add });
          else if (!add) study.clear();
        },
        wire(wire, add) {
          tip.value = null;
          const { source, target } = scene!.wires[wire]!;
          const ends = [source, target].flatMap((at) => study.members(side, scene!.figures[at]!.box.id));
          study.reveal(side, [...new Set([...(add ? study.selected(side) : []), ...ends])]);
        },
        fold(box) {
          tip.value = null;
          const id = scene?.figures[box]?.box.id;
          if (id !== undefined) study.toggle(id);
        },
        moved: () => moveOthers(paneSet, side),
        drawn: settle,
        frame() {
          paneSet.onFrame();
          listen();
        },
        failed: (error) => study.fail(error),
      },
      end.signal,
    );
    paneSet.stages[side] = stage;

    // What a screen reader finds in the pane, once the picture rests.
    let rest = 0;
    const listen = (): void => {
      clearTimeout(rest);
      rest = window.setTimeout(() => {
        visible.value = scene ? inSight(scene, stage) : [];
      }, REST_MS);
    };

    const placing = new LayoutCache(paneSet.layouts);
    let laidOut: VisibleGraph | null = null;
    let manner = "";
    let folded = 0;
    let whole: Graph | null = null;
    let turn = 0;
    const lay = async (visible: VisibleGraph | null, sideways: boolean): Promise<void> => {
      const serial = ++turn;
      if (!visible) {
        scene = laidOut = whole = null;
        placing.forget();
        stage.show(null, null, false);
        settle();
        return;
      }
      if (!awaited) {
        awaited = 1;
        study.pending.value = study.pending.peek() + 1;
      }
      const type = paneSet.type.value;
      const placed = placing.of(visible, study.mappingOf(engineSide(side)), type, sideways);
      const figures = placed.figures;
      const alone = study.focus.peek()?.alone && study.focus.peek()?.side === side;
      const now = [sideways, alone, study.grouping(side)].join();
      // Folding in one pane draws the others anew, as they were.
      const graph = study.whole(side);
      const same = now === manner && graph === whole && laidOut !== null && alike(visible, laidOut);
      const output = same && scene && sameSizes(scene.figures, figures) ? null : await placed.output();
      if (serial !== turn || end.signal.aborted) return;
      const next = output ? makeScene(visible, figures, output, type, sideways) : { ...scene!, figures };
      // A group that opens or folds stays where it is on the screen; another graph is shown from its start.
      // All groups at once make another picture.
      const folds = study.view.peek().folds.length;
      const keep = same || (graph === whole && now === manner && Math.abs(folds - folded) <= 1);
      const anchor = keep && !same && scene ? anchorOf(scene, next, stage) : null;
      scene = next;
      laidOut = visible;
      manner = now;
      folded = folds;
      whole = graph;
      stage.show(scene, look.peek(), keep);
      const beside = side === "other" && !keep ? paneSet.stages.layer : undefined;
      // Two engines are compared at one scale.
      if (beside?.scene) stage.zoom(beside.camera.scale / stage.camera.scale, 0);
      if (anchor) {
        const place = stage.place(anchor.to)!;
        stage.camera.shift(anchor.x - place.x, anchor.y - place.y);
      }
      stage.mark(marksOf(paneSet, side, scene, search.peek(), clear.peek()));
      if (revealPending || !keep) stage.reveal(positions(scene, study.selected(side)), false);
      revealPending = false;
    };
    // Hovering changes the marks many times a second, and what is in focus may be half of the graph.
    const clear = computed(() => clearOf(paneSet, side));
    const current = (): boolean => scene !== null && laidOut === study.visible(side);
    const stops = [
      effect(() => stage.dress(paneSet.theme.value, paneSet.type.value)),
      effect(() => {
        const visible = study.visible(side);
        if (side === "node") void study.mapping.value;
        lay(visible, paneSet.across.value).catch((error: unknown) => {
          settle();
          study.fail(error);
        });
      }),
      effect(() => {
        if (look.value && current()) stage.paintWith(look.value);
      }),
      effect(() => {
        void study.view.value;
        void study.hover.value;
        void study.mapping.value;
        void search.value;
        if (current()) stage.mark(marksOf(paneSet, side, scene!, search.value, clear.value));
      }),
      effect(() => {
        const { serial, sides } = study.revealRequest.value;
        if (!serial || !sides.includes(side)) return;
        if (current()) stage.reveal(positions(scene!, study.selected(side)), true);
        else revealPending = true;
      }),
    ];
    onKeys(
      canvas.current,
      paneKeys(
        paneSet,
        side,
        () => scene,
        stage,
        onSearch,
        (by) => step.current(by),
      ),
    );
    return () => {
      for (const stop of stops) stop();
      clearTimeout(rest);
      end.abort();
      settle();
      delete paneSet.stages[side];
    };
  }, []);

  useEffect(() => {
    const at = hit && paneSet.stages[side]?.scene?.index.get(hit);
    if (typeof at === "number") paneSet.stages[side]?.reveal([at], true);
  }, [hit]);

  const graph = study.visible(side)?.graph ?? null;
  const name = NAMES[side];
  return (
    <div class="rt-canvas">
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        data-pane={side}
        aria-label={`${name}, ${graph?.boxes.length ?? 0} boxes. Arrow keys follow edges, Enter selects, question mark shows all keys.`}
      />
      <canvas ref={map} class="rt-map" hidden />
      <BoxesInView paneSet={paneSet} side={side} name={name} ids={visible} />
      <Tip paneSet={paneSet} side={side} at={tip} />
    </div>
  );
}

export const NAMES = {
  node: "ONNX graph",
  layer: "Engine graph",
  other: "Graph of the compared engine",
} as const;

const REST_MS = 300;
const MOST_SPOKEN = 60;

function BoxesInView({
  paneSet: { study },
  side,
  name,
  ids,
}: {
  paneSet: PaneSet;
  side: Side;
  name: string;
  ids: Signal<readonly string[]>;
}) {
  const selected = new Set(study.selected(side));
  return (
    <ul class="rt-spoken" aria-label={`${name}: boxes in view`} data-seen={side}>
      {ids.value.map((id) => {
        const box = study.box(side, id);
        return (
          box && (
            <li key={id}>
              <button
                type="button"
                tabIndex={-1}
                aria-pressed={selected.has(id)}
                onClick={() => study.select(side, id)}
              >
                {boxName(box)}
              </button>
            </li>
          )
        );
      })}
    </ul>
  );
}

function inSight(scene: Scene, stage: Stage): string[] {
  const { x, y, width, height } = stage.camera.view;
  const ids: string[] = [];
  for (let i = 0; i < scene.figures.length && ids.length < MOST_SPOKEN; i++) {
    const dx = Math.abs(scene.x[i]! - x - width / 2) - width / 2;
    const dy = Math.abs(scene.y[i]! - y - height / 2) - height / 2;
    if (dx < scene.width[i]! / 2 && dy < scene.height[i]! / 2) ids.push(scene.figures[i]!.box.id);
  }
  return ids;
}

const alike = (a: VisibleGraph, b: VisibleGraph): boolean =>
  a === b ||
  (a.graph.boxes.length === b.graph.boxes.length &&
    a.graph.edges.length === b.graph.edges.length &&
    a.frames.size === b.frames.size &&
    a.graph.boxes.every((box, i) => box.id === b.graph.boxes[i]!.id));

const sameSizes = (a: readonly Figure[], b: readonly Figure[]): boolean =>
  a.length === b.length && a.every((f, i) => f.width === b[i]!.width && f.height === b[i]!.height);

/** Which box of the next picture should stand where it stood: of those in both, the nearest to the pane's middle. */
function anchorOf(old: Scene, next: Scene, stage: Stage): { to: number; x: number; y: number } | null {
  const [cx, cy] = stage.camera.toWorld(stage.camera.width / 2, stage.camera.height / 2);
  const ids = new Set(next.figures.map(({ box }) => box.id));
  let best = -1;
  let least = Infinity;
  old.figures.forEach(({ box }, i) => {
    const distance = Math.hypot(old.x[i]! - cx, old.y[i]! - cy);
    if (distance < least && ids.has(box.id)) {
      least = distance;
      best = i;
    }
  });
  if (best < 0) return null;
  const place = stage.place(best)!;
  return { to: next.index.get(old.figures[best]!.box.id)!, x: place.x, y: place.y };
}

const positions = (scene: Scene, ids: Iterable<string>): number[] => [
  ...new Set([...ids].flatMap((id) => scene.index.get(id) ?? [])),
];

function marksOf(
  paneSet: PaneSet,
  side: Side,
  scene: Scene,
  search: { hits: readonly string[]; hit: string },
  clear: ReadonlySet<number> | null,
): Marks {
  const { study } = paneSet;
  const view = study.view.value;
  const links = study.mappingOf(engineSide(side));
  const selected = study.selected(side);
  const hovered = study.hovered(side);
  const partners =
    side === "node"
      ? [...view.layers, ...study.hovered("layer")]
      : [...view.selection, ...study.hovered("node")];
  const partner = new Set(partners);
  const inferred = [...selected, ...hovered].filter((id) => {
    const pairs = side === "node" ? links.pairsOfNode(id) : links.pairsOfLayer(id);
    const joined = pairs.filter((pair) => partner.has(side === "node" ? pair.layer : pair.node));
    return joined.length > 0 && joined.every((pair) => pair.evidence === "inferred");
  });
  const groups =
    side === "node" ? view.layers.map((layer) => links.homeOf(layer)) : selected.map((id) => [id]);
  return {
    selected: new Set(positions(scene, selected)),
    hovered: new Set(positions(scene, hovered)),
    inferred: new Set(positions(scene, inferred)),
    hits: new Set(positions(scene, search.hits)),
    hit: scene.index.get(search.hit) ?? -1,
    // Layers whose nodes lie in one folded group have one frame, not many on top of each other.
    groups: [...new Map(groups.map((ids) => positions(scene, ids)).map((at) => [at.join(), at])).values()],
    clear,
    wire: -1,
  };
}

/** The boxes that are not pale: those in focus, what stands for them on the other sides, and the frames around them. */
function clearOf({ study }: PaneSet, side: Side): ReadonlySet<number> | null {
  const focus = study.focus.value;
  const visible = study.visible(side);
  if (!focus || !visible || (focus.alone && focus.side === side)) return null;
  const clear = new Set<number>();
  for (const id of study.across(focus.side, side, [...focus.ids]))
    for (let at = visible.place.get(id) ?? -1; at >= 0 && !clear.has(at); at = visible.parent[at]!)
      clear.add(at);
  return clear;
}
