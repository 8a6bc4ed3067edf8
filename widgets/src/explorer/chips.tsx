import { useEffect, useRef, useState } from "preact/hooks";
import type { Chip } from "../core/contract";
import { difference, GLYPH, plural, quantity, shorten, timeOf } from "../core/format";
import { Close, More, Pin, Warning } from "../ui/icons";
import { type Item, MenuList } from "../ui/menu";
import { Terms } from "../ui/terms";
import { Tool } from "../ui/tool";
import type { ExplorerState } from "./explorer_state";
import { LARGER } from "./presentation";
import { RandomMark, RandomTag } from "./random_input";
import { measurable, measureLabel } from "./stage_status";
import { askAccuracy } from "./why";

/** The variants built so far: size, time, and accuracy as a difference from the baseline. */
export function Chips({ explorer }: { explorer: ExplorerState }) {
  const chips = explorer.chips.value;
  const [summary, what] = explorer.notice.value.split("\n");
  const current = explorer.study.engine.value?.variant ?? explorer.study.view.value.variant;
  const { panes, compared: other } = explorer.study.view.value;
  const compared = panes.includes("other") ? other : "";
  const room = explorer.width.value / (explorer.presentation.on.value ? LARGER : 1) - BESIDE;
  const severalTargets = new Set(chips.map(({ target }) => target)).size > 1;
  const [menu, setMenu] = useState<{ id: string; left: number } | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const row = useRef<HTMLDivElement>(null);
  const open = chips.find(({ id }) => id === menu?.id);
  useEffect(() => {
    const chip = row.current?.querySelector<HTMLElement>(".rt-current");
    if (chip) {
      const { scrollLeft, clientWidth } = row.current!;
      const last = chip.offsetLeft + chip.offsetWidth + EDGE - clientWidth;
      if (chip.offsetLeft < scrollLeft) row.current!.scrollLeft = chip.offsetLeft - EDGE;
      else if (last > scrollLeft) row.current!.scrollLeft = Math.min(last, chip.offsetLeft - EDGE);
    }
  }, [current, chips, explorer.width.value]);
  const place = (id: string): void => {
    const button = row.current!.querySelector(`[data-chip="${CSS.escape(id)}"] .rt-more`)!;
    setMenu({ id, left: button.getBoundingClientRect().left - box.current!.getBoundingClientRect().left });
  };
  return (
    <div class="rt-chips" role="toolbar" aria-label="Variants" ref={box}>
      <span class="rt-quiet">
        <Terms text="Variants" />
      </span>
      {chips.length === 0 && <span class="rt-quiet">none yet: press Build</span>}
      <div class="rt-row" ref={row} onScroll={() => open && place(open.id)}>
        {chips.map((chip) => (
          <ChipView
            key={chip.id}
            explorer={explorer}
            chip={chip}
            current={chip.id === current}
            compared={chip.id === compared}
            tagged={severalTargets}
            brief={brief(chips.length, room) || (chip.id !== current && chips.length * WIDE_CHIP > room)}
            open={chip.id === open?.id}
            onMenu={() => (chip.id === open?.id ? setMenu(null) : place(chip.id))}
          />
        ))}
      </div>
      {summary && (
        <details class="rt-notice">
          <summary>{summary}</summary>
          <p class="rt-popup rt-right">{what}</p>
        </details>
      )}
      <RandomMark explorer={explorer} />
      <NetronLink explorer={explorer} />
      {open && (
        <MenuList
          key={open.id}
          label={`More for ${open.label}`}
          items={itemsOf(explorer, open)}
          left={menu!.left}
          onClose={() => {
            setMenu(null);
            row.current?.querySelector<HTMLElement>(`[data-chip="${CSS.escape(open.id)}"] .rt-more`)?.focus();
          }}
        />
      )}
    </div>
  );
}

interface ChipProps {
  explorer: ExplorerState;
  chip: Chip;
  current: boolean;
  compared: boolean;
  tagged: boolean;
  brief: boolean;
  open: boolean;
  onMenu(): void;
}

function ChipView({ explorer, chip, current, compared, tagged, brief, open, onMenu }: ChipProps) {
  const show = (): void => {
    if (chip.status === "failed") explorer.ownFailure.value = chip.error;
    else if (chip.status === "ready") explorer.send({ type: "show", variant: chip.id });
  };
  const dead = !explorer.saved && !current && chip.status === "ready" ? explorer.unusable() : "";
  return (
    <div
      class={`rt-chip rt-${chip.status} ${current ? "rt-current" : ""} ${compared ? "rt-compared" : ""}`}
      data-chip={chip.id}
    >
      <button
        type="button"
        aria-pressed={current}
        aria-disabled={dead !== ""}
        title={dead || hint(chip)}
        onClick={() => dead || show()}
      >
        {(chip.status === "building" || chip.stages.some(({ state }) => state === "waiting")) && (
          <i class="rt-spin" aria-hidden="true" />
        )}
        {chip.status === "failed" && <Warning />}
        {chip.baseline && <Pin />}
        <b>{chip.label}</b>
        {chip.about && !brief && <span>{chip.about}</span>}
        {tagged && chip.target && !chip.label.endsWith(`@${chip.target}`) && (
          <small class="rt-tag">{shorten(chip.target, LONGEST_TARGET)}</small>
        )}
        <Facts chip={chip} brief={brief} />
      </button>
      {fell(chip) && !explorer.saved && (
        <button
          type="button"
          class="rt-link"
          data-control="why-accuracy"
          aria-label={`Why did the accuracy of ${chip.label} fall?`}
          aria-disabled={explorer.busy() !== ""}
          title={explorer.busy() || "Where did the accuracy go? Opens the Accuracy tab and looks into it"}
          onClick={() => explorer.busy() || askAccuracy(explorer, chip.id)}
        >
          Why?
        </button>
      )}
      <button
        type="button"
        class="rt-more"
        aria-haspopup="menu"
        aria-expanded={open}
        aria-label={`More for ${chip.label}`}
        title="Compare it, make it the baseline, save what it is built from, build it again, remove it"
        onClick={onMenu}
      >
        <More />
      </button>
    </div>
  );
}

const fell = ({ status, score_worse: worse, baseline, recorded }: Chip): boolean =>
  status === "ready" && worse && !baseline && !recorded;

const LONGEST_TARGET = 22;
const [WIDE_CHIP, BRIEF_CHIP] = [490, 260];
const BESIDE = 90;
const brief = (chips: number, room: number): boolean => WIDE_CHIP + (chips - 1) * BRIEF_CHIP > room;
const PREDICTED = "by the documented rules of TensorRT: no compiler made these layers";
const EDGE = 28;

function itemsOf(explorer: ExplorerState, chip: Chip): Item[] {
  const dead = explorer.unusable();
  const busy = dead || (chip.status === "building" ? "It is being built" : "");
  const unready = busy || (chip.status === "failed" ? "Its build failed" : "");
  const view = explorer.study.view.peek();
  const compared = view.panes.includes("other") && view.compared === chip.id;
  const here = explorer.study.engine.value?.variant === chip.id ? "It is in the second pane already" : "";
  const compare: Item = {
    id: "compare",
    label: compared ? "Close the third pane" : "Compare in a third pane",
    reason: compared ? "" : (explorer.saved ? "" : unready) || here,
    pick: () => (compared ? explorer.paneSet.closeOther(explorer) : explorer.compare(chip.id)),
  };
  if (explorer.saved) return [compare];
  return [
    compare,
    {
      id: "baseline",
      label: "Make it the baseline",
      reason: unready || (chip.baseline ? "It is the baseline" : ""),
      pick: () => explorer.send({ type: "baseline", variant: chip.id }),
    },
    ...(chip.recorded ? [] : exports(explorer, chip, unready)),
    ...(chip.stages.some(measurable)
      ? [
          {
            id: "measure",
            label: measureLabel(chip.stages),
            reason: unready || explorer.busy(),
            pick: () => explorer.measure(chip.id),
          },
        ]
      : []),
    {
      id: "rebuild",
      label: "Build again",
      reason: busy,
      pick: () => explorer.send({ type: "rebuild", variant: chip.id }),
    },
    {
      id: "remove",
      label: "Remove",
      reason: busy,
      pick: () => explorer.send({ type: "remove", variant: chip.id }),
    },
  ];
}

function exports(explorer: ExplorerState, { id }: Chip, reason: string): Item[] {
  return [
    { id: "save-onnx", label: "Save the prepared ONNX", reason, pick: () => explorer.save(id) },
    { id: "elsewhere", label: "Build it elsewhere …", reason, pick: () => explorer.showCommands(id) },
  ];
}

/** Where the kernel has opened Netron: a click opens it in a tab, because a browser opens none by itself. */
function NetronLink({ explorer }: { explorer: ExplorerState }) {
  const url = explorer.link.value;
  if (!url) return null;
  const forget = (): void => {
    explorer.link.value = "";
  };
  return (
    <span class="rt-notice" role="status" data-control="link">
      Netron is ready:{" "}
      <a class="rt-link" href={url} target="_blank" rel="noopener noreferrer" onClick={forget}>
        open it in a new tab
      </a>
      <Tool
        label="Close this notice"
        help="Netron goes on where it is open."
        onClick={forget}
        icon={<Close />}
      />
    </span>
  );
}

function Facts({ chip, brief }: { chip: Chip; brief: boolean }) {
  if (chip.status === "failed") return <span>failed</span>;
  if (chip.status === "building") return <span>building</span>;
  const delta = chip.score_delta;
  return (
    <>
      {!brief && (
        <span>
          {chip.nodes > 0 && `${chip.nodes} → `}
          {plural(chip.layers, chip.counted)}
        </span>
      )}
      {chip.predicted && (
        <span class="rt-quiet" title={PREDICTED}>
          {GLYPH.predicted} predicted
        </span>
      )}
      {chip.estimate_gpu && (
        <span class="rt-strong rt-estimate">
          ○ {chip.estimate_gpu} {chip.estimate === null ? "not measured" : quantity(chip.estimate, "ms")}
        </span>
      )}
      {chip.time !== null && !(brief && chip.estimate_gpu) && (
        <span class={chip.estimate_gpu ? "" : "rt-strong"}>{timeOf(chip)}</span>
      )}
      {delta !== null && !chip.baseline ? (
        <span class={chip.score_worse ? "rt-worse" : "rt-quiet"}>{difference(delta, chip.score_unit)}</span>
      ) : (
        chip.score !== null && <span class="rt-strong">{quantity(chip.score, chip.score_unit)}</span>
      )}
      <RandomTag chip={chip} />
    </>
  );
}

function hint(chip: Chip): string {
  if (chip.status === "failed")
    return chip.error?.message.slice(0, 300) ?? "The build failed; click to see why";
  const score = chip.score === null ? "" : `${chip.score_told} (${chip.score_source})`;
  const time = chip.time === null ? "" : `${quantity(chip.time, "ms")}, ${chip.time_source}`;
  const nodes = chip.nodes ? `${plural(chip.nodes, "node")} once prepared for this precision, ` : "";
  const size = nodes + plural(chip.layers, chip.counted);
  const estimate =
    chip.estimate === null
      ? chip.estimate_source
      : `${quantity(chip.estimate, "ms")}, ${chip.estimate_source}`;
  const random = chip.random && `Random input: its ${chip.random} say nothing about the task`;
  const missing = chip.stages.filter(measurable).map(({ text }) => text);
  return [chip.about, chip.target && `Target ${chip.target}`, size, estimate, time, score, random, ...missing]
    .filter(Boolean)
    .join("\n");
}
