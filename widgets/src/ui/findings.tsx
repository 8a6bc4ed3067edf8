import { useState } from "preact/hooks";
import type { Finding, Verdict } from "../contract";
import { brief, ending, plural, shorten } from "../format";
import type { Lab } from "../lab";

const LONGEST = 400;
const LONGEST_NAME = 36;

/** What to change about the model's quantization, why, and which of it to have changed. */
export function FindingsView({ lab }: { lab: Lab }) {
  const { items, note } = lab.findings.value;
  const [wanted, setWanted] = useState<ReadonlySet<string>>(new Set());
  const fixable = items.filter((item) => item.fixable).map(({ id }) => id);
  const ticked = fixable.filter((id) => wanted.has(id));
  const why = lab.busy();
  const repair = (ids: string[]): void => lab.send("repair", JSON.stringify(ids));
  const tick = (id: string, on: boolean): void => {
    const next = new Set(wanted);
    if (on) next.add(id);
    else next.delete(id);
    setWanted(next);
  };
  if (!items.length) {
    return (
      <>
        <div class="rt-caption">
          <Pairs lab={lab} />
        </div>
        <p class="rt-quiet rt-pad">{note || "Nothing was found."}</p>
      </>
    );
  }
  return (
    <>
      <div class="rt-caption rt-found">
        <span title={note}>{note || plural(items.length, "finding")}</span>
        <Pairs lab={lab} />
        <button
          type="button"
          class="rt-field"
          data-control="repair"
          disabled={!ticked.length || why !== ""}
          title={why || (ticked.length ? "" : "Tick what is to be changed")}
          onClick={() => repair(ticked)}
        >
          {ticked.length
            ? `Apply ${ticked.length === 1 ? "1 fix" : `${ticked.length} fixes`}`
            : "Apply fixes"}
        </button>
        <button
          type="button"
          class="rt-field"
          data-control="repair-all"
          disabled={!fixable.length || why !== ""}
          title={why || (fixable.length ? "" : "None of these can be changed by itself")}
          onClick={() => repair(fixable)}
        >
          Apply all
        </button>
      </div>
      <ul class="rt-findings" aria-label="Findings">
        {items.map((item) => (
          <Item
            key={item.id}
            lab={lab}
            item={item}
            ticked={wanted.has(item.id)}
            onTick={(on) => tick(item.id, on)}
          />
        ))}
      </ul>
    </>
  );
}

const VERDICTS: Record<Verdict, [words: string, why: string]> = {
  absorbed: ["absorbed", "A layer that computes takes them in"],
  "round trip": ["round trip", "Quantized and dequantized inside one layer: no int8 comes of it"],
  "own step": ["own step", "A layer does nothing but quantize or dequantize"],
  folded: ["folded", "A weight that was computed at build time"],
  unknown: ["unknown", "The compiler named no layer"],
};

/** What became of the model's own Q/DQ pairs in the engine on screen. */
function Pairs({ lab }: { lab: Lab }) {
  const pairs = lab.study.engine.value?.quantized ?? [];
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
            lab.study.reveal(
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
  lab: Lab;
  item: Finding;
  ticked: boolean;
  onTick(on: boolean): void;
}

function Item({ lab, item, ticked, onTick }: ItemProps) {
  const { id, title, nodes, cost, fix, evidence, fixable } = item;
  const { study } = lab;
  return (
    <li data-finding={id}>
      <input
        type="checkbox"
        aria-label={`Fix: ${title}`}
        checked={ticked && fixable}
        disabled={!fixable}
        title={fixable ? "" : "This one is to be changed by hand"}
        onChange={(event) => onTick(event.currentTarget.checked)}
      />
      <div>
        <b>
          {shorten(title, LONGEST)
            .split('"')
            .map((text, k) => (k % 2 ? <Named key={k} lab={lab} name={text} /> : text))}
        </b>{" "}
        {nodes.length > 1 && (
          <button
            type="button"
            class="rt-link"
            data-control="nodes"
            onClick={() => study.reveal("node", nodes)}
          >
            select {nodes.length} nodes
          </button>
        )}
      </div>
      <div>
        <p>{cost}</p>
        <p>
          <span class="rt-quiet">{fixable ? "Fix:" : "By hand:"}</span> {fix}
        </p>
        <small>{evidence}</small>
      </div>
    </li>
  );
}

/** A name inside a title, by which its node is found. */
function Named({ lab, name }: { lab: Lab; name: string }) {
  const shown = ending(brief(name), LONGEST_NAME);
  if (!lab.study.box("node", name)) return <span title={name}>{shown}</span>;
  return (
    <button type="button" class="rt-link" title={name} onClick={() => lab.jump("node", name)}>
      {shown}
    </button>
  );
}
