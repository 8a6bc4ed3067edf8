import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { layersAfter, passAt, replayable } from "../core/build_log";
import type { BuildStory, ReplayedStep } from "../core/contract";
import { GLYPH, NONE, plural, printable, shorten } from "../core/format";
import type { ExplorerState } from "../explorer/explorer_state";
import { useKeys } from "../ui/hooks";
import { First, Last, Next, Previous } from "../ui/icons";
import { type Column, column, Rows } from "../ui/rows";
import { Memory, Tactics } from "../ui/tactics";
import { Terms } from "../ui/terms";
import { Tool } from "../ui/tool";

const saidBy = ({ origin }: Pick<BuildStory, "origin">): string =>
  origin === "predicted"
    ? `${GLYPH.predicted} predicted by the documented rules; no builder ran`
    : `${GLYPH.reported} reported by the builder in its log`;

/** How the engine on screen was built, from its log: decisions to step through, and tactics. */
export default function BuildView({ explorer }: { explorer: ExplorerState }) {
  const story = explorer.study.story.value;
  if (!story)
    return (
      <div class="rt-pad rt-explain" data-control="no-story">
        <p>
          How the builder came from the network to this engine stands in its log: which layers it fused, and
          which tactics it timed. There is none for this variant.
        </p>
        <p class="rt-quiet">
          Write one with <code>trtexec --verbose … &gt; build.log</code> and read it with the engine:{" "}
          <code>study.read("engine", layers=…, log="build.log")</code>
          {explorer.saved ? "." : ", or drop both files here."}
        </p>
      </div>
    );
  return <BuildSteps explorer={explorer} story={story} />;
}

interface Numbered {
  at: number;
  step: ReplayedStep;
}

function BuildSteps({ explorer, story }: { explorer: ExplorerState; story: BuildStory }) {
  const { study } = explorer;
  const total = story.steps.length;
  const at = Math.min(Math.max(0, study.view.value.step), total);
  const box = useRef<HTMLDivElement>(null);
  const stepTo = (step: number): void => study.replay(Math.min(total, Math.max(0, step)));
  useKeys(box, ({ key }) => {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: total }[key];
    if (to !== undefined) stepTo(to);
    return to !== undefined;
  });
  const steps = useMemo(() => story.steps.map((step, k): Numbered => ({ at: k + 1, step })), [story]);
  const columns = useMemo(
    () =>
      story.steps.some(({ nodes }) => nodes.length) ? COLUMNS : COLUMNS.filter(({ key }) => key !== "nodes"),
    [story],
  );
  const current = steps[at - 1]?.step;
  const replaying = study.view.value.grouping_nodes === "replay";
  const joins = replayable(story);
  const tool = (label: string, help: string, control: string, icon: ComponentChildren, target: number) => (
    <Tool
      label={label}
      help={help}
      control={control}
      disabled={target === at || target < 0 || target > total}
      onClick={() => stepTo(target)}
      icon={icon}
    />
  );
  return (
    <div class="rt-columns rt-story" ref={box} data-at={at}>
      <section>
        <div class="rt-caption">
          <h4 title={saidBy(story)}>
            {GLYPH[story.origin]} <Terms text="Layers" />
          </h4>
          <span title={story.title}>{story.counts.join(" → ")}</span>
        </div>
        <div class="rt-told">
          <Passes story={story} at={at} onPick={stepTo} />
          <Memory story={story} />
        </div>
      </section>
      <section>
        <div class="rt-caption rt-steps">
          <div class="rt-tools">
            {tool("First (Home)", "The network before the build began.", "first", <First />, 0)}
            {tool("Previous (←)", "One decision back.", "prev", <Previous />, at - 1)}
            {tool("Next (→)", "One decision on.", "next", <Next />, at + 1)}
            {tool("Last (End)", "The engine as it was built.", "last", <Last />, total)}
          </div>
          <input
            type="range"
            data-control="step"
            aria-label="Decisions of the build"
            aria-valuetext={
              at ? `${at} of ${total}: ${shorten(steps[at - 1]!.step.decision.text, 120)}` : "none yet"
            }
            min={0}
            max={total}
            value={at}
            onInput={(event) => stepTo(Number(event.currentTarget.value))}
          />
          <output>
            {at} of {total}
          </output>
          <label title={joins ? "Frames in the ONNX pane show what has been fused so far" : UNJOINED}>
            <input
              type="checkbox"
              data-control="replay"
              checked={replaying}
              disabled={!joins}
              onChange={() => study.change({ grouping_nodes: replaying ? "auto" : "replay" })}
            />{" "}
            on the graph
          </label>
        </div>
        {total ? (
          <Rows
            label={`Decisions of the build, ${plural(total, "step")}`}
            rows={steps}
            columns={columns}
            id={(row) => String(row.at)}
            selected={(row) => row.at === at}
            current={at ? String(at) : ""}
            attributes={(row) => ({
              "data-step": String(row.at),
              class: at && row.at > at ? "rt-quiet" : "",
            })}
            onPick={(row) => stepTo(row.at)}
            onPoint={(row) => {
              const node = row?.step.nodes.find((id) => study.box("node", id));
              study.point(node ? "node" : undefined, node);
            }}
          />
        ) : (
          <p class="rt-quiet rt-pad">The log has no decisions: it needs trtexec --verbose.</p>
        )}
        {current && (
          <p class="rt-note" data-control="decision">
            {shorten(printable(current.decision.text), 600)}
          </p>
        )}
      </section>
      <Tactics explorer={explorer} story={story} />
    </div>
  );
}

const UNJOINED = "No decision joins nodes of this model";

const COLUMNS: Column<Numbered>[] = [
  column("#", ({ at }) => at, { numeric: true }),
  column("Action", ({ step }) => step.decision.action),
  column("Rule", ({ step }) => step.decision.rule, {
    extra: "rt-extra",
    hover: ({ step }) => step.decision.rule,
  }),
  column("Builder's message", ({ step }) => step.decision.text, {
    cell: ({ step: { decision } }) => (
      <td
        class="rt-text rt-wide-cell"
        title={`${shorten(decision.text, 600)}\nline ${decision.line} of the log`}
      >
        {shorten(printable(decision.text), 300)}
      </td>
    ),
  }),
  column("Nodes", ({ step }) => step.nodes.length, { numeric: true, extra: "rt-extra" }),
  column("Line", ({ step }) => step.decision.line, { numeric: true, title: "Line of the log" }),
];

interface PassesProps {
  story: BuildStory;
  at: number;
  onPick(step: number): void;
}

function Passes({ story, at, onPick }: PassesProps) {
  const { passes } = story;
  const most = Math.max(1, ...passes.flatMap(({ before, after }) => [before ?? 0, after ?? 0]));
  const current = passAt(story, at);
  const list = useRef<HTMLUListElement>(null);
  useEffect(() => {
    const [row, box] = [list.current?.children[current], list.current?.parentElement];
    if (!(row instanceof HTMLElement) || !box) return;
    const [top, bottom] = [row.offsetTop, row.offsetTop + row.offsetHeight];
    box.scrollTop = Math.min(top, Math.max(box.scrollTop, bottom - box.clientHeight));
  }, [current]);
  useKeys(list, ({ key, target }) => {
    const by = { ArrowUp: -1, ArrowDown: 1 }[key];
    if (!by) return false;
    const buttons = [...list.current!.querySelectorAll("button")];
    const next = buttons[buttons.indexOf(target as HTMLButtonElement) + by];
    next?.focus();
    next?.click();
    return true;
  });
  return (
    <ul class="rt-bars rt-passes" aria-label="Passes of the builder" ref={list}>
      {passes.map((pass, k) => {
        const { name, before, after, first, steps } = pass;
        const layers = layersAfter(pass);
        const change =
          before !== null && after !== null && before !== after ? `${before} → ${after}` : layers;
        return (
          <li key={k}>
            <button
              type="button"
              data-pass={name}
              class={steps || change !== layers ? "" : "rt-quiet"}
              aria-pressed={k === current}
              tabIndex={k === Math.max(0, current) ? 0 : -1}
              title={`${name}: ${change ?? "layers unknown"}${change === layers ? " layers" : ""}, ${plural(steps, "decision")}\n${saidBy(story)}`}
              onClick={() => onPick(first + steps)}
            >
              <span>{shorten(name, 80)}</span>
              <i>{layers !== null && <i style={{ width: `${(100 * layers) / most}%` }} />}</i>
              <span>{change ?? NONE}</span>
            </button>
          </li>
        );
      })}
    </ul>
  );
}
