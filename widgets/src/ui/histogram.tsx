import type { ComponentChildren } from "preact";
import type { Histogram, TensorStats } from "../contract";
import { GLYPH, number, shorten } from "../format";
import { Row, Section } from "./panel";

const WIDTH = 230;
const HEIGHT = 64;
const TOP = 26;
const MOST_BARS = 76;

/** Magnitudes seen during calibration, with where each calibrator would cut. The root of counts keeps tails visible. */
export function HistogramView({ histogram }: { histogram: Histogram }) {
  const { upper, thresholds, chosen, value } = histogram;
  if (!histogram.counts.some(Boolean) || !(upper > 0)) return null;
  const marks = Object.entries(thresholds).sort(([, a], [, b]) => a - b);
  return (
    <Section title="Activation, calibrated">
      <Bars
        counts={histogram.counts}
        ends={[0, upper]}
        top={TOP}
        axis="magnitude, √ of count"
        label={`Histogram of magnitudes up to ${number(upper)}; ${marks.map(([name, at]) => `${name} ${number(at)}`).join(", ")}`}
      >
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
      </Bars>
      <p class="rt-quiet" title={shorten(value, 300)}>
        {shorten(value, 60)}
      </p>
    </Section>
  );
}

/** One tensor: its distribution and what is known of its numbers. */
export function TensorView({ tensor }: { tensor: TensorStats }) {
  const { name, kind, origin, source, shape, dtype, count, minimum, maximum, mean, std, zeros } = tensor;
  return (
    <Section title={kind === "weight" ? "Weight" : "Activation"}>
      <p class="rt-port" title={shorten(name, 300)} data-tensor={name}>
        <b>{shape}</b> {dtype}
        <small>{shorten(name, 60)}</small>
      </p>
      <Bars
        counts={tensor.counts}
        ends={[tensor.lower, tensor.upper]}
        top={2}
        axis="value, √ of count"
        label={`Histogram from ${number(tensor.lower)} to ${number(tensor.upper)}`}
      />
      <dl>
        <Row name="range">
          {number(minimum)} … {number(maximum)}
        </Row>
        <Row name="mean ± std">
          {number(mean)} ± {number(std)}
        </Row>
        <Row name="zeros">{number(100 * zeros)} %</Row>
        <Row name="count">
          <span title={`${origin}: ${source}`}>
            {GLYPH[origin]} {count.toLocaleString("en").replaceAll(",", "\u2009")}
          </span>
        </Row>
      </dl>
    </Section>
  );
}

interface BarsProps {
  counts: readonly number[];
  /** The numbers at both ends of the axis. */
  ends: [number, number];
  /** Room above the bars, for marks. */
  top: number;
  axis: string;
  label: string;
  children?: ComponentChildren;
}

/** A histogram. The root of counts keeps tails visible. */
function Bars({ counts, ends, top, axis, label, children }: BarsProps) {
  const bars = gathered(counts);
  const most = bars.reduce((a, b) => Math.max(a, b), 0);
  if (!most) return null;
  const step = WIDTH / bars.length;
  const floor = top + HEIGHT;
  return (
    <svg class="rt-histogram" viewBox={`0 0 ${WIDTH} ${floor + 16}`} role="img" aria-label={label}>
      {bars.map((bar, k) => {
        const height = Math.sqrt(bar / most) * HEIGHT;
        return (
          <rect key={k} x={k * step} y={floor - height} width={Math.max(0.6, step - 0.7)} height={height} />
        );
      })}
      <path d={`M0 ${floor + 0.5}H${WIDTH}`} />
      {ends[0] < 0 && ends[1] > 0 && (
        <path d={`M${(-ends[0] / (ends[1] - ends[0])) * WIDTH} ${top}V${floor}`} />
      )}
      {children}
      {[number(ends[0]), axis, number(ends[1])].map((text, k) => (
        <text
          key={k}
          x={(k * WIDTH) / 2}
          y={floor + 12}
          text-anchor={(["start", "middle", "end"] as const)[k]}
        >
          {text}
        </text>
      ))}
    </svg>
  );
}

/** Neighbouring bins added up until they can be told apart on screen. */
function gathered(counts: readonly number[]): number[] {
  const per = Math.max(1, Math.ceil(counts.length / MOST_BARS));
  const bars: number[] = [];
  for (let k = 0; k < counts.length; k += per) bars.push(counts.slice(k, k + per).reduce((a, b) => a + b, 0));
  return bars;
}
