import type { ComponentChildren } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import type { Fact, Panel, PanelName, Row } from "../core/contract";
import { GLYPH, NONE, number, plural, quantity, shorten } from "../core/format";
import type { ExplorerState } from "../explorer/explorer_state";
import { Settings } from "../explorer/panel_settings";
import { Copy, Export, Name } from "../ui/cells";
import { Chart, type Joint } from "../ui/chart";
import { useDelayed, useResize } from "../ui/hooks";
import { Quoted } from "../ui/quoted";
import { type Column, Rows } from "../ui/rows";
import { Terms } from "../ui/terms";
import { LinkIndex } from "./page";

interface Props {
  explorer: ExplorerState;
  name: PanelName;
  choice: ComponentChildren;
}

const CAUSE = "cause";
const PALE_MS = 150;
const WORDS_MS = 600;

export default function Analysis({ explorer, name, choice }: Props) {
  const answer = explorer.requests.answers.value[name];
  const unusable = explorer.saved ? "" : explorer.unusable();
  const panel = unusable && answer?.variant !== explorer.study.engine.value?.variant ? undefined : answer;
  const waiting = explorer.requests.waiting.value;
  const pale = useDelayed(waiting, PALE_MS);
  const words = useDelayed(waiting, WORDS_MS);
  return (
    <div class={`rt-analysis ${pale ? "rt-pale" : ""}`} data-panel={name} aria-busy={waiting}>
      <div class="rt-lead">
        {choice}
        <h4>{panel && <Terms text={panel.title} />}</h4>
        <p class="rt-quiet" title={panel?.lead ?? ""}>
          {panel && <Terms text={panel.lead} />}
        </p>
        <span role="status" class="rt-working">
          {words && (explorer.isWaiting.value ? "Waiting for the kernel …" : "Computing …")}
        </span>
      </div>
      {panel && <PanelContent explorer={explorer} panel={panel} />}
      {!panel && unusable && (
        <p class="rt-quiet rt-pad" data-control="unanswered">
          The kernel computes this panel when it is opened. {unusable}.
        </p>
      )}
    </div>
  );
}

function PanelContent({ explorer, panel }: { explorer: ExplorerState; panel: Panel }) {
  const { facts, figures, rows, notes, problem, name, scripts } = panel;
  const joint = useJoint(explorer, panel);
  const hasText = rows.length > 0 || notes.length > 0;
  return (
    <>
      <div class="rt-known">
        <Settings explorer={explorer} panel={panel} />
        {facts.length > 0 && <Cards facts={facts} />}
      </div>
      {problem && <Problem explorer={explorer} panel={panel} />}
      {(figures.length > 0 || scripts.length > 0 || hasText) && (
        <div class={`rt-columns rt-drawn ${figures.length > 1 ? "rt-many" : ""}`}>
          {scripts.length > 0 && (
            <section class="rt-scripts">
              {scripts.map(({ label, text }) => (
                <Lines key={label} label={label} text={text} />
              ))}
            </section>
          )}
          {figures.length > 0 && (
            <section class="rt-figures">
              {figures.map((figure, k) => (
                <Chart
                  key={k}
                  explorer={explorer}
                  name={`${name} ${k}`}
                  label={figure.title}
                  figure={figure}
                  joint={joint}
                  height={figure.height}
                />
              ))}
            </section>
          )}
          {hasText && (
            <section>
              {rows.length > 0 && <Table explorer={explorer} panel={panel} joint={joint} />}
              {notes.length > 0 && <Notes explorer={explorer} notes={notes} alone={!rows.length} />}
            </section>
          )}
        </div>
      )}
    </>
  );
}

function useJoint(explorer: ExplorerState, panel: Panel): Joint {
  const { study } = explorer;
  const { links, variant } = panel;
  const joins = useMemo(() => new LinkIndex(links), [links]);
  const here = (): boolean => study.engine.value?.variant === variant;
  return {
    marked: () => {
      const { selection: nodes, layers, others } = study.view.value;
      return here() ? joins.keys({ nodes, layers, others }) : NOTHING;
    },
    pointed: () => {
      if (!study.hover.value || !here()) return NOTHING;
      const [nodes, layers, others] = [study.hovered("node"), study.hovered("layer"), study.hovered("other")];
      return joins.keys({ nodes, layers, others });
    },
    pick: (key, add) => explorer.follow(panel, key, add),
    point: (key) => {
      const link = key === null ? null : explorer.linkOf(panel, key);
      if (link?.layers.length) study.point("layer", link.layers[0]);
      else if (link?.nodes.length) study.point("node", link.nodes[0]);
      else study.point();
    },
  };
}

const NOTHING: ReadonlySet<string> = new Set();

function Cards({ facts }: { facts: readonly Fact[] }) {
  const box = useRef<HTMLDListElement>(null);
  const [open, setOpen] = useState(false);
  const [beyond, setBeyond] = useState(0);
  const count = (list: HTMLElement): void => {
    const cards = [...list.children] as HTMLElement[];
    setBeyond(cards.filter(({ offsetTop }) => offsetTop > cards[0]!.offsetTop).length);
  };
  useResize(box, count, [facts]);
  return (
    <div class="rt-facts-row">
      <dl class={`rt-cards ${open ? "" : "rt-one-row"}`} ref={box}>
        {facts.map((fact) => (
          <Card key={fact.key} fact={fact} />
        ))}
      </dl>
      {(open || beyond > 0) && (
        <button
          type="button"
          class="rt-link"
          data-control="more-facts"
          aria-expanded={open}
          title="The numbers that have no room in one row"
          onClick={() => setOpen(!open)}
        >
          {open ? "less" : `${beyond} more`}
        </button>
      )}
    </div>
  );
}

function Card({ fact: { key, value, origin, note } }: { fact: Fact }) {
  return (
    <div data-fact={key} title={[origin && `${GLYPH[origin]} ${origin}`, note].filter(Boolean).join("\n")}>
      <dt>
        <Terms text={key} />
      </dt>
      <dd class={origin === "estimated" ? "rt-estimate" : ""}>
        {origin && value && (
          <>
            <span aria-hidden="true">{GLYPH[origin]} </span>
            <span class="rt-spoken">{origin} </span>
          </>
        )}
        {value || NONE}
      </dd>
    </div>
  );
}

/** What is missing and what to do. */
const Problem = ({ explorer, panel: { problem } }: { explorer: ExplorerState; panel: Panel }) => (
  <div class="rt-problem" role="note" data-control="problem">
    <p>
      <Quoted explorer={explorer} text={problem} plain />
    </p>
  </div>
);

interface NotesProps {
  explorer: ExplorerState;
  notes: readonly string[];
  alone: boolean;
}

function Notes({ explorer, notes, alone }: NotesProps) {
  return (
    <ul class={alone ? "rt-told rt-pad" : "rt-note"}>
      {notes.map((note) => (
        <li key={note}>
          <Quoted explorer={explorer} text={note} plain />
        </li>
      ))}
    </ul>
  );
}

const Lines = ({ label, text }: { label: string; text: string }) => (
  <>
    <div class="rt-caption">
      <span>{label}</span>
      <Copy title={`Copy the lines: ${label}`} text={() => text} />
    </div>
    <pre class="rt-text">{text}</pre>
  </>
);

interface TableProps {
  explorer: ExplorerState;
  panel: Panel;
  joint: Joint;
}

function Table({ explorer, panel, joint }: TableProps) {
  const { rows, columns, links, title, variant, name } = panel;
  const [picked, setPicked] = useState("");
  const tableColumns = useMemo(() => columnsOf(panel), [columns]);
  const marked = joint.marked();
  const pointed = joint.pointed();
  // The arrow keys go on from the row that was picked, as long as it is what is selected.
  const current = picked && (marked.has(picked) || !explorer.linkOf(panel, picked)) ? picked : undefined;
  const pick = ({ key }: Row, add: boolean): void => {
    setPicked(key);
    if (name === "variants" && key !== variant) explorer.send({ type: "show", variant: key });
    else joint.pick(key, add);
    // A row of causes is the one that the buttons are about.
    if (name === "diagnosis") explorer.set(`${name}.${CAUSE}`, key);
  };
  const cells = (): (string | number | null)[][] => [
    columns.map((column) => (column.unit ? `${column.title} (${column.unit})` : column.title)),
    ...rows.map((row) => row.cells),
  ];
  return (
    <>
      <div class="rt-caption">
        <span>{plural(rows.length, "row")}</span>
        <Export name={`${variant} ${title}`} cells={cells} />
      </div>
      <Rows
        label={title}
        rows={rows}
        columns={tableColumns}
        id={({ key }) => key}
        selected={({ key }) => marked.has(key) || key === current}
        current={current}
        attributes={({ key }) => ({
          "data-row": key,
          class: `${key in links ? "" : "rt-plain"} ${key === current ? "rt-shown" : ""} ${pointed.has(key) ? "rt-pointed" : ""}`,
        })}
        onPick={pick}
        onPoint={(row) => joint.point(row?.key ?? null)}
      />
    </>
  );
}

function columnsOf({ columns }: Panel): Column<Row>[] {
  const named = columns.slice(0, 2).findIndex(({ numeric }) => !numeric);
  return columns.map(({ title, unit, numeric, origin }, k) => {
    const cellText = (row: Row): string => {
      const cell = row.cells[k] ?? null;
      if (typeof cell !== "number") return cell === null || cell === "" ? NONE : cell;
      return unit ? number(cell) : quantity(cell, "");
    };
    const originText = origin ? `${GLYPH[origin]} ${origin}` : "";
    return {
      key: `${k}`,
      label: [origin && GLYPH[origin], unit ? `${title}, ${unit}` : title].filter(Boolean).join(" "),
      title: originText,
      numeric,
      unit,
      by: (row) => row.cells[k] ?? null,
      cell: (row) => {
        const text = cellText(row);
        const hover = [text, row.note].filter(Boolean).join("\n");
        if (k === named) return <Name key={k} text={hover} label={text} />;
        const tone = origin === "estimated" ? "rt-estimate" : "";
        return (
          <td
            key={k}
            class={numeric ? `rt-num ${tone}` : tone}
            title={numeric ? originText : shorten(hover, 400)}
          >
            {shorten(text, 120)}
          </td>
        );
      },
    };
  });
}
