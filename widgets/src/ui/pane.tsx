import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Side } from "../contract";
import type { ExplorerState } from "../explorerstate";
import { find } from "../find";
import { plural } from "../format";
import { onKeys } from "../keys";
import { colourField } from "../overlay";
import type { PaneSet } from "../paneset";
import { noun } from "../spoken";
import { Canvas, NAMES } from "./canvas";
import { unfold } from "./folding";
import { Close, Down, Filter, Fit, Minus, Plus, Search, Up } from "./icons";
import { LegendView } from "./legend";
import { MoreMenu } from "./menu";
import { MorphBar } from "./morphbar";
import { paneMenu } from "./panemenu";
import { Select } from "./select";
import { Tool } from "./tool";
import { countOf } from "./tracing";

interface Props {
  paneSet: PaneSet;
  explorer?: ExplorerState | undefined;
  side: Side;
  /** What concerns this pane and the one above it. */
  hub?: ComponentChildren;
  /** Shown instead of a graph that does not exist yet. */
  empty: ComponentChildren;
  /** The numbers belong to a choice that is no longer the chosen one. */
  stale?: boolean;
}

/** A graph with its header: what it is, colour by, search, zoom, more. */
export function Pane({ paneSet, explorer, side, hub, empty, stale }: Props) {
  const { study } = paneSet;
  const colours = paneSet.colours[side];
  const whole = study.whole(side);
  const graph = study.drawn(side)?.graph ?? null;
  const [searching, setSearching] = useState(false);
  const [filtering, setFiltering] = useState(false);
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(0);
  const pane = useRef<HTMLElement>(null);
  const input = useRef<HTMLInputElement>(null);
  const name = NAMES[side].replace("Engine", "engine").replace("Graph", "graph");

  const hits = useMemo(() => (searching && whole ? find(whole, query) : []), [whole, query, searching]);
  const place = ((at % hits.length) + hits.length) % hits.length || 0;
  const hit = hits[place] ?? "";
  useEffect(() => {
    paneSet.hits.value = { ...paneSet.hits.peek(), [side]: hits.length };
  }, [hits]);
  useEffect(() => {
    if (filtering && hits.length)
      study.focus.value = { side, ids: new Set(hits), words: `Hits of “${query.trim()}”`, alone: true };
    else if (filtering) study.focus.value = null;
  }, [filtering, hits]);
  // Whoever ends the filter elsewhere ends it here too.
  const focus = study.focus.value;
  useEffect(() => {
    if (filtering && hits.length && !focus) setFiltering(false);
  }, [focus]);

  const open = (): void => {
    setSearching(true);
    setAt(0);
    input.current?.select();
  };
  const close = (): void => {
    if (filtering) study.focus.value = null;
    setFiltering(false);
    setSearching(false);
    paneSet.focusPane(side);
  };
  const move = (by: number): void => {
    if (!hits.length) return;
    const next = (place + by + hits.length) % hits.length;
    setAt(next);
    unfold(study, side, hits[next]!);
    study.select(side, hits[next]!, { reveal: true });
  };
  useLayoutEffect(() => {
    onKeys(pane.current, ({ key, shiftKey, target }) => {
      if (!searching) return false;
      if (key === "Escape") close();
      else if (target !== input.current) return false;
      else if (key === "Enter") move(study.selected(side)[0] !== hit ? 0 : shiftKey ? -1 : 1);
      else if (key === "ArrowDown") move(1);
      else if (key === "ArrowUp") move(-1);
      else return false;
      return true;
    });
  });

  // At once, so that what is typed after the slash arrives here.
  useLayoutEffect(() => {
    if (searching) input.current?.select();
  }, [searching]);

  const [title, about] = told(paneSet, side);
  const stage = () => paneSet.stages[side];
  const modes = colours.modes.value.map((mode) => ({
    ...mode,
    reason: "",
  }));

  return (
    <section class={`rt-pane ${stale ? "rt-stale" : ""}`} aria-label={name} ref={pane}>
      <header>
        {searching ? (
          <search class="rt-search">
            <Search />
            <input
              ref={input}
              type="search"
              aria-label={`Search the ${name}`}
              title="All of these words must stand in a name, an operator, a tensor, a shape or a type"
              placeholder="name, operator, tensor, shape, type"
              value={query}
              onInput={(event) => {
                setQuery(event.currentTarget.value);
                setAt(0);
              }}
            />
            <output aria-live="polite">
              {query.trim() ? (hits.length ? `${place + 1} of ${hits.length}` : "none") : ""}
            </output>
            <Tool
              label="Previous hit (N)"
              told="Selects the hit before, and brings it into view."
              onClick={() => move(-1)}
              icon={<Up />}
            />
            <Tool
              label="Next hit (n)"
              told="Selects the next hit, and brings it into view."
              onClick={() => move(1)}
              icon={<Down />}
            />
            <Tool
              label="Show only the hits"
              told="Leaves what was found, and the wires between."
              control={`filter-${side}`}
              pressed={filtering}
              disabled={!hits.length}
              onClick={() => {
                if (filtering) study.focus.value = null;
                setFiltering(!filtering);
              }}
              icon={<Filter />}
            />
            <Tool label="Close the search" told="All is drawn as before." onClick={close} icon={<Close />} />
          </search>
        ) : (
          <div class="rt-what">
            <b>{title}</b>
            <span title={about}>{about}</span>
          </div>
        )}
        {hub}
        {graph && (
          <Select
            label={`Colour of the ${name}`}
            told="What the colours tell: kinds, times, errors, bytes, precisions …"
            name={`colour-${side}`}
            prefix="colour:"
            align="right"
            options={modes}
            value={colours.mode.value}
            onPick={(id) => study.change({ [colourField(side)]: id })}
          />
        )}
        <div class="rt-tools">
          {graph && (
            <>
              {!searching && (
                <Tool
                  label={`Search the ${name} (/)`}
                  told="By name, operator, tensor, shape or type."
                  extra="rt-handy"
                  onClick={open}
                  icon={<Search />}
                />
              )}
              <Tool
                label="Zoom out (−)"
                told="Shows more of the graph, smaller; as Ctrl and the wheel do."
                extra="rt-zoom"
                onClick={() => stage()?.zoom(0.8)}
                icon={<Minus />}
              />
              <Tool
                label="Zoom in (+)"
                told="Shows less of the graph, larger; as Ctrl and the wheel do."
                extra="rt-zoom"
                onClick={() => stage()?.zoom(1.25)}
                icon={<Plus />}
              />
              <Tool
                label="Fit the graph into the pane (f)"
                told="Shows all of the graph at once."
                extra="rt-handy"
                onClick={() => stage()?.fit()}
                icon={<Fit />}
              />
            </>
          )}
          <MoreMenu
            label={`More for the ${name}`}
            told="Groups, directions, panes, pictures to save, and questions about the selection."
            name={`more-${side}`}
            items={() => paneMenu(paneSet, explorer, side, open)}
          />
          {side === "other" && (
            <Tool
              label="Close the third pane"
              told="The variant stays among those above."
              control="close-other"
              onClick={() => paneSet.closeOther(explorer)}
              icon={<Close />}
            />
          )}
        </div>
      </header>
      <Strip paneSet={paneSet} side={side} />
      {side === "node" && paneSet.morphing.value && <MorphBar paneSet={paneSet} />}
      <div class="rt-body">
        <Canvas paneSet={paneSet} side={side} hits={hits} hit={hit} onSearch={open} onHit={move} />
        {!graph ? (
          <div class="rt-empty">{side === "layer" && study.preparing.value ? <Preparing /> : empty}</div>
        ) : whole?.boxes.length ? (
          <LegendView paneSet={paneSet} side={side} />
        ) : (
          <div class="rt-empty">
            {side === "node"
              ? "This model has no nodes: its graph is empty."
              : "This engine reports no layers."}
          </div>
        )}
      </div>
    </section>
  );
}

/** The engine's pane while the kernel works out what there is to see. */
const Preparing = () => (
  <div class="rt-start" role="status">
    <p>Preparing the engine’s view…</p>
  </div>
);

/** What stands out and why, with the way back. */
function Strip({ paneSet, side }: { paneSet: PaneSet; side: Side }) {
  const { study } = paneSet;
  const focus = study.focus.value;
  const hint = paneSet.hint.value;
  const whole = study.whole(side);
  if (hint?.side === side)
    return (
      <div class="rt-strip" role="status">
        <span>{hint.words}</span>
      </div>
    );
  if (focus?.side !== side || !whole) return null;
  const { alone, words, ids } = focus;
  return (
    <div class="rt-strip" role="status" data-control={`strip-${side}`}>
      <span title={words}>
        {alone
          ? `Showing ${countOf(whole, ids)} of ${countOf(
              whole,
              whole.boxes.map(({ id }) => id),
            )}`
          : words}
      </span>
      {!alone && (
        <button
          type="button"
          class="rt-link"
          data-control="only"
          onClick={() => {
            study.focus.value = { ...focus, alone: true };
          }}
        >
          show only these
        </button>
      )}
      <button
        type="button"
        class="rt-link"
        data-control="all"
        onClick={() => {
          study.focus.value = null;
          paneSet.focusPane(side);
        }}
      >
        {alone ? "show all" : "clear"}
      </button>
    </div>
  );
}

/** What a pane shows, in two parts. Beside a third pane the variant tells one engine from the other. */
function told({ study, sides }: PaneSet, side: Side): [string, string] {
  const graph = study.whole(side);
  if (!graph) return [NAMES[side], side === "other" ? study.called(study.view.value.compared) : ""];
  const variant =
    side !== "node" && sides.value.includes("other") ? study.called(study.engineOf(side)?.variant) : "";
  const counted = /\d (node|layer|region)s?\b/.test(graph.subtitle);
  const kind = noun(side);
  const count = counted ? "" : plural(graph.boxes.filter((box) => box.kind === kind).length, kind);
  const about = [graph.subtitle, count, variant && graph.title].filter(Boolean).join(" · ");
  return [variant || graph.title || NAMES[side], about];
}
