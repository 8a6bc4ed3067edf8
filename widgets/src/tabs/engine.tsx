import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { cividis, inkOn } from "../colour";
import type { EngineView, Origin, Reformat, Slice, Summary, Transition } from "../contract";
import { NONE, number, originOf, plural, quantity, shorten, withOrigin } from "../format";
import type { Lab } from "../lab";
import {
  barsOf,
  cellKey,
  coverageFact,
  layersWith,
  matrixOf,
  outsideOf,
  type Trait,
  timeFact,
  weightOf,
} from "../summary";
import { Name } from "../ui/cells";
import { Quoted } from "../ui/quoted";
import { type Column, Rows } from "../ui/rows";

/** What the layers of the engine on screen are, where its time goes, and what only moves data. */
export default function EngineSummary({ lab }: { lab: Lab }) {
  const engine = lab.study.engine.value;
  const summary = engine?.summary;
  if (!engine || !summary) {
    const coming = engine !== null || lab.study.preparing.value;
    const when = coming ? "is on its way" : "appears here after the first build";
    return <p class="rt-quiet rt-pad">What the engine is made of {when}.</p>;
  }
  if (!summary.kinds.length)
    return (
      <p class="rt-quiet rt-pad">
        This engine tells no layers. Give the inspector's file: trtexec --exportLayerInfo, with
        --profilingVerbosity=detailed at the build.
      </p>
    );
  return <Told lab={lab} engine={engine} summary={summary} />;
}

/** What stands beside times: their glyph, and where they come from. */
interface Times {
  origin: Origin | undefined;
  source: string;
}

function Told({ lab, engine, summary }: { lab: Lab; engine: EngineView; summary: Summary }) {
  const times: Times = {
    origin: originOf(summary.source),
    source: [summary.processor, summary.source].filter(Boolean).join(": "),
  };
  const facts = [coverageFact(summary.coverage), timeFact(summary)].filter((fact) => fact !== null);
  return (
    <>
      <div class="rt-caption rt-facts">
        {facts.map(({ id, text, why }) => (
          <span key={id} data-fact={id} title={why}>
            {text} <small>{why.split("\n")[0]}</small>
          </span>
        ))}
      </div>
      <div class="rt-columns rt-engine">
        <section class="rt-bars">
          <Bars lab={lab} engine={engine} title="By kind" trait="op" slices={summary.kinds} times={times}>
            <Outside summary={summary} times={times} />
          </Bars>
          {summary.precisions.some(({ name }) => name) && (
            <Bars
              lab={lab}
              engine={engine}
              title="By precision"
              trait="precision"
              slices={summary.precisions}
              times={times}
            />
          )}
        </section>
        <Transitions lab={lab} engine={engine} transitions={summary.transitions} times={times} />
        <Reformats lab={lab} engine={engine} reformats={summary.reformats} times={times} />
      </div>
    </>
  );
}

/** Selects the layers with a trait; where they are the selection, clears it. */
function picker(lab: Lab, { graph }: EngineView, trait: Trait): { pressed: boolean; pick(): void } {
  const { study } = lab;
  const selected = new Set(study.view.value.layers);
  const all = (): string[] => layersWith(graph, trait);
  const same = (layers: string[]): boolean =>
    layers.length === selected.size && layers.every((id) => selected.has(id));
  // Most of the time nothing is selected, and then nobody needs the layers of each of many rows.
  const pressed = selected.size > 0 && same(all());
  return { pressed, pick: () => (pressed ? study.clear() : study.reveal("layer", all())) };
}

interface BarsProps {
  lab: Lab;
  engine: EngineView;
  title: string;
  trait: "op" | "precision";
  slices: readonly Slice[];
  times: Times;
  /** A last row of its own kind. */
  children?: ComponentChildren;
}

/** What the latency of whole inferences has beyond its layers, or their sum beyond it. */
function Outside({ summary, times }: { summary: Summary; times: Times }) {
  const outside = outsideOf(summary);
  if (!outside) return null;
  const { time, share, why } = outside;
  return (
    <li class="rt-outside" data-fact="outside" title={`${why}\nShare of the latency\n${times.source}`}>
      <span>{time < 0 ? "Overlap, overhead" : "Outside the layers"}</span>
      <i />
      <span>{NONE}</span>
      <span>{withOrigin(times.origin, quantity(time, "ms"))}</span>
      <span>{number(share)} %</span>
    </li>
  );
}

/** Horizontal bars with numbers; each selects its layers. */
function Bars({ lab, engine, title, trait, slices, times, children }: BarsProps) {
  const timed = slices.some(({ time }) => time !== null);
  return (
    <>
      <div class="rt-caption">
        <h4 title={trait === "precision" ? "The narrowest type that a layer reads or writes" : undefined}>
          {title}
        </h4>
        <span title={timed ? times.source : "Nobody has timed the layers of this engine itself"}>
          {timed ? "layers, time, share" : "how many layers"}
        </span>
      </div>
      <ul aria-label={`Layers ${title.toLowerCase()}`}>
        {barsOf(slices).map(({ slice: { name, layers, time, share }, length }) => {
          const { pressed, pick } = picker(lab, engine, { [trait]: name });
          return (
            <li key={name}>
              <button
                type="button"
                data-kind={name}
                aria-pressed={pressed}
                title={[`Select ${plural(layers, "layer")}: ${name || "no type told"}`, timed && times.source]
                  .filter(Boolean)
                  .join("\n")}
                onClick={pick}
              >
                <span>{shorten(name, 60) || NONE}</span>
                <i>
                  <i style={{ width: `${100 * length}%` }} />
                </i>
                <span>{layers}</span>
                {timed && (
                  <>
                    <span>{withOrigin(times.origin, quantity(time, "ms"))}</span>
                    <span>{share === null ? NONE : `${share.toFixed(share < 10 ? 1 : 0)} %`}</span>
                  </>
                )}
              </button>
            </li>
          );
        })}
        {children}
      </ul>
    </>
  );
}

interface TransitionsProps {
  lab: Lab;
  engine: EngineView;
  transitions: readonly Transition[];
  times: Times;
}

const STOPS = Array.from({ length: 9 }, (_, k) => cividis(k / 8)).join(", ");

/** How many layers read one type and write another, shaded by their time. */
function Transitions({ lab, engine, transitions, times }: TransitionsProps) {
  const { reads, writes, cells, most, timed } = matrixOf(transitions);
  return (
    <section class="rt-transitions" data-control="transitions">
      <div class="rt-caption">
        <h4 title="How many layers read the type of a row and write the type of a column">
          Reads ↓ writes →
        </h4>
      </div>
      {transitions.some(({ before, after }) => before || after) ? (
        <div class="rt-matrix">
          <table aria-label="Types that layers read, by types that they write">
            <thead>
              <tr>
                <th scope="col">
                  <span class="rt-spoken">reads</span>
                </th>
                {writes.map((name) => (
                  <th scope="col" key={name} title={`writes ${name || "nothing"}`}>
                    {name || NONE}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {reads.map((before) => (
                <tr key={before}>
                  <th scope="row" title={`reads ${before || "nothing"}`}>
                    {before || NONE}
                  </th>
                  {writes.map((after) => {
                    const cell = cells.get(cellKey(before, after));
                    if (!cell) return <td key={after} />;
                    const { pressed, pick } = picker(lab, engine, { reads: before, writes: after });
                    const ground = cividis(most > 0 ? weightOf(cell, timed) / most : 0);
                    const told = withOrigin(times.origin, quantity(cell.time, "ms"));
                    return (
                      <td key={after}>
                        <button
                          type="button"
                          data-cell={cellKey(before, after)}
                          aria-pressed={pressed}
                          style={{ background: ground, color: inkOn(ground) }}
                          title={`${plural(cell.layers, "layer")} read ${before || "nothing"} and write ${after || "nothing"}${timed ? `\n${times.source}` : ""}`}
                          onClick={pick}
                        >
                          {cell.layers}
                          {cell.time !== null && <small>{told}</small>}
                        </button>
                      </td>
                    );
                  })}
                </tr>
              ))}
            </tbody>
          </table>
          {most > 0 && (
            <p class="rt-scale" title={timed ? times.source : "No times of layers were given"}>
              0 <i class="rt-ramp" style={{ background: `linear-gradient(90deg, ${STOPS})` }} />{" "}
              {timed ? withOrigin(times.origin, quantity(most, "ms")) : plural(most, "layer")}
            </p>
          )}
        </div>
      ) : (
        <p class="rt-quiet rt-pad">The engine's files tell no types.</p>
      )}
    </section>
  );
}

interface ReformatsProps {
  lab: Lab;
  engine: EngineView;
  reformats: readonly Reformat[];
  times: Times;
}

/** Layers that only change a type or a memory layout: why they are there, and how to be rid of them. */
function Reformats({ lab, reformats, times }: ReformatsProps) {
  const { study } = lab;
  const columns = useMemo(() => reformatColumns(reformats, times), [reformats, times.source]);
  const selected = new Set(study.view.value.layers);
  const shown =
    reformats.find(({ layer }) => selected.has(layer)) ?? (reformats.length === 1 ? reformats[0] : undefined);
  return (
    <section>
      <div class="rt-caption">
        <h4>Reformats</h4>
        <span>
          {reformats.length
            ? reformats.length > 1
              ? `${reformats.length} · select one for its remedy`
              : 1
            : ""}
        </span>
      </div>
      {reformats.length ? (
        <Rows
          label="Layers that only change a type or a memory layout"
          rows={reformats}
          columns={columns}
          id={({ layer, tensor }) => `${layer} ${tensor}`}
          selected={({ layer }) => selected.has(layer)}
          attributes={({ layer }) => ({ "data-reformat": layer })}
          onPick={({ layer }, add) => study.select("layer", layer, { add, reveal: true })}
          onPoint={(row) => study.point(row ? "layer" : undefined, row?.layer)}
        />
      ) : (
        <p class="rt-quiet rt-pad">No layer only changes a type or a memory layout.</p>
      )}
      {shown && (
        <p class="rt-note" data-control="reformat">
          <Quoted lab={lab} text={shown.cause} /> <span class="rt-quiet">Remedy:</span>{" "}
          <Quoted lab={lab} text={shown.fix} />
        </p>
      )}
    </section>
  );
}

function reformatColumns(reformats: readonly Reformat[], { origin, source }: Times): Column<Reformat>[] {
  return [
    {
      key: "tensor",
      label: "Tensor",
      by: ({ tensor }) => tensor,
      cell: ({ tensor }) => <Name text={tensor} />,
    },
    ...(reformats.some(({ before, after }) => before || after)
      ? [
          {
            key: "change",
            label: "Before → after",
            by: (row: Reformat) => changeOf(row),
            cell: (row: Reformat) => (
              <td class="rt-change" title={changeOf(row)}>
                {changeOf(row)}
              </td>
            ),
          },
        ]
      : []),
    ...(reformats.some(({ time }) => time !== null)
      ? [
          {
            key: "time",
            label: "Time",
            numeric: true,
            by: ({ time }: Reformat) => time,
            cell: ({ time }: Reformat) => (
              <td class="rt-num" title={source}>
                {withOrigin(origin, quantity(time, "ms"))}
              </td>
            ),
          },
        ]
      : []),
    {
      key: "cause",
      label: "Cause",
      extra: "rt-extra",
      by: ({ cause }) => cause,
      cell: ({ cause, fix }) => (
        <td class="rt-wide-cell rt-extra" title={`${cause}\nRemedy: ${fix}`}>
          {cause}
        </td>
      ),
    },
  ];
}

const changeOf = ({ before, after }: Reformat): string => `${before || NONE} → ${after || NONE}`;
