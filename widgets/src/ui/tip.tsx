import type { Signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import type { Bench } from "../bench";
import type { Side } from "../contract";
import { GLYPH, plural, quantity, REASON_WORDS, shorten, uncapitalised } from "../format";
import { combined, engineSide, sourceOf } from "../overlay";
import { noun, untitled } from "../spoken";

export interface Tipped {
  id: string;
  x: number;
  y: number;
}

const DELAY_MS = 350;
const WIDTH = 270;

/** What a box is and its numbers, shown beside the pointer when it rests. */
export function Tip({
  bench: { study, root },
  side,
  at,
}: {
  bench: Bench;
  side: Side;
  at: Signal<Tipped | null>;
}) {
  const [shown, setShown] = useState("");
  const place = at.value;
  const id = place?.id ?? "";
  useEffect(() => {
    if (!id) {
      setShown("");
      return;
    }
    const timer = setTimeout(() => setShown(id), shown ? 0 : DELAY_MS);
    return () => clearTimeout(timer);
  }, [id]);
  const box = study.box(side, id);
  if (!place || !box || shown !== id) return null;
  const engine = engineSide(side);
  const links = study.linksOf(engine);
  const members = study.members(side, id);
  const missing = side === "node" ? links.unmapped(id) : null;
  const inferred = members.some((one) =>
    (side === "node" ? links.pairsOfNode(one) : links.pairsOfLayer(one)).some(
      ({ evidence }) => evidence === "inferred",
    ),
  );
  const numbers = (study.engineOf(engine)?.overlays ?? []).flatMap((overlay) => {
    const reading = combined(overlay, side, members, box);
    return reading ? [{ overlay, reading }] : [];
  });
  const flip = place.x > root.clientWidth / 4;
  return (
    <div
      class="rt-tip"
      role="tooltip"
      style={{
        left: `${flip ? place.x - WIDTH - 12 : place.x + 14}px`,
        top: `${place.y + 14}px`,
        width: `${WIDTH}px`,
      }}
    >
      <b>{box.op}</b> <span>{shorten(untitled(box), 120)}</span>
      {box.outputs.slice(0, 2).map((port) => (
        <p key={port.name}>
          → {port.shape || "—"} {port.dtype}
        </p>
      ))}
      {missing && <p>No layer: {REASON_WORDS[missing.reason]}</p>}
      {inferred && <p class="rt-inferred">inferred attribution</p>}
      {box.kind === "group" && (
        <p>{[plural(members.length, noun(side)), ...box.details.map(({ value }) => value)].join(" · ")}</p>
      )}
      {numbers.map(({ overlay, reading }) => (
        <p key={overlay.id} class={overlay.origin === "estimated" ? "rt-estimate" : ""}>
          {GLYPH[overlay.origin]} {quantity(reading.value, overlay.unit)} {uncapitalised(overlay.title)}
          {reading.how && <small>{reading.how}</small>}
        </p>
      ))}
      {[...new Set(numbers.map(({ overlay }) => sourceOf(overlay)))].map((words) => (
        <small key={words}>{words}</small>
      ))}
    </div>
  );
}
