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
  const { items, note } = explorer.findings.value ?? { items: [], note: "" };
  const timed = items.some(({ microseconds }) => microseconds !== null);
  const fixable = items.filter((item) => item.fixable).map(({ id }) => id);
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
        <span>{plural(items.length, "finding")}</span>
        <Pairs explorer={explorer} />
        <span class="rt-fill" />
        <Repair explorer={explorer} name="repair-all" label="Apply all fixes" findings={fixable} />
      </div>
      <ul class={`rt-findings ${timed ? "rt-timed" : ""}`} aria-label="Findings">
        {items.map((item) => (
          <Item key={item.id} explorer={explorer} item={item} timed={timed} />
        ))}
        {note && <li class="rt-quiet">{note}</li>}
      </ul>
    </>
  );
}

interface RepairProps {
  explorer: ExplorerState;
  name: string;
  label: string;
  findings: string[];
}

/** Applies fixes to the model; absent where there is none, and in a report. */
function Repair({ explorer, name, label, findings }: RepairProps) {
  if (explorer.saved || !findings.length) return null;
  const why = explorer.unbuildable() || explorer.busy();
  return (
    <button
      type="button"
      class="rt-field"
      data-control={name}
      disabled={why !== ""}
      title={why}
      onClick={() => explorer.send({ type: "repair", findings })}
    >
      {label}
    </button>
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
}

function Item({ explorer, item, timed }: ItemProps) {
  const { id, rule, title, nodes, layers, cost, fix, evidence, fixable } = item;
  return (
    <li data-finding={id} data-rule={rule}>
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
          <Quoted explorer={explorer} text={fix} />{" "}
          <Repair explorer={explorer} name="repair" label="Apply" findings={fixable ? [id] : []} />
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
