import { effect, useComputed, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Bench } from "../bench";
import type { Graph, Side } from "../contract";
import { type Figure, figures } from "../draw/measure";
import type { Marks } from "../draw/paint";
import { layoutInput, makeScene, type Scene } from "../draw/scene";
import { Stage } from "../draw/stage";
import { onKeys } from "../keys";
import { activeMode, lookOf } from "../overlay";
import { paneKeys } from "./panekeys";
import { Tip, type Tipped } from "./tip";

interface Props {
  bench: Bench;
  side: Side;
  hits: readonly string[];
  hit: string;
  onSearch(): void;
}

/** One graph: lays it out, draws it, and turns pointer and keys into hover and selection. */
export function Canvas({ bench, side, hits, hit, onSearch }: Props) {
  const { study } = bench;
  const canvas = useRef<HTMLCanvasElement>(null);
  const map = useRef<HTMLCanvasElement>(null);
  const tip = useSignal<Tipped | null>(null);
  const found = useSignal<{ hits: readonly string[]; hit: string }>({ hits, hit });
  useEffect(() => {
    found.value = { hits, hit };
  }, [hits, hit]);
  const look = useComputed(() => {
    const graph = study.graph(side);
    const { colour, colour_nodes } = study.view.value;
    const mode = activeMode(side, side === "node" ? colour_nodes : colour, study.engine.value);
    return graph && lookOf(side, graph, mode, study.engine.value, study.links.value);
  });

  // Before the payloads can arrive, so that "ready" never precedes the first picture.
  useLayoutEffect(() => {
    const end = new AbortController();
    let scene: Scene | null = null;
    let awaited = 0;
    let wanted = false;
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
            tip.value = { id, x, y };
          }
        },
        click(box, add) {
          tip.value = null;
          const id = scene?.figures[box]?.box.id;
          if (id !== undefined) study.select(side, id, { add });
          else if (!add) study.clear();
        },
        drawn: settle,
        frame: () => bench.onFrame(),
        failed: (error) => study.fail(error),
      },
      end.signal,
    );
    bench.stages[side] = stage;

    let shown: Graph | null = null;
    let turn = 0;
    const lay = async (graph: Graph | null): Promise<void> => {
      const mine = ++turn;
      if (!graph) {
        scene = shown = null;
        stage.show(null, null, false);
        settle();
        return;
      }
      if (!awaited) {
        awaited = 1;
        study.pending.value = study.pending.peek() + 1;
      }
      const type = bench.type.value;
      const drawn = figures(graph, study.links.peek(), type);
      const keep = graph === shown;
      const output =
        keep && scene && sameSizes(scene.figures, drawn)
          ? null
          : await bench.layouts.layout(layoutInput(graph, drawn));
      if (mine !== turn || end.signal.aborted) return;
      scene = output ? makeScene(graph, drawn, output, type) : { ...scene!, figures: drawn };
      shown = graph;
      stage.show(scene, look.peek(), keep);
      stage.mark(marksOf(bench, side, scene, found.peek()));
      if (wanted || !keep) stage.reveal(positions(scene, study.selected(side)), false);
      wanted = false;
    };
    const stops = [
      effect(() => stage.dress(bench.theme.value, bench.type.value)),
      effect(() => {
        const graph = study.graph(side);
        if (side === "node") void study.links.value;
        lay(graph).catch((error: unknown) => {
          settle();
          study.fail(error);
        });
      }),
      effect(() => {
        if (look.value && scene && shown === study.graph(side)) stage.paintWith(look.value);
      }),
      effect(() => {
        void study.view.value;
        void study.hover.value;
        void study.links.value;
        void found.value;
        if (scene) stage.mark(marksOf(bench, side, scene, found.value));
      }),
      effect(() => {
        const { serial, sides } = study.revealed.value;
        if (!serial || !sides.includes(side)) return;
        if (scene && shown === study.graph(side)) stage.reveal(positions(scene, study.selected(side)), true);
        else wanted = true;
      }),
    ];
    onKeys(
      canvas.current,
      paneKeys(bench, side, () => scene, stage, onSearch),
    );
    return () => {
      for (const stop of stops) stop();
      end.abort();
      settle();
      delete bench.stages[side];
    };
  }, []);

  useEffect(() => {
    const at = hit && bench.stages[side]?.scene?.index.get(hit);
    if (typeof at === "number") bench.stages[side]?.reveal([at], true);
  }, [hit]);

  const graph = study.graph(side);
  const name = side === "node" ? "ONNX graph" : "Engine graph";
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
      <Tip bench={bench} side={side} at={tip} />
    </div>
  );
}

const sameSizes = (a: readonly Figure[], b: readonly Figure[]): boolean =>
  a.length === b.length && a.every((f, i) => f.width === b[i]!.width && f.height === b[i]!.height);

const positions = (scene: Scene, ids: Iterable<string>): number[] =>
  [...ids].flatMap((id) => scene.index.get(id) ?? []);

function marksOf(
  bench: Bench,
  side: Side,
  scene: Scene,
  found: { hits: readonly string[]; hit: string },
): Marks {
  const { study } = bench;
  const links = study.links.value;
  const view = study.view.value;
  const selected = study.selected(side);
  const hovered = study.hovered(side);
  const layers = new Set([...view.layers, ...study.hovered("layer")]);
  const inferred = [...selected, ...hovered].filter((id) => {
    const pairs = side === "node" ? links.pairsOfNode(id) : links.pairsOfLayer(id);
    const joined = pairs.filter((pair) => layers.has(pair.layer));
    return joined.length > 0 && joined.every((pair) => pair.evidence === "inferred");
  });
  const groups =
    side === "node" ? view.layers.map((layer) => links.nodesOf([layer])) : selected.map((id) => [id]);
  return {
    selected: new Set(positions(scene, selected)),
    hovered: new Set(positions(scene, hovered)),
    inferred: new Set(positions(scene, inferred)),
    hits: new Set(positions(scene, found.hits)),
    hit: scene.index.get(found.hit) ?? -1,
    groups: groups.map((ids) => positions(scene, ids)),
    wire: -1,
  };
}
