import type { Signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import type { Overlay, Side } from "../core/contract";
import { GLYPH, NONE, plural, quantity, REASON_WORDS } from "../core/format";
import { noun, untitled } from "./aria_text";
import { combined, engineSide, sourceOf } from "./overlay";
import type { PaneSet } from "./paneset";

export interface Tipped {
  id: string;
  x: number;
  y: number;
}

const DELAY_MS = 350;

const brief = ({ title, unit }: Overlay): string =>
  unit === "ms" ? title.replace(/ time(, scaled)?$/, "") : unit === "B" ? "out" : title;
const WIDTH = 340;

export function Tip({
  paneSet: { study, root },
  side,
  at,
}: {
  paneSet: PaneSet;
  side: Side;
  at: Signal<Tipped | null>;
}) {
  const [visibleId, setShown] = useState("");
  const place = at.value;
  const id = place?.id ?? "";
  useEffect(() => {
    if (!id) {
      setShown("");
      return;
    }
    const timer = setTimeout(() => setShown(id), visibleId ? 0 : DELAY_MS);
    return () => clearTimeout(timer);
  }, [id]);
  const box = study.box(side, id);
  if (!place || !box || visibleId !== id) return null;
  const engine = engineSide(side);
  const links = study.mappingOf(engine);
  const members = study.members(side, id);
  const copies = study.visible(side)?.copies(id) ?? 1;
  const missing = side === "node" ? links.unmapped(id) : null;
  const inferred = members.some((one) =>
    (side === "node" ? links.pairsOfNode(one) : links.pairsOfLayer(one)).some(
      ({ evidence }) => evidence === "inferred",
    ),
  );
  const overlays = study.engineOf(engine)?.overlays ?? [];
  const numbers = overlays.flatMap((overlay) => {
    if (overlay.unit === "%" && overlays.some(({ unit }) => unit === "ms")) return [];
    const reading = combined(overlay, side, members, box, copies);
    return reading ? [{ overlay, reading }] : [];
  });
  const facts = [
    ...(box.kind === "group"
      ? [plural(members.length, noun(side)), ...box.details.map(({ value }) => value)]
      : copies > 1
        ? [`the same in ${copies} blocks`]
        : []),
    ...box.outputs.slice(0, 2).map((port) => `→ ${port.shape || NONE} ${port.dtype}`),
    ...(missing ? [`no layer: ${REASON_WORDS[missing.reason]}`] : []),
    ...(inferred ? ["attribution inferred"] : []),
  ];
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
      <p>
        <b>{box.op}</b> <span>{untitled(box)}</span>
      </p>
      <p>{facts.join(" · ") || NONE}</p>
      <p>
        {numbers.map(({ overlay, reading }) => (
          <span
            key={overlay.id}
            data-number={overlay.id}
            class={overlay.origin === "estimated" ? "rt-estimate" : ""}
            title={sourceOf(overlay)}
          >
            {GLYPH[overlay.origin]} {quantity(reading.value, overlay.unit)} {brief(overlay)}
          </span>
        ))}
      </p>
    </div>
  );
}
