import type { ComponentChildren } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import type { Calibrated, CalibratedValue, ObserveRanges, RankCalibrators, Ranked } from "../core/contract";
import {
  brief,
  difference,
  ending,
  NONE,
  number,
  percent,
  plural,
  quantity,
  shorten,
  shortOp,
  thousands,
} from "../core/format";
import { meaning } from "../core/glossary";
import type { ExplorerState } from "../explorer/explorer_state";
import { Name } from "../ui/cells";
import { CalibratedBars, Guessed, Measured } from "../ui/histogram";
import { useResize } from "../ui/hooks";
import { type Column, column, Rows } from "../ui/rows";
import { Terms } from "../ui/terms";
import {
  best,
  calibratorsOf,
  choiceOf,
  type Measure,
  ranked,
  readBy,
  shownOf,
  thresholdOf,
} from "./thresholds";

const MEASURES: Record<Measure, string> = { sqnr: "SQNR, dB", amax: "Threshold", clipped: "Clipped, %" };
const LONGEST = 300;

export default function CalibrationView({ explorer }: { explorer: ExplorerState }) {
  const calibration = explorer.calibration.value;
  return calibration ? <Ranges explorer={explorer} known={calibration} /> : <NoRanges explorer={explorer} />;
}

function NoRanges({ explorer }: { explorer: ExplorerState }) {
  return (
    <div class="rt-pad rt-explain">
      <p>
        <Terms
          text={
            "Scales of int8 and fp8 come from the activations' ranges. One pass over the calibration data collects " +
            "a histogram for every tensor; each calibrator then sets its thresholds from these at once."
          }
        />
      </p>
      <Work
        explorer={explorer}
        command="observe"
        title="One pass over the calibration data, with progress above; it can be stopped"
      >
        Observe the activations
      </Work>
    </div>
  );
}

interface WorkProps {
  explorer: ExplorerState;
  command: (ObserveRanges | RankCalibrators)["type"];
  title?: string;
  children: ComponentChildren;
}

function Work({ explorer, command, title, children }: WorkProps) {
  if (explorer.saved) return null;
  const why = explorer.unbuildable() || explorer.busy();
  return (
    <button
      type="button"
      class="rt-field"
      data-control={command}
      disabled={why !== ""}
      title={why || title || ""}
      onClick={() => explorer.send({ type: command })}
    >
      {children}
    </button>
  );
}

function Ranges({ explorer, known }: { explorer: ExplorerState; known: Calibrated }) {
  const { study } = explorer;
  const chosen = study.engine.value?.calibrator ?? "";
  const [measure, setMeasure] = useState<Measure>("sqnr");
  const marked = readBy(known.values, study.view.value.selection);
  const current = shownOf(known.values, marked, explorer.selectedValue.value);
  const rows = new Set(marked);
  const boxes = study.boxes.node.value;
  const columns = useMemo(() => {
    const reader = (id: string): string => {
      const box = boxes.get(id);
      return box ? shortOp(box.op) : id;
    };
    return columnsOf(known, measure, chosen, ({ readers }) => [...new Set(readers.map(reader))].join(", "));
  }, [known, measure, chosen, boxes]);
  const { samples, wanted, source } = known;
  return (
    <div class="rt-columns rt-calibration">
      <section>
        <div class="rt-caption">
          <span title={source}>
            <Measured calibration={known}>
              {samples < wanted
                ? `${samples} of ${wanted} samples`
                : `${plural(samples, "sample")}${wanted ? "" : " so far"}`}
            </Measured>
            {source && ` · ${shorten(source, LONGEST)}`}
          </span>
          {(!wanted || samples < wanted) && (
            <Work explorer={explorer} command="observe" title="Observe the samples that are left">
              More
            </Work>
          )}
          <fieldset
            class="rt-segments rt-small"
            aria-label="Shown for each calibrator"
            data-control="measure"
          >
            {(Object.keys(MEASURES) as Measure[]).map((name) => (
              <button
                type="button"
                key={name}
                data-value={name}
                aria-pressed={name === measure}
                title={meaning(MEASURES[name])}
                onClick={() => setMeasure(name)}
              >
                {MEASURES[name]}
              </button>
            ))}
          </fieldset>
        </div>
        <Rows
          label="Calibrated tensors"
          rows={known.values}
          columns={columns}
          id={({ value }) => value}
          selected={(row) => rows.has(row)}
          current={current?.value ?? ""}
          attributes={(row) => ({ "data-row": row.value, class: row === current ? "rt-shown" : "" })}
          onPick={({ value, readers }) => {
            explorer.selectedValue.value = value;
            study.reveal("node", readers);
          }}
          onPoint={(row) => study.point(row?.readers[0] ? "node" : undefined, row?.readers[0])}
        />
      </section>
      <section>
        {current && (
          <>
            <div class="rt-caption">
              <b title={shorten(current.value, LONGEST)}>
                <bdi dir="ltr">{ending(brief(current.value), 80)}</bdi>
              </b>
              <span title={`${thousands(current.count)} elements seen, ${percent(current.zeros)} zeros`}>
                {current.shape}
              </span>
            </div>
            <Sized>
              {(width, height) => (
                <CalibratedBars value={current} chosen={chosen} width={width} height={height} />
              )}
            </Sized>
            <ThresholdNotes value={current} />
          </>
        )}
      </section>
      <Ranking explorer={explorer} known={known} />
    </div>
  );
}

function columnsOf(
  known: Calibrated,
  measure: Measure,
  chosen: string,
  readers: (row: CalibratedValue) => string,
): Column<CalibratedValue>[] {
  const calibrators = calibratorsOf(known).map((name): Column<CalibratedValue> => {
    const by = (row: CalibratedValue): number | null => thresholdOf(row, name)?.[measure] ?? null;
    return {
      key: name,
      label: name === chosen ? <b>✓ {name}</b> : name,
      title: `${MEASURES[measure]} with ${name}${name === chosen ? ", the calibrator of the variant on screen" : ""}`,
      numeric: true,
      by,
      cell: (row) => {
        const value = by(row);
        const wins = best(row).has(name);
        const threshold = thresholdOf(row, name);
        const choice = choiceOf(row);
        const title = [
          threshold?.doubt && `⚠ ${threshold.doubt}`,
          threshold?.chosen && `◆ ${threshold.chosen}: ${threshold.why}`,
          choice?.chosen === name && `◆ ${choice.calibrator} takes this: ${choice.why}`,
          wins && "The best SQNR of this tensor",
        ].filter(Boolean);
        return (
          <td class={`rt-num ${wins ? "rt-best" : ""}`} title={title.join("\n")}>
            {threshold?.doubt && <Mark glyph="⚠" text={threshold.doubt} />}
            {choice?.chosen === name && <Mark glyph="◆" text={`${choice.calibrator} takes this`} />}
            {value === null || measure === "amax" ? (
              number(value)
            ) : measure === "sqnr" ? (
              <Guessed>{number(value)}</Guessed>
            ) : (
              <Measured calibration={known} value={row}>
                {number(100 * value)}
              </Measured>
            )}
          </td>
        );
      },
    };
  });
  return [
    column("Tensor", ({ value }) => value, {
      cell: ({ value }) => <Name text={value} label={brief(value)} />,
    }),
    column("Read by", readers, {
      extra: "rt-extra",
      text: (row) => shorten(readers(row), 24),
      hover: (row) => shorten(row.readers.join("\n"), LONGEST),
    }),
    column("Count", ({ count }) => count, {
      extra: "rt-rest",
      numeric: true,
      text: ({ count }) => thousands(count),
    }),
    column("Zeros", ({ zeros }) => zeros, {
      extra: "rt-extra",
      numeric: true,
      text: (row) => (
        <Measured calibration={known} value={row}>
          {percent(row.zeros)}
        </Measured>
      ),
    }),
    ...calibrators,
  ];
}

const Mark = ({ glyph, text }: { glyph: "⚠" | "◆"; text: string }) => (
  <span class={glyph === "⚠" ? "rt-worse" : ""} role="img" aria-label={text}>
    {glyph}{" "}
  </span>
);

/** Notes on a tensor's thresholds: which one auto chose and why, and which clip too much. */
function ThresholdNotes({ value }: { value: CalibratedValue }) {
  const choice = choiceOf(value);
  const doubts = [...new Set(value.thresholds.map(({ doubt }) => doubt).filter(Boolean))];
  if (!choice && !doubts.length) return null;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is reached by the keyboard
    <div class="rt-told" tabIndex={0}>
      {choice && (
        <p class="rt-quiet" data-told="choice">
          ◆ {choice.calibrator} takes {choice.chosen}: {choice.why}.
        </p>
      )}
      {doubts.map((doubt) => (
        <p key={doubt} class="rt-worse" data-told="doubt">
          ⚠{" "}
          {value.thresholds
            .filter((threshold) => threshold.doubt === doubt)
            .map(({ calibrator }) => calibrator)
            .join(", ")}
          : {doubt}.
        </p>
      ))}
    </div>
  );
}

function Sized({ children }: { children(width: number, height: number): ComponentChildren }) {
  const box = useRef<HTMLDivElement>(null);
  const [{ width, height }, setSize] = useState({ width: 0, height: 0 });
  useResize(box, ({ clientWidth: width, clientHeight: height }) => setSize({ width, height }));
  return (
    <div class="rt-fitted" ref={box}>
      {width > 0 && height > 0 && children(width, height)}
    </div>
  );
}

function Ranking({ explorer, known }: { explorer: ExplorerState; known: Calibrated }) {
  const { ranking, task, unit, measured } = known;
  const scored = ranking.length ? ranking.some(({ score }) => score !== null) : task !== "";
  return (
    <section>
      <div class="rt-caption">
        <span title={measured}>{ranking.length > 0 && (scored ? task : "on the model's output")}</span>
        <Work
          explorer={explorer}
          command="rank"
          title="Runs the model with the scales of each calibrator, and counts what they lose"
        >
          {ranking.length ? "Run again" : `Try all calibrators${scored ? " on the task" : ""}`}
        </Work>
      </div>
      <div class="rt-table">
        <table aria-label="Ranking of the calibrators">
          <thead>
            <tr>
              <th scope="col">Calibrator</th>
              {scored && (
                <>
                  <th scope="col" class="rt-num" title={task}>
                    Score
                  </th>
                  <th scope="col" class="rt-num" title="Difference from fp32">
                    to fp32
                  </th>
                </>
              )}
              <th scope="col" class={`rt-num ${scored ? "rt-extra" : ""}`} title="SQNR of the model's output">
                SQNR
              </th>
              {!explorer.saved && <th aria-label="Choose" />}
            </tr>
          </thead>
          <tbody>
            {ranked(known).map((rank) => (
              <RankRow
                key={rank.calibrator + rank.precision}
                explorer={explorer}
                rank={rank}
                unit={unit}
                source={measured}
                scored={scored}
              />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

interface RankProps {
  explorer: ExplorerState;
  rank: Ranked;
  unit: string;
  source: string;
  scored: boolean;
}

function RankRow({ explorer, rank, unit, source, scored }: RankProps) {
  const { calibrator, precision, score, delta, sqnr, note } = rank;
  const choice = explorer.choice.value;
  const current = choice.calibrator === calibrator;
  const measured = (text: string): string => (text === NONE ? text : `● ${text}`);
  const title = [source, note].filter(Boolean).join("\n");
  return (
    <tr data-rank={calibrator} title={note}>
      <th scope="row">{calibrator || precision}</th>
      {scored && (
        <>
          <td class="rt-num" title={title}>
            {measured(quantity(score?.value ?? null, unit))}
          </td>
          <td class={`rt-num ${delta !== null && delta <= -0.05 ? "rt-worse" : ""}`} title={title}>
            {difference(delta, unit)}
          </td>
        </>
      )}
      <td class={`rt-num ${scored ? "rt-extra" : ""}`} title={title}>
        {measured(quantity(sqnr, "dB"))}
      </td>
      {!explorer.saved && (
        <td class="rt-num">
          {calibrator && (
            <button
              type="button"
              class="rt-link"
              data-control="use"
              aria-label={current ? `${calibrator} is chosen` : `Use ${calibrator}`}
              disabled={current || !explorer.alive.value}
              title={
                current ? "It is chosen" : explorer.unusable() || "Choose it; Build then makes the variant"
              }
              onClick={() => explorer.choose({ calibrator, ...(choice.calibrator ? {} : { precision }) })}
            >
              {current ? "✓" : "Use"}
            </button>
          )}
        </td>
      )}
    </tr>
  );
}
