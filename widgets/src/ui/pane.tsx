import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Bench } from "../bench";
import type { Side } from "../contract";
import { plural } from "../format";
import { onKeys } from "../keys";
import { activeMode, colourModes } from "../overlay";
import { Canvas } from "./canvas";
import { Close, Down, Fit, Minus, Plus, Search, Up } from "./icons";
import { LegendView } from "./legend";
import { Select } from "./select";

interface Props {
  bench: Bench;
  side: Side;
  /** Shown instead of a graph that does not exist yet. */
  empty: ComponentChildren;
  /** The numbers belong to a choice that is no longer the chosen one. */
  stale?: boolean;
}

/** A graph with its header: what it is, colour by, search, zoom. */
export function Pane({ bench, side, empty, stale }: Props) {
  const { study } = bench;
  const graph = study.graph(side);
  const [searching, setSearching] = useState(false);
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(0);
  const box = useRef<HTMLDivElement>(null);
  const input = useRef<HTMLInputElement>(null);

  const hits = useMemo(() => {
    const words = query.trim().toLowerCase();
    if (!searching || !words || !graph) return [];
    return graph.boxes
      .filter(({ id, title, op, chips }) =>
        [id, title, op, ...chips.map((chip) => chip.op)].some((text) => text.toLowerCase().includes(words)),
      )
      .map(({ id }) => id);
  }, [graph, query, searching]);
  const hit = hits.length ? hits[((at % hits.length) + hits.length) % hits.length]! : "";

  const open = (): void => {
    setSearching(true);
    setAt(0);
  };
  const close = (): void => {
    setSearching(false);
    bench.root.querySelector<HTMLElement>(`canvas[data-pane="${side}"]`)?.focus({ preventScroll: true });
  };
  const move = (by: number): void => {
    if (!hits.length) return;
    const next = (((at + by) % hits.length) + hits.length) % hits.length;
    setAt(next);
    study.select(side, hits[next]!, { reveal: true });
  };
  useLayoutEffect(() => {
    onKeys(box.current, (event) => {
      if (event.key === "Escape") close();
      else if (event.key === "Enter" && event.target === input.current) {
        if (study.selected(side)[0] === hit) move(event.shiftKey ? -1 : 1);
        else move(0);
      } else return false;
      return true;
    });
  });

  // At once, so that what is typed after the slash arrives here.
  useLayoutEffect(() => {
    if (searching) input.current?.select();
  }, [searching]);

  const stage = () => bench.stages[side];
  const zoom = (factor: number): void => {
    const camera = stage()?.camera;
    camera?.zoomAt(camera.width / 2, camera.height / 2, factor);
  };
  const engine = study.engine.value;
  const field = side === "node" ? "colour_nodes" : "colour";
  const modes = colourModes(side, engine).map((mode) => ({ ...mode, enabled: true, reason: "" }));
  const name = side === "node" ? "ONNX graph" : "engine graph";

  return (
    <section class={`rt-pane ${stale ? "rt-stale" : ""}`} aria-label={name}>
      <header>
        {searching ? (
          <div class="rt-search" ref={box}>
            <Search />
            <input
              ref={input}
              type="search"
              aria-label={`Search the ${name}`}
              placeholder="operator or name"
              value={query}
              onInput={(event) => {
                setQuery(event.currentTarget.value);
                setAt(0);
              }}
            />
            <output aria-live="polite">
              {query.trim() ? (hits.length ? `${hits.indexOf(hit) + 1} of ${hits.length}` : "none") : ""}
            </output>
            <Tool label="Previous hit" onClick={() => move(-1)} icon={<Up />} />
            <Tool label="Next hit" onClick={() => move(1)} icon={<Down />} />
            <Tool label="Close the search" onClick={close} icon={<Close />} />
          </div>
        ) : (
          <div class="rt-what">
            <b>{graph?.title ?? (side === "node" ? "ONNX" : "Engine")}</b>
            <span title={graph?.subtitle}>{graph ? described(graph.subtitle, side, graph.boxes) : ""}</span>
          </div>
        )}
        {graph && (
          <Select
            label={`Colour of the ${name}`}
            name={`colour-${side}`}
            prefix="colour:"
            align="right"
            options={modes}
            value={activeMode(side, study.view.value[field], engine)}
            onPick={(id) => study.change({ [field]: id })}
          />
        )}
        <div class="rt-tools" hidden={!graph}>
          {!searching && <Tool label={`Search the ${name} (/)`} onClick={open} icon={<Search />} />}
          <Tool label="Zoom out (−)" extra="rt-zoom" onClick={() => zoom(0.8)} icon={<Minus />} />
          <Tool label="Zoom in (+)" extra="rt-zoom" onClick={() => zoom(1.25)} icon={<Plus />} />
          <Tool label="Fit the graph into the pane (f)" onClick={() => stage()?.fit()} icon={<Fit />} />
        </div>
      </header>
      <div class="rt-body">
        <Canvas bench={bench} side={side} hits={hits} hit={hit} onSearch={open} />
        {graph ? <LegendView bench={bench} side={side} /> : <div class="rt-empty">{empty}</div>}
      </div>
    </section>
  );
}

/** The subtitle, with the number of boxes where it does not tell it. */
function described(subtitle: string, side: Side, boxes: readonly { kind: string }[]): string {
  if (new RegExp(`\\d (${side}|region)s?\\b`).test(subtitle)) return subtitle;
  const count = plural(boxes.filter(({ kind }) => kind === side).length, side);
  return subtitle ? `${subtitle} · ${count}` : count;
}

interface ToolProps {
  label: string;
  icon: ComponentChildren;
  extra?: string;
  onClick(): void;
}

export function Tool({ label, icon, extra = "", onClick }: ToolProps) {
  return (
    <button type="button" class={`rt-tool ${extra}`} aria-label={label} title={label} onClick={onClick}>
      {icon}
    </button>
  );
}
