import type { Histogram } from "../contract";
import { number, shorten } from "../format";
import { Section } from "./panel";

const WIDTH = 230;
const HEIGHT = 64;
const TOP = 26;
const MOST_BARS = 76;

/** Magnitudes seen during calibration, with where each calibrator would cut. The root of counts keeps tails visible. */
export function HistogramView({ histogram }: { histogram: Histogram }) {
  const { upper, thresholds, chosen, value } = histogram;
  const bars = gathered(histogram.counts);
  const most = bars.reduce((a, b) => Math.max(a, b), 0);
  if (!most || !(upper > 0)) return null;
  const step = WIDTH / bars.length;
  const marks = Object.entries(thresholds).sort(([, a], [, b]) => a - b);
  return (
    <Section title="Activation, calibrated">
      <svg
        class="rt-histogram"
        viewBox={`0 0 ${WIDTH} ${TOP + HEIGHT + 16}`}
        role="img"
        aria-label={`Histogram of magnitudes up to ${number(upper)}; ${marks.map(([name, at]) => `${name} ${number(at)}`).join(", ")}`}
      >
        {bars.map((count, k) => {
          const height = Math.sqrt(count / most) * HEIGHT;
          return (
            <rect
              key={k}
              x={k * step}
              y={TOP + HEIGHT - height}
              width={Math.max(0.6, step - 0.7)}
              height={height}
            />
          );
        })}
        <path d={`M0 ${TOP + HEIGHT + 0.5}H${WIDTH}`} />
        {marks.map(([name, at], k) => {
          const x = Math.min(WIDTH - 1, (at / upper) * WIDTH);
          const right = x > WIDTH * 0.55;
          const y = 9 + (k % 2) * 11;
          return (
            <g key={name} class={name === chosen ? "rt-chosen" : ""}>
              <path d={`M${x} ${y - 7}V${TOP + HEIGHT}`} />
              <text x={right ? x - 4 : x + 4} y={y} text-anchor={right ? "end" : "start"}>
                {name} {number(at)}
              </text>
            </g>
          );
        })}
        <text x="0" y={TOP + HEIGHT + 12}>
          0
        </text>
        <text x={WIDTH} y={TOP + HEIGHT + 12} text-anchor="end">
          {number(upper)}
        </text>
        <text x={WIDTH / 2} y={TOP + HEIGHT + 12} text-anchor="middle">
          magnitude, √ of count
        </text>
      </svg>
      <p class="rt-quiet" title={shorten(value, 300)}>
        {shorten(value, 60)}
      </p>
    </Section>
  );
}

/** Neighbouring bins added up until they can be told apart on screen. */
function gathered(counts: readonly number[]): number[] {
  const per = Math.max(1, Math.ceil(counts.length / MOST_BARS));
  const bars: number[] = [];
  for (let k = 0; k < counts.length; k += per) bars.push(counts.slice(k, k + per).reduce((a, b) => a + b, 0));
  return bars;
}
