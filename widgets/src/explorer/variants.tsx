import { useEffect, useRef, useState } from "preact/hooks";
import type { Chip } from "../core/contract";
import { NONE, plural, quantity } from "../core/format";
import { Beside, Close, More, Pin, Warning } from "../ui/icons";
import { type Item, MenuList } from "../ui/menu";
import { Terms } from "../ui/terms";
import { Tool } from "../ui/tool";
import type { ExplorerState } from "./explorer_state";
import { LARGER } from "./presentation";
import { RandomMark } from "./random_input";
import { measurable, measureLabel } from "./stage_status";
import { type Column, variantColumns } from "./variant_columns";
import { askAccuracy } from "./why";

/** What the end of a row takes, and a question in it, in pixels. */
const [TOOLS, WHY] = [74, 44];

/** The variants built so far, a row each. */
export function Variants({ explorer }: { explorer: ExplorerState }) {
  const chips = explorer.chips.value;
  const current = explorer.study.engine.value?.variant ?? explorer.study.view.value.variant;
  const { panes, compared: other } = explorer.study.view.value;
  const compared = panes.includes("other") ? other : "";
  const room =
    explorer.width.value / (explorer.presentation.on.value ? LARGER : 1) -
    TOOLS -
    (chips.some(fell) ? WHY : 0);
  const columns = variantColumns(chips, room);
  const [menu, setMenu] = useState<{ id: string; left: number; top: number } | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const rows = useRef<HTMLDivElement>(null);
  const open = chips.find(({ id }) => id === menu?.id);
  const opener = (id: string): HTMLElement | null =>
    rows.current!.querySelector<HTMLElement>(`[data-chip="${CSS.escape(id)}"] .rt-more`);
  useEffect(() => {
    const row = rows.current?.querySelector<HTMLElement>("tr.rt-current");
    if (!row) return;
    const { scrollTop, clientHeight } = rows.current!;
    const head = rows.current!.querySelector("thead")!.offsetHeight;
    const last = row.offsetTop + row.offsetHeight - clientHeight;
    if (row.offsetTop - head < scrollTop) rows.current!.scrollTop = row.offsetTop - head;
    else if (last > scrollTop) rows.current!.scrollTop = last;
  }, [current, chips]);
  const place = (id: string): void => {
    const button = opener(id)!.getBoundingClientRect();
    const home = box.current!.getBoundingClientRect();
    setMenu({ id, left: button.left - home.left, top: button.bottom - home.top });
  };
  return (
    <div class="rt-variants" ref={box}>
      <Notices explorer={explorer} />
      {chips.length > 0 && (
        <div class="rt-variant-rows" ref={rows} onScroll={() => open && place(open.id)}>
          <table aria-label="Variants">
            <thead>
              <tr>
                {columns.map(({ key, heading, meaning }) => (
                  <th key={key} scope="col" data-column={key} title={meaning}>
                    <Terms text={heading} />
                  </th>
                ))}
                <th aria-label="Actions" />
              </tr>
            </thead>
            <tbody>
              {chips.map((chip) => (
                <VariantRow
                  key={chip.id}
                  explorer={explorer}
                  columns={columns}
                  chip={chip}
                  current={chip.id === current}
                  compared={chip.id === compared}
                  open={chip.id === open?.id}
                  onMenu={() => (chip.id === open?.id ? setMenu(null) : place(chip.id))}
                />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {open && menu && (
        <MenuList
          key={open.id}
          label={`More for ${open.label}`}
          items={itemsOf(explorer, open)}
          left={menu.left}
          top={menu.top}
          onClose={() => {
            setMenu(null);
            opener(open.id)?.focus();
          }}
        />
      )}
    </div>
  );
}

/** What is said once of all variants, above the table. */
function Notices({ explorer }: { explorer: ExplorerState }) {
  const [summary, what] = explorer.notice.value.split("\n");
  const empty = explorer.chips.value.length === 0;
  const random = RandomMark({ explorer });
  if (!empty && !summary && !random && !explorer.link.value) return null;
  return (
    <div class="rt-notices">
      {empty && (
        <span class="rt-quiet">
          <Terms text="Variants" />: none yet, press Build
        </span>
      )}
      {summary && (
        <details class="rt-notice">
          <summary>{summary}</summary>
          <p class="rt-popup">{what}</p>
        </details>
      )}
      {random}
      <NetronLink explorer={explorer} />
    </div>
  );
}

interface RowProps {
  explorer: ExplorerState;
  columns: readonly Column[];
  chip: Chip;
  current: boolean;
  compared: boolean;
  open: boolean;
  onMenu(): void;
}

function VariantRow({ explorer, columns, chip, current, compared, open, onMenu }: RowProps) {
  const { status, label } = chip;
  const dead = !explorer.saved && !current && status === "ready" ? explorer.unusable() : "";
  const show = (): void => {
    if (dead) return;
    if (status === "failed") explorer.ownFailure.value = chip.error;
    else if (status === "ready") explorer.send({ type: "show", variant: chip.id });
  };
  const [, ...numbers] = columns;
  return (
    <tr
      class={[
        `rt-${status}`,
        current && "rt-current",
        compared && "rt-compared",
        chip.baseline && "rt-baseline",
      ]
        .filter(Boolean)
        .join(" ")}
      data-chip={chip.id}
      onClick={(event) => (event.target as Element).closest(".rt-row-end") || show()}
    >
      <td>
        <button type="button" aria-pressed={current} aria-disabled={dead !== ""} title={dead || hint(chip)}>
          {(status === "building" || chip.stages.some(({ state }) => state === "waiting")) && (
            <i class="rt-spin" aria-hidden="true" />
          )}
          {status === "failed" && <Warning />}
          {chip.baseline && <Pin />}
          <b>{label}</b>
          {chip.about && <span>{chip.about}</span>}
        </button>
      </td>
      {status === "ready" ? (
        numbers.map((column) => (
          <td
            key={column.key}
            data-column={column.key}
            title={column.hover(chip)}
            class={styleOf(column, chip)}
          >
            {column.text(chip) || NONE}
            {column.key === "sqnr" && chip.sqnr !== null && chip.sqnr_told && <Warning />}
          </td>
        ))
      ) : (
        <td colSpan={numbers.length || 1}>{status}</td>
      )}
      <td class="rt-row-end">
        <div>
          <Compare explorer={explorer} chip={chip} compared={compared} />
          {!explorer.saved && (
            <button
              type="button"
              class="rt-tool rt-more"
              aria-haspopup="menu"
              aria-expanded={open}
              aria-label={`More for ${label}`}
              title="Make it the baseline, save what it is built from, build it again, remove it"
              onClick={onMenu}
            >
              <More />
            </button>
          )}
          {fell(chip) && !explorer.saved && (
            <button
              type="button"
              class="rt-link"
              data-control="why-accuracy"
              aria-label={`Why did the accuracy of ${label} fall?`}
              aria-disabled={explorer.busy() !== ""}
              title={explorer.busy() || "Where did the accuracy go? Opens the Accuracy tab and looks into it"}
              onClick={() => explorer.busy() || askAccuracy(explorer, chip.id)}
            >
              Why?
            </button>
          )}
        </div>
      </td>
    </tr>
  );
}

function Compare({ explorer, chip, compared }: Pick<RowProps, "explorer" | "chip" | "compared">) {
  const dead = explorer.saved || compared ? "" : unready(explorer, chip);
  const here = explorer.study.engine.value?.variant === chip.id ? "It is in the second pane already" : "";
  const reason = dead || (compared ? "" : here);
  return (
    <Tool
      label={compared ? "Close the third pane" : `Compare ${chip.label} in a third pane`}
      help={reason || "Its layers stand beside those of the variant that is shown."}
      control="compare"
      extra="rt-compare"
      pressed={compared}
      disabled={reason !== ""}
      icon={<Beside />}
      onClick={() => (compared ? explorer.paneSet.closeOther(explorer) : explorer.compare(chip.id))}
    />
  );
}

const styleOf = ({ key }: Column, { score_worse: worse, baseline }: Chip): string =>
  key === "estimate" ? "rt-estimate" : key === "delta" && worse && !baseline ? "rt-worse" : "";

const unready = (explorer: ExplorerState, { status }: Chip): string =>
  explorer.unusable() ||
  (status === "building" ? "It is being built" : status === "failed" ? "Its build failed" : "");

const fell = ({ status, score_worse: worse, baseline, recorded }: Chip): boolean =>
  status === "ready" && worse && !baseline && !recorded;

function itemsOf(explorer: ExplorerState, chip: Chip): Item[] {
  const why = unready(explorer, chip);
  const busy = chip.status === "failed" ? explorer.unusable() : why;
  return [
    {
      id: "baseline",
      label: "Make it the baseline",
      reason: why || (chip.baseline ? "It is the baseline" : ""),
      pick: () => explorer.send({ type: "baseline", variant: chip.id }),
    },
    ...(chip.recorded ? [] : exports(explorer, chip, why)),
    ...(chip.stages.some(measurable)
      ? [
          {
            id: "measure",
            label: measureLabel(chip.stages),
            reason: why || explorer.busy(),
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
  return [
    chip.about,
    chip.calibrator && `Calibrator ${chip.calibrator}`,
    chip.target && `Target ${chip.target}`,
    size,
    estimate,
    time,
    score,
    random,
    ...missing,
  ]
    .filter(Boolean)
    .join("\n");
}
