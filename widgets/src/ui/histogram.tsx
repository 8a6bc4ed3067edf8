import type { ComponentChildren } from "preact";
import type { Calibrated, CalibratedValue, TensorStats } from "../core/contract";
import { GLYPH, number, percent, quantity, shorten, thousands } from "../core/format";
import { methodOf, thresholdOf } from "../panels/thresholds";
import { Row, Section } from "./section";

const WIDTH = 230;
const HEIGHT = 64;
const LINE = 11;
const BAR = 3;

interface CalibratedProps {
  value: CalibratedValue;
  chosen: string;
  width?: number;
  height?: number;
}

/** Magnitudes that calibration saw, with where each calibrator cuts; what the chosen one clips is pale. */
export function CalibratedBars({ value, chosen, width = WIDTH, height }: CalibratedProps) {
  const { upper, counts } = value;
  if (!(upper > 0)) return <p class="rt-quiet">All of it is zero.</p>;
  const method = methodOf(value, chosen);
  const marks = value.thresholds
    .filter((threshold) => !threshold.chosen)
    .toSorted((a, b) => a.amax - b.amax)
    .map((threshold, k) => {
      const sign = threshold.doubt ? "⚠ " : method !== chosen && threshold.calibrator === method ? "◆ " : "";
      const text = `${sign}${threshold.calibrator} ${number(threshold.amax)}`;
      const x = Math.max(0.5, Math.min((threshold.amax / upper) * width, width - 0.5));
      return { ...threshold, text, x, y: k * LINE, atLeft: x > width / 2 };
    });
  const top = Math.max(1, marks.length) * LINE + 4;
  const cut = thresholdOf(value, chosen)?.amax;
  return (
    <Bars
      counts={counts}
      ends={[0, upper]}
      top={top}
      width={width}
      height={height ? Math.max(24, height - top - FOOT) : HEIGHT}
      axis="magnitude, √ of count"
      label={`Histogram of magnitudes up to ${number(upper)}; ${marks.map(({ text }) => text).join(", ")}`}
      cut={cut === undefined ? 1 : cut / upper}
    >
      {(floor) =>
        marks.map(({ calibrator, text, x, y, atLeft, clipped, sqnr, doubt }) => (
          <g key={calibrator}>
            <path class={calibrator === method ? "rt-chosen" : "rt-cut"} d={`M${x} ${y + 2}V${floor}`} />
            <text
              class={calibrator === method ? "rt-chosen" : ""}
              x={x + (atLeft ? -4 : 4)}
              y={y + 10}
              text-anchor={atLeft ? "end" : "start"}
            >
              {text}
              <title>{`${calibrator} clips ${percent(clipped)}, SQNR ${quantity(sqnr, "dB")} (estimated)${doubt && `\n⚠ ${doubt}`}`}</title>
            </text>
          </g>
        ))
      }
    </Bars>
  );
}

const FOOT = 16;

interface MeasuredProps {
  calibration: Calibrated;
  /** The tensor that the number is of, whose histogram may hold a part of its elements. */
  value?: CalibratedValue;
  children: ComponentChildren;
}

/** A number that was counted while the samples ran; of a map that was counted in part it is an estimate. */
export const Measured = ({ calibration: { samples, source }, value, children }: MeasuredProps) => {
  const origin = value?.origin ?? "measured";
  return (
    <span
      class={origin === "estimated" ? "rt-estimate" : ""}
      title={`${origin}${origin === "estimated" ? " from a part of the elements" : ""}: ${samples} samples of ${source}`}
    >
      {GLYPH[origin]} {children}
    </span>
  );
};

export const Guessed = ({ children }: { children: ComponentChildren }) => (
  <span class="rt-estimate" title="estimated: noise of INT8 rounding and clipping over the histogram">
    {GLYPH.estimated} {children}
  </span>
);

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
        <Row name="zeros">{percent(zeros)}</Row>
        <Row name="count">
          <span title={`${origin}: ${source}`}>
            {GLYPH[origin]} {thousands(count)}
          </span>
        </Row>
      </dl>
    </Section>
  );
}

interface BarsProps {
  counts: readonly number[];
  ends: [number, number];
  top: number;
  width?: number;
  height?: number;
  axis: string;
  label: string;
  /** From which part of the axis on bars are pale. */
  cut?: number;
  children?: (floor: number) => ComponentChildren;
}

function Bars(props: BarsProps) {
  const { counts, ends, top, width = WIDTH, height = HEIGHT, axis, label, cut = 1, children } = props;
  const bars = gathered(counts, width / BAR);
  const most = bars.reduce((a, b) => Math.max(a, b), 0);
  if (!most) return null;
  const step = width / bars.length;
  const floor = top + height;
  return (
    <svg class="rt-histogram" viewBox={`0 0 ${width} ${floor + FOOT}`} role="img" aria-label={label}>
      {bars.map((bar, k) => {
        const tall = Math.sqrt(bar / most) * height;
        return (
          <rect
            key={k}
            {...(k >= cut * bars.length ? { class: "rt-beyond" } : {})}
            x={k * step}
            y={floor - tall}
            width={Math.max(0.6, step - 0.7)}
            height={tall}
          />
        );
      })}
      <path d={`M0 ${floor + 0.5}H${width}`} />
      {ends[0] < 0 && ends[1] > 0 && (
        <path d={`M${(-ends[0] / (ends[1] - ends[0])) * width} ${top}V${floor}`} />
      )}
      {children?.(floor)}
      {[number(ends[0]), axis, number(ends[1])].map((text, k) => (
        <text
          key={k}
          x={(k * width) / 2}
          y={floor + 12}
          text-anchor={(["start", "middle", "end"] as const)[k]}
        >
          {text}
        </text>
      ))}
    </svg>
  );
}

function gathered(counts: readonly number[], most: number): number[] {
  const per = Math.max(1, Math.ceil(counts.length / most));
  const bars: number[] = [];
  for (let k = 0; k < counts.length; k += per) bars.push(counts.slice(k, k + per).reduce((a, b) => a + b, 0));
  return bars;
}
