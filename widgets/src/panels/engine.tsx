import { useMemo } from "preact/hooks";
import type { Origin, Reformat, Slice, Summary, Transition } from "../core/contract";
import { NONE, originOf, plural, quantity, shorten, withOrigin } from "../core/format";
import type { ExplorerState } from "../explorer/explorer_state";
import { cividis, inkOn } from "../graph/colour";
import { Name } from "../ui/cells";
import { Quoted } from "../ui/quoted";
import { type Column, column, Rows } from "../ui/rows";
import { Terms } from "../ui/terms";
import { barsOf, cellKey, coverageFact, matrixOf, timeFact, weightOf } from "./engine_summary";

export default function EngineSummary({ explorer }: { explorer: ExplorerState }) {
  const engine = explorer.study.engine.value;
  const summary = explorer.summary.value;
  if (!engine || !summary) {
    const coming = engine !== null || explorer.study.preparing.value;
    const when = coming ? "is loading" : "appears here after the first build";
    return <p class="rt-quiet rt-pad">What the engine is made of {when}.</p>;
  }
  if (!summary.kinds.length)
    return (
      <p class="rt-quiet rt-pad">
        This engine reports no layers. Give the inspector's file: trtexec --exportLayerInfo, with
        --profilingVerbosity=detailed at the build.
      </p>
    );
  return <Layers explorer={explorer} summary={summary} />;
}

interface Times {
  origin: Origin | undefined;
  source: string;
}

function Layers({ explorer, summary }: { explorer: ExplorerState; summary: Summary }) {
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
          <Bars explorer={explorer} title="By kind" slices={summary.kinds} times={times} />
          {summary.precisions.some(({ name }) => name) && (
            <Bars explorer={explorer} title="By precision" slices={summary.precisions} times={times} />
          )}
        </section>
        <Transitions explorer={explorer} transitions={summary.transitions} times={times} />
        <Reformats explorer={explorer} reformats={summary.reformats} times={times} />
      </div>
    </>
  );
}

/** Selects layers; where they are the selection, clears it. */
function picker(explorer: ExplorerState, layers: string[]): { pressed: boolean; pick(): void } {
  const { study } = explorer;
  const selected = new Set(study.view.value.layers);
  const pressed =
    selected.size > 0 && layers.length === selected.size && layers.every((id) => selected.has(id));
  return { pressed, pick: () => (pressed ? study.clear() : study.reveal("layer", layers)) };
}

interface BarsProps {
  explorer: ExplorerState;
  title: string;
  slices: readonly Slice[];
  times: Times;
}

function Bars({ explorer, title, slices, times }: BarsProps) {
  const timed = slices.some(({ milliseconds }) => milliseconds !== null);
  return (
    <>
      <div class="rt-caption">
        <h4 title={title === "By precision" ? "The narrowest type that a layer reads or writes" : undefined}>
          {title}
        </h4>
        <span title={timed ? times.source : "The layers of this engine were not measured"}>
          {timed ? "layers, time, share" : "how many layers"}
        </span>
      </div>
      <ul aria-label={`Layers ${title.toLowerCase()}`}>
        {barsOf(slices).map(({ slice: { name, layers, milliseconds, share }, length }) => {
          const { pressed, pick } = picker(explorer, layers);
          return (
            <li key={name}>
              <button
                type="button"
                data-kind={name}
                aria-pressed={pressed}
                title={[
                  `Select ${plural(layers.length, "layer")}: ${name || "no type"}`,
                  timed && times.source,
                ]
                  .filter(Boolean)
                  .join("\n")}
                onClick={pick}
              >
                <span>{shorten(name, 60) || NONE}</span>
                <i>
                  <i style={{ width: `${100 * length}%` }} />
                </i>
                <span>{layers.length}</span>
                {timed && (
                  <>
                    <span>{withOrigin(times.origin, quantity(milliseconds, "ms"))}</span>
                    <span>{share === null ? NONE : percent(share)}</span>
                  </>
                )}
              </button>
            </li>
          );
        })}
      </ul>
    </>
  );
}

interface TransitionsProps {
  explorer: ExplorerState;
  transitions: readonly Transition[];
  times: Times;
}

const percent = (share: number): string => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

const STOPS = Array.from({ length: 9 }, (_, k) => cividis(k / 8)).join(", ");

/** How many layers read one type and write another, shaded by their time. */
function Transitions({ explorer, transitions, times }: TransitionsProps) {
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
                    const { pressed, pick } = picker(explorer, cell.layers);
                    const ground = cividis(most > 0 ? weightOf(cell, timed) / most : 0);
                    const time = withOrigin(times.origin, quantity(cell.milliseconds, "ms"));
                    return (
                      <td key={after}>
                        <button
                          type="button"
                          data-cell={cellKey(before, after)}
                          aria-pressed={pressed}
                          style={{ background: ground, color: inkOn(ground) }}
                          title={`${plural(cell.layers.length, "layer")} read ${before || "nothing"} and write ${after || "nothing"}${timed ? `\n${times.source}` : ""}`}
                          onClick={pick}
                        >
                          {cell.layers.length}
                          {cell.milliseconds !== null && <small>{time}</small>}
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
        <p class="rt-quiet rt-pad">The engine's files report no types.</p>
      )}
    </section>
  );
}

interface ReformatsProps {
  explorer: ExplorerState;
  reformats: readonly Reformat[];
  times: Times;
}

/** Layers that only change a type or a memory layout: why they are there, and how to be rid of them. */
function Reformats({ explorer, reformats, times }: ReformatsProps) {
  const { study } = explorer;
  const columns = useMemo(() => reformatColumns(reformats, times), [reformats, times.source]);
  const selected = new Set(study.view.value.layers);
  const current =
    reformats.find(({ layer }) => selected.has(layer)) ?? (reformats.length === 1 ? reformats[0] : undefined);
  return (
    <section>
      <div class="rt-caption">
        <h4>
          <Terms text="Reformats" />
        </h4>
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
      {current && (
        <p class="rt-note" data-control="reformat">
          <Quoted explorer={explorer} text={current.cause} /> <span class="rt-quiet">Remedy:</span>{" "}
          <Quoted explorer={explorer} text={current.fix} />
        </p>
      )}
    </section>
  );
}

function reformatColumns(reformats: readonly Reformat[], { origin, source }: Times): Column<Reformat>[] {
  const columns = [
    column<Reformat>("Tensor", ({ tensor }) => tensor, { cell: ({ tensor }) => <Name text={tensor} /> }),
  ];
  if (reformats.some(({ before, after }) => before || after))
    columns.push(
      column("Before → after", changeOf, {
        cell: (row) => (
          <td class="rt-change" title={changeOf(row)}>
            {changeOf(row)}
          </td>
        ),
      }),
    );
  if (reformats.some(({ milliseconds }) => milliseconds !== null))
    columns.push(
      column("Time", ({ milliseconds }) => milliseconds, {
        numeric: true,
        text: ({ milliseconds }) => withOrigin(origin, quantity(milliseconds, "ms")),
        hover: () => source,
      }),
    );
  columns.push(
    column("Cause", ({ cause }) => cause, {
      extra: "rt-extra",
      cell: ({ cause, fix }) => (
        <td class="rt-wide-cell rt-extra" title={`${cause}\nRemedy: ${fix}`}>
          {cause}
        </td>
      ),
    }),
  );
  return columns;
}

const changeOf = ({ before, after }: Reformat): string => `${before || NONE} → ${after || NONE}`;
