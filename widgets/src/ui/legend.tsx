import type { Bench } from "../bench";
import type { Reason, Side } from "../contract";
import { REASON_GLYPH } from "../format";
import { activeMode, lookOf } from "../overlay";

/** How to read the colours of a pane: range with unit and origin, or classes; and what dashed boxes mean. */
export function LegendView({ bench: { study }, side }: { bench: Bench; side: Side }) {
  const graph = study.graph(side);
  const engine = study.engine.value;
  if (!graph) return null;
  const { colour, colour_nodes } = study.view.value;
  const mode = activeMode(side, side === "node" ? colour_nodes : colour, engine);
  const { legend } = lookOf(side, graph, mode, engine, study.links.value);
  const reasons: Reason[] =
    side === "node" ? [...new Set(study.links.value.reasons.map(({ reason }) => reason))] : [];
  if (!legend && !reasons.length) return null;
  return (
    <div class="rt-legend">
      {legend?.kind === "scale" && (
        <div class="rt-scale">
          <div class="rt-ramp" style={{ background: `linear-gradient(90deg, ${legend.stops.join(",")})` }} />
          <div>
            <span>{legend.low}</span>
            <span>{legend.high}</span>
          </div>
          <div>
            {legend.title} {legend.origin}
          </div>
        </div>
      )}
      {legend?.kind === "classes" && (
        <div class="rt-classes">
          {legend.classes.map(({ label, colour: swatch }) => (
            <span key={label}>
              <i style={{ background: swatch }} />
              {label}
            </span>
          ))}
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
