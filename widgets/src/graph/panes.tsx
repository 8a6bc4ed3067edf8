import { type ComponentChildren, Fragment } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Side } from "../core/contract";
import type { ExplorerState } from "../explorer/explorer_state";
import { Divider } from "../ui/divider";
import { useKeys, useResize } from "../ui/hooks";
import { Beside, FoldLayers, Link, Stacked, Swap } from "../ui/icons";
import { tooNarrow } from "../ui/responsive";
import { Tool } from "../ui/tool";
import { LinkLines } from "./link_lines";
import { moveOthers } from "./pan_together";
import { Pane } from "./pane";
import type { PaneSet } from "./paneset";

const LEAST = 0.12;
const START: Record<Side, number> = { node: 1, layer: 1.25, other: 1.25 };

interface Props {
  paneSet: PaneSet;
  explorer?: ExplorerState;
  empty: Record<Side, ComponentChildren>;
  stale?: boolean;
}

/** The graphs side by side or above each other, with movable lines between them. */
export function Panes({ paneSet, explorer, empty, stale = false }: Props) {
  const { study } = paneSet;
  const box = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState({ width: 1, height: 1 });
  const [weights, setWeights] = useState(START);
  const sides = paneSet.sides.value;
  const narrow = size.width > 1 && tooNarrow(size.width, size.height);
  const stacked = narrow || study.view.value.stacked;
  useResize(box, ({ clientWidth: width, clientHeight: height }) => setSize({ width, height }));
  useKeys(box, ({ key, target }) => {
    if (key === "Escape") return paneSet.leave();
    if (key !== "m" || (target instanceof HTMLInputElement && target.type !== "range")) return false;
    paneSet.toggleLayerFold();
    return true;
  });
  useLayoutEffect(() => {
    paneSet.stacked.value = stacked;
    paneSet.settle(box.current!);
  });
  const length = Math.max(1, stacked ? size.height : size.width);
  const total = sides.reduce((sum, side) => sum + weights[side], 0);
  const move = (a: Side, b: Side, by: number): void =>
    setWeights((old) => {
      const both = old[a] + old[b];
      const least = Math.min(LEAST * total, both / 3);
      const first = Math.min(both - least, Math.max(least, old[a] + (by / length) * total));
      return { ...old, [a]: first, [b]: both - first };
    });
  return (
    <div class={`rt-panes ${stacked ? "rt-stacked" : ""}`} ref={box}>
      {sides.map((side, k) => {
        const before = sides[k - 1];
        const both = before ? weights[before] + weights[side] : 1;
        const hub = before && (
          <Hub paneSet={paneSet} before={before} first={k === 1} stacked={stacked} narrow={narrow} />
        );
        return (
          <Fragment key={side}>
            {before && (
              <div class="rt-seam">
                <Divider
                  label="Move the line between the panes"
                  help="Gives room to one graph or the other; arrow keys move it too."
                  axis={stacked ? "y" : "x"}
                  value={(100 * weights[before]) / both}
                  least={(100 * LEAST * total) / both}
                  most={100 - (100 * LEAST * total) / both}
                  onMove={(by) => move(before, side, by)}
                />
                {!stacked && hub}
              </div>
            )}
            <div class="rt-slot" style={{ flexGrow: weights[side] }}>
              <Pane
                paneSet={paneSet}
                explorer={explorer}
                side={side}
                hub={stacked && hub}
                empty={empty[side]}
                stale={stale && side === "layer"}
              />
            </div>
          </Fragment>
        );
      })}
      <LinkLines paneSet={paneSet} />
    </div>
  );
}

interface HubProps {
  paneSet: PaneSet;
  before: Side;
  first: boolean;
  stacked: boolean;
  narrow: boolean;
}

/** What concerns two panes: on the line between them, or above each other in the header of the lower one. */
function Hub({ paneSet, before, first, stacked, narrow }: HubProps) {
  const { study } = paneSet;
  const { follow } = study.view.value;
  const other = stacked ? "Panes side by side" : "Panes above each other";
  return (
    <div class="rt-hub" role="toolbar" aria-label="Panes">
      <Tool
        label="Swap the panes (s)"
        help="Swaps the two graphs."
        control={first ? "swap" : "swap-2"}
        onClick={() => paneSet.swap(before)}
        icon={<Swap />}
      />
      {first && (
        <>
          <Tool
            label={narrow ? "Too narrow for panes side by side" : other}
            help="Which suits depends on the screen, and on how the graphs run."
            control="stack"
            disabled={narrow}
            onClick={() => study.change({ stacked: !stacked })}
            icon={stacked ? <Beside /> : <Stacked />}
          />
          <Tool
            label="Pan together"
            help="While one graph is moved, the other shows what belongs to it."
            control="follow"
            pressed={follow}
            onClick={() => {
              study.change({ follow: !follow });
              moveOthers(paneSet, before);
            }}
            icon={<Link />}
          />
          {paneSet.canFoldLayers() && (
            <Tool
              label="Fold nodes into layers (m)"
              help="The nodes of each layer become one box; once more, all nodes are drawn."
              control="fold-layers"
              pressed={study.view.value.grouping_nodes === "layers"}
              onClick={() => paneSet.toggleLayerFold()}
              icon={<FoldLayers />}
            />
          )}
        </>
      )}
    </div>
  );
}
