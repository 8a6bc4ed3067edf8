import { useState } from "preact/hooks";
import { contestShown, marginWords } from "../core/build_log";
import type { BuildStory, Candidate, Contest } from "../core/contract";
import { ending, GLYPH, NONE, plural, quantity, shorten } from "../core/format";
import type { ExplorerState } from "../explorer/explorer_state";
import { Name } from "./cells";
import { type Column, column, Rows } from "./rows";
import { Terms } from "./terms";

/** Tactics were timed where the engine was built, which need not be where it runs. */
const TIMED = `${GLYPH.reported} reported: measured by the builder on the machine that built the engine`;

const UNTIMED = {
  other: "The log has no times of tactics. That of trtexec --verbose has them; TensorRT-RTX times none.",
  rtx: "TensorRT-RTX chooses kernels on the GPU where the engine runs, so that its log times none.",
};

export function Tactics({ explorer, story }: { explorer: ExplorerState; story: BuildStory }) {
  const { study } = explorer;
  const { contests } = story;
  const rtx = study.engine.value?.graph.title.startsWith("TensorRT-RTX");
  const [picked, setPicked] = useState("");
  const layers = study.view.value.layers;
  const selected = new Set(layers);
  const current = contestShown(contests, layers, picked);
  return (
    <section>
      <div class="rt-caption">
        <h4 title={TIMED}>
          {GLYPH.reported} <Terms text="Tactics" />
        </h4>
        <span title={TIMED}>timed at the build</span>
      </div>
      {contests.length ? (
        <Rows
          label="Tactics by layer"
          rows={contests}
          columns={COLUMNS}
          id={({ layer }) => layer}
          selected={({ id }) => id !== "" && selected.has(id)}
          current={current?.layer ?? ""}
          attributes={(row) => ({ "data-contest": row.layer, class: row === current ? "rt-shown" : "" })}
          onPick={({ layer, id }, add) => {
            setPicked(layer);
            if (id) study.select("layer", id, { add, reveal: true });
          }}
          onPoint={(row) => study.point(row?.id ? "layer" : undefined, row?.id)}
        />
      ) : (
        <p class="rt-quiet rt-pad">{UNTIMED[rtx ? "rtx" : "other"]}</p>
      )}
      {current && (
        <div class="rt-note">
          <Candidates contest={current} />
        </div>
      )}
    </section>
  );
}

export function Memory({ story: { memory, notes } }: { story: BuildStory }) {
  return (
    <>
      {memory.length > 0 && (
        <>
          <h4 title={`${GLYPH.reported} reported by the builder`}>{GLYPH.reported} Memory</h4>
          <dl>
            {memory.map(({ key, value }) => (
              <div key={key}>
                <dt>{key}</dt>
                <dd>{value}</dd>
              </div>
            ))}
          </dl>
        </>
      )}
      {notes.length > 0 && (
        <>
          <h4>Notes</h4>
          <ul>
            {notes.map((note) => (
              <li key={note}>{shorten(note, 400)}</li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}

function Candidates({ contest }: { contest: Contest }) {
  const { layer, count, margin, candidates } = contest;
  const most = Math.max(...candidates.map(timeOf), 0);
  return (
    <>
      <h4 title={shorten(layer, 600)}>{ending(layer, 80)}</h4>
      <p class="rt-quiet" title={TIMED}>
        {[
          !count
            ? "from a timing cache"
            : count > candidates.length
              ? `${candidates.length} fastest of ${count}`
              : plural(count, "tactic"),
          marginWords(margin),
          candidates[0]?.formats,
        ]
          .filter(Boolean)
          .join(" · ")}
      </p>
      <ul class="rt-bars rt-candidates" aria-label="Tactics by time">
        {candidates.map((candidate, k) => (
          <li
            key={k}
            class={k === 0 ? "rt-won" : ""}
            title={[candidate.name, candidate.tactic.tactic, TIMED].filter(Boolean).join("\n")}
          >
            <span>
              <bdi dir="ltr">{ending(candidate.name, 80)}</bdi>
            </span>
            <i>
              <i style={{ width: `${most > 0 ? (100 * timeOf(candidate)) / most : 0}%` }} />
            </i>
            <span>
              {GLYPH.reported} {quantity(timeOf(candidate), "ms")}
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}

const timeOf = ({ tactic }: Candidate): number => tactic.milliseconds;

const COLUMNS: Column<Contest>[] = [
  column("Layer", ({ layer }) => layer, { cell: ({ layer }) => <Name text={layer} /> }),
  column("Winner", ({ candidates }) => candidates[0]?.name ?? "", {
    extra: "rt-extra",
    cell: ({ candidates }) => <Name text={candidates[0]?.name || NONE} extra="rt-extra" />,
  }),
  column("Time", ({ candidates }) => (candidates[0] ? timeOf(candidates[0]) : null), {
    title: TIMED,
    numeric: true,
    text: ({ candidates }) => candidates[0] && `${GLYPH.reported} ${quantity(timeOf(candidates[0]), "ms")}`,
    hover: () => TIMED,
  }),
  column("Won by", ({ margin }) => margin, {
    title: "Time of the next tactic by that of the winner",
    numeric: true,
    text: ({ margin }) => margin !== null && `${margin.toFixed(2)}×`,
    hover: ({ margin }) => marginWords(margin),
  }),
  column("Timed", ({ count }) => count, {
    title: "Tactics that were timed, in all combinations of formats",
    numeric: true,
    extra: "rt-extra",
  }),
];
