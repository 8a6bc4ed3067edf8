import type { Reason, Side } from "../core/contract";
import { REASON_GLYPH } from "../core/format";
import { Terms } from "../ui/terms";
import type { PaneSet } from "./paneset";

export function LegendView({ paneSet: { study, colours }, side }: { paneSet: PaneSet; side: Side }) {
  const legend = colours[side].look.value?.legend;
  const reasons: Reason[] =
    side === "node" && colours[side].mode.value !== "reason"
      ? [...new Set(study.mapping.value.reasons.map(({ reason }) => reason))]
      : [];
  const numbered = colours[side].mode.value === "layer";
  if (!legend && !reasons.length && !numbered) return null;
  return (
    <div class="rt-legend">
      {legend?.kind === "scale" && (
        <div class="rt-scale">
          <span>{legend.low}</span>
          <i class="rt-ramp" style={{ background: `linear-gradient(90deg, ${legend.stops.join(",")})` }} />
          <span>{legend.high}</span>
          <small>
            <Terms text={`${legend.title} ${legend.origin}`} />
          </small>
        </div>
      )}
      {legend?.kind === "classes" && (
        <div class="rt-classes">
          {legend.classes.map(({ label, colour: swatch, badge }) => (
            <span key={label}>
              <i style={{ background: swatch }} />
              {badge === label ? label : badge.endsWith(label) ? badge : `${badge} ${label}`}
            </span>
          ))}
        </div>
      )}
      {numbered && (
        <div>
          <Terms text="L1, L2, …: layers in execution order" />
        </div>
      )}
      {reasons.length > 0 && (
        <div>
          dashed, no layer: {reasons.map((reason) => `${REASON_GLYPH[reason]} ${reason}`).join("  ·  ")}
        </div>
      )}
    </div>
  );
}
