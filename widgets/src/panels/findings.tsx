import { useState } from "preact/hooks";
import type { Finding, Side, Verdict } from "../core/contract";
import {
  brief,
  ending,
  NONE,
  originOf,
  percent,
  plural,
  quantity,
  shorten,
  withOrigin,
} from "../core/format";
import type { ExplorerState } from "../explorer/explorer_state";
import { Quoted } from "../ui/quoted";

const LONGEST = 400;
const LONGEST_NAME = 36;

const MOST_NAMES = 3;

export default function FindingsView({ explorer }: { explorer: ExplorerState }) {
  const { items: all, note } = explorer.findings.value ?? { items: [], note: "" };
  const rules = rulesOf(all);
  const [picked, setPicked] = useState("");
  const rule = rules.some(([name]) => name === picked) ? picked : "";
  const items = rule ? all.filter((item) => item.rule === rule) : all;
  const [selection, setWanted] = useState<ReadonlySet<string>>(new Set());
  const repairable = !explorer.saved && all.some((item) => item.fixable);
  const timed = all.some(({ microseconds }) => microseconds !== null);
  const fixable = items.filter((item) => item.fixable).map(({ id }) => id);
  const ticked = fixable.filter((id) => selection.has(id));
  const why = explorer.unbuildable() || explorer.busy();
  const repair = (ids: string[]): void => explorer.send({ type: "repair", findings: ids });
  const tick = (id: string, on: boolean): void => {
    const next = new Set(selection);
    if (on) next.add(id);
    else next.delete(id);
    setWanted(next);
  };
  if (!items.length) {
    return (
      <>
        <div class="rt-caption">
          <Pairs explorer={explorer} />
        </div>
        <p class="rt-quiet rt-pad">
          {explorer.study.isLoading("layer")
            ? explorer.study.loadingText("The findings")
            : note || "No findings."}
        </p>
      </>
    );
  }
  return (
    <>
      <div class="rt-caption rt-found">
        <span>{plural(all.length, "finding")}</span>
        <Pairs explorer={explorer} />
        <span class="rt-fill" />
        {rules.length > 1 && (
          <select
            class="rt-field"
            aria-label="Rule"
            data-control="rule"
            value={rule}
            onChange={(event) => setPicked(event.currentTarget.value)}
          >
            {[["", all.length] as const, ...rules].map(([name, count]) => (
              <option key={name} value={name}>
                {name || "All rules"} · {count}
              </option>
            ))}
          </select>
        )}
        {repairable && <Repairs ticked={ticked} fixable={fixable} why={why} onRepair={repair} />}
      </div>
      <ul
        class={`rt-findings ${timed ? "rt-timed" : ""} ${repairable ? "rt-ticks" : ""}`}
        aria-label="Findings"
      >
        {items.map((item) => (
          <Item
            key={item.id}
            explorer={explorer}
            item={item}
            timed={timed}
            repairable={repairable}
            ticked={selection.has(item.id)}
            onTick={(on) => tick(item.id, on)}
          />
        ))}
        {note && <li class="rt-quiet">{note}</li>}
      </ul>
    </>
  );
}

interface RepairsProps {
  ticked: string[];
  fixable: string[];
  why: string;
  onRepair(ids: string[]): void;
}

function Repairs({ ticked, fixable, why, onRepair }: RepairsProps) {
  return (
    <>
      <button
        type="button"
        class="rt-field"
        data-control="repair"
        disabled={!ticked.length || why !== ""}
        title={why || (ticked.length ? "" : "Select the fixes to apply")}
        onClick={() => onRepair(ticked)}
      >
        {ticked.length ? `Apply ${ticked.length === 1 ? "1 fix" : `${ticked.length} fixes`}` : "Apply fixes"}
      </button>
      <button
        type="button"
        class="rt-field"
        data-control="repair-all"
        disabled={!fixable.length || why !== ""}
        title={why || (fixable.length ? "" : "None of these can be fixed automatically")}
        onClick={() => onRepair(fixable)}
      >
        Apply all
      </button>
    </>
  );
}

const VERDICTS: Record<Verdict, [words: string, why: string]> = {
  absorbed: ["absorbed", "A layer that computes takes them in"],
  "round trip": ["round trip", "Quantized and dequantized inside one layer: no int8 comes of it"],
  "own layer": ["own layer", "A layer does nothing but quantize or dequantize"],
  folded: ["folded", "A weight that was computed at build time"],
  unknown: ["unknown", "The compiler named no layer"],
};

function Pairs({ explorer }: { explorer: ExplorerState }) {
  const pairs = explorer.study.engine.value?.quantized ?? [];
  if (!pairs.length) return null;
  const kinds = Object.entries(VERDICTS).flatMap(([verdict, [words, why]]) => {
    const those = pairs.filter((pair) => pair.verdict === verdict);
    return those.length ? [{ verdict, words, why, those }] : [];
  });
  return (
    <div class="rt-pairs" data-control="pairs">
      <span>Q/DQ pairs in this engine:</span>
      {kinds.map(({ verdict, words, why, those }) => (
        <button
          type="button"
          class="rt-link"
          key={verdict}
          data-verdict={verdict}
          title={`${why}. Select ${plural(those.length, "pair")}.`}
          onClick={() =>
            explorer.study.reveal(
              "node",
              those.flatMap(({ nodes }) => nodes),
            )
          }
        >
          {those.length} {words}
        </button>
      ))}
    </div>
  );
}

interface ItemProps {
  explorer: ExplorerState;
  item: Finding;
  timed: boolean;
  repairable: boolean;
  ticked: boolean;
  onTick(on: boolean): void;
}

function Item({ explorer, item, timed, repairable, ticked, onTick }: ItemProps) {
  const { id, rule, title, nodes, layers, cost, fix, evidence, fixable } = item;
  return (
    <li data-finding={id} data-rule={rule}>
      {repairable && (
        <input
          type="checkbox"
          aria-label={`Fix: ${title}`}
          checked={ticked && fixable}
          disabled={!fixable}
          title={fixable ? "" : "This must be changed by hand"}
          onChange={(event) => onTick(event.currentTarget.checked)}
        />
      )}
      {timed && <Cost explorer={explorer} item={item} />}
      <div>
        <b>
          <Quoted explorer={explorer} text={title} />
        </b>{" "}
        <p class="rt-refs">
          <Refs explorer={explorer} side="node" ids={nodes} title={title} />
          <Refs explorer={explorer} side="layer" ids={layers} title={title} />
        </p>
      </div>
      <div>
        <p>
          <Quoted explorer={explorer} text={cost} />
        </p>
        <p>
          <span class="rt-quiet">{fixable ? "Fix:" : "By hand:"}</span>{" "}
          <Quoted explorer={explorer} text={fix} />
        </p>
        <small>
          <Quoted explorer={explorer} text={evidence} />
        </small>
      </div>
    </li>
  );
}

/** What the layers at stake take, and how much of the whole that is. */
function Cost({ explorer, item: { microseconds } }: { explorer: ExplorerState; item: Finding }) {
  const summary = explorer.summary.value;
  if (microseconds === null || !summary) return <p class="rt-cost rt-quiet">{NONE}</p>;
  const whole = summary.summed ?? summary.total;
  return (
    <p
      class="rt-cost"
      title={`${summary.source}\nThe time of the layers concerned${whole ? ", and its share of all layers" : ""}`}
    >
      <b>{withOrigin(originOf(summary.source), quantity(microseconds / 1e3, "ms"))}</b>
      {whole !== null && <small>{percent(microseconds / 1e3 / whole)}</small>}
    </p>
  );
}

interface RefsProps {
  explorer: ExplorerState;
  side: Side;
  ids: readonly string[];
  /** What is named in it is not named once more. */
  title: string;
}

/** The boxes that a finding is about: each by its name where they are few, and all of them. */
function Refs({ explorer, side, ids, title }: RefsProps) {
  const { study } = explorer;
  const existing = ids.filter((id) => study.box(side, id));
  const named = existing.length > MOST_NAMES ? [] : existing.filter((id) => !title.includes(`"${id}"`));
  return (
    <>
      {named.map((id) => (
        <button
          type="button"
          class="rt-link"
          key={id}
          data-ref={id}
          title={`Select the ${side}: ${shorten(id, LONGEST)}`}
          onClick={() => explorer.jump(side, id)}
        >
          {ending(brief(study.box(side, id)!.title), LONGEST_NAME)}
        </button>
      ))}
      {existing.length > 1 && (
        <button
          type="button"
          class="rt-link"
          data-control={`${side}s`}
          onClick={() => study.reveal(side, existing)}
        >
          select {existing.length} {side}s
        </button>
      )}
    </>
  );
}

export function rulesOf(items: readonly Finding[]): [rule: string, count: number][] {
  const counts = new Map<string, number>();
  for (const { rule } of items) counts.set(rule, (counts.get(rule) ?? 0) + 1);
  return [...counts];
}
