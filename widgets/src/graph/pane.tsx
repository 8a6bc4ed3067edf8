import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Side } from "../core/contract";
import { plural } from "../core/format";
import type { ExplorerState } from "../explorer/explorer_state";
import { useKeys } from "../ui/hooks";
import { Close, Down, Filter, Fit, Minus, Plus, Search, Up } from "../ui/icons";
import { MoreMenu } from "../ui/menu";
import { Select } from "../ui/select";
import { Tool } from "../ui/tool";
import { noun } from "./aria_text";
import { Canvas, NAMES } from "./canvas";
import { unfold } from "./folding";
import { countOf } from "./highlight";
import { LegendView } from "./legend";
import { colourField } from "./overlay";
import { paneMenu } from "./pane_menu";
import type { PaneSet } from "./paneset";
import { find } from "./search";

interface Props {
  paneSet: PaneSet;
  explorer?: ExplorerState | undefined;
  side: Side;
  hub?: ComponentChildren;
  empty: ComponentChildren;
  stale?: boolean;
}

export function Pane({ paneSet, explorer, side, hub, empty, stale }: Props) {
  const { study } = paneSet;
  const colours = paneSet.colours[side];
  const whole = study.whole(side);
  const graph = study.visible(side)?.graph ?? null;
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
  useKeys(pane, ({ key, shiftKey, target }) => {
    if (!searching) return false;
    if (key === "Escape") close();
    else if (target !== input.current) return false;
    else if (key === "Enter") move(study.selected(side)[0] !== hit ? 0 : shiftKey ? -1 : 1);
    else if (key === "ArrowDown") move(1);
    else if (key === "ArrowUp") move(-1);
    else return false;
    return true;
  });

  useLayoutEffect(() => {
    if (searching) input.current?.select();
  }, [searching]);

  const [title, about] = paneTitle(paneSet, side);
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
              title="All of these words must be in a name, an operator, a tensor, a shape or a type"
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
              help="Selects the hit before, and brings it into view."
              onClick={() => move(-1)}
              icon={<Up />}
            />
            <Tool
              label="Next hit (n)"
              help="Selects the next hit, and brings it into view."
              onClick={() => move(1)}
              icon={<Down />}
            />
            <Tool
              label="Show only the hits"
              help="Shows only the hits and the wires between them."
              control={`filter-${side}`}
              pressed={filtering}
              disabled={!hits.length}
              onClick={() => {
                if (filtering) study.focus.value = null;
                setFiltering(!filtering);
              }}
              icon={<Filter />}
            />
            <Tool label="Close the search" help="All is drawn as before." onClick={close} icon={<Close />} />
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
            help="What the colours show: kinds, times, errors, bytes, precisions …"
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
                  help="By name, operator, tensor, shape or type."
                  extra="rt-handy"
                  onClick={open}
                  icon={<Search />}
                />
              )}
              <Tool
                label="Zoom out (−)"
                help="Shows more of the graph, smaller; as Ctrl and the wheel do."
                extra="rt-zoom"
                onClick={() => stage()?.zoom(0.8)}
                icon={<Minus />}
              />
              <Tool
                label="Zoom in (+)"
                help="Shows less of the graph, larger; as Ctrl and the wheel do."
                extra="rt-zoom"
                onClick={() => stage()?.zoom(1.25)}
                icon={<Plus />}
              />
              <Tool
                label="Fit the graph into the pane (f)"
                help="Shows all of the graph at once."
                extra="rt-handy"
                onClick={() => stage()?.fit()}
                icon={<Fit />}
              />
            </>
          )}
          <MoreMenu
            label={`More for the ${name}`}
            help="Groups, directions, panes, pictures to save, and questions about the selection."
            name={`more-${side}`}
            items={() => paneMenu(paneSet, explorer, side, open)}
          />
          {side === "other" && (
            <Tool
              label="Close the third pane"
              help="The variant stays among those above."
              control="close-other"
              onClick={() => paneSet.closeOther(explorer)}
              icon={<Close />}
            />
          )}
        </div>
      </header>
      <Strip paneSet={paneSet} side={side} />
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

const Preparing = () => (
  <div class="rt-start" role="status">
    <p>Preparing the engine’s view…</p>
  </div>
);

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
function paneTitle({ study, sides }: PaneSet, side: Side): [string, string] {
  const graph = study.whole(side);
  if (!graph) return [NAMES[side], side === "other" ? study.variantTitle(study.view.value.compared) : ""];
  const variant =
    side !== "node" && sides.value.includes("other") ? study.variantTitle(study.engineOf(side)?.variant) : "";
  const counted = /\d (node|layer|region)s?\b/.test(graph.subtitle);
  const kind = noun(side);
  const count = counted ? "" : plural(graph.boxes.filter((box) => box.kind === kind).length, kind);
  const about = [graph.subtitle, count, variant && graph.title].filter(Boolean).join(" · ");
  return [variant || graph.title || NAMES[side], about];
}
