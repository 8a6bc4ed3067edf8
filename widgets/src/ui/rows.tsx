import type { ComponentChildren, VNode } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { NONE } from "../core/format";
import { meaning } from "../core/glossary";
import { useKeys, useResize } from "./hooks";

const ROW = 25;
const SPARE = 8;

export interface Column<T> {
  key: string;
  label: ComponentChildren;
  title?: string;
  numeric?: boolean;
  unit?: string;
  extra?: string;
  /** What it is sorted by; rows without it stand last in both directions. */
  by(row: T): string | number | null;
  cell(row: T): VNode;
}

interface ColumnOptions<T> extends Partial<Omit<Column<T>, "by" | "label">> {
  /** What a cell shows, where it is not what the column sorts by. */
  text?(row: T): ComponentChildren;
  hover?(row: T): string;
}

/** A column with the usual cells; its key is its label in lower case. */
export function column<T>(label: string, by: Column<T>["by"], options: ColumnOptions<T> = {}): Column<T> {
  const { text = by, hover, ...rest } = options;
  const style = [rest.numeric && "rt-num", rest.extra].filter(Boolean).join(" ");
  const cell = (row: T): VNode => (
    <td {...(style ? { class: style } : {})} {...(hover ? { title: hover(row) } : {})}>
      {text(row) || NONE}
    </td>
  );
  return { key: label.toLowerCase(), label, by, cell, ...rest };
}

interface Props<T> {
  label: string;
  rows: readonly T[];
  columns: readonly Column<T>[];
  id(row: T): string;
  selected(row: T): boolean;
  /** The row that the arrow keys start from; else the first that is selected. */
  current?: string | undefined;
  attributes(row: T): Record<`data-${string}`, string> & { class?: string };
  onPick(row: T, add: boolean): void;
  onPoint(row: T | null): void;
}

export function Rows<T>(props: Props<T>) {
  const { label, rows, columns, id, selected, current, attributes, onPick, onPoint } = props;
  const [sort, setSort] = useState({ key: "", down: false });
  const [top, setTop] = useState(0);
  const [tall, setTall] = useState(200);
  const box = useRef<HTMLDivElement>(null);
  const by = columns.find(({ key }) => key === sort.key)?.by;
  const sorted = useMemo(
    () => (by ? rows.toSorted((a, b) => compare(by(a), by(b), sort.down)) : rows),
    [rows, sort, columns],
  );
  const first = sorted.findIndex((row) => (current === undefined ? selected(row) : id(row) === current));

  useResize(box, ({ clientHeight }) => setTall(clientHeight));
  useEffect(() => {
    const el = box.current;
    if (!el || first < 0) return;
    const at = first * ROW;
    if (at < el.scrollTop || at > el.scrollTop + el.clientHeight - 2 * ROW)
      el.scrollTop = Math.max(0, at - ROW);
  }, [first, sort, tall]);
  useKeys(box, (event) => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step) return false;
    const next = sorted[Math.max(0, Math.min(sorted.length - 1, first + step))];
    if (next) onPick(next, false);
    return true;
  });

  const from = Math.max(0, Math.floor(top / ROW) - SPARE);
  const to = Math.min(sorted.length, Math.ceil((top + tall) / ROW) + SPARE);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: arrow keys move the selection in the table
    <div class="rt-table" ref={box} tabIndex={0} onScroll={(event) => setTop(event.currentTarget.scrollTop)}>
      <table aria-label={label} aria-rowcount={sorted.length}>
        <thead>
          <tr>
            {columns.map((column) => {
              const { key, numeric } = column;
              const down = sort.key === key && sort.down;
              return (
                <th
                  key={key}
                  class={`${numeric ? "rt-num" : ""} ${column.extra ?? ""}`}
                  aria-sort={sort.key !== key ? "none" : down ? "descending" : "ascending"}
                >
                  <button
                    type="button"
                    {...about(column)}
                    onClick={() =>
                      setSort({
                        key,
                        down: sort.key === key ? !down : Boolean(numeric) && column !== columns[0],
                      })
                    }
                  >
                    {column.label}
                    {sort.key === key ? (down ? " ↓" : " ↑") : ""}
                  </button>
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          <tr style={{ height: `${from * ROW}px` }} />
          {sorted.slice(from, to).map((row, i) => (
            <tr
              key={id(row)}
              {...attributes(row)}
              aria-rowindex={from + i + 1}
              aria-selected={selected(row)}
              onClick={(event) => onPick(row, event.shiftKey)}
              onPointerEnter={() => onPoint(row)}
              onPointerLeave={() => onPoint(null)}
            >
              {columns.map(({ cell }) => cell(row))}
            </tr>
          ))}
          <tr style={{ height: `${(sorted.length - to) * ROW}px` }} />
        </tbody>
      </table>
    </div>
  );
}

function about<T>({ label, title }: Column<T>): { title: string; "aria-description": string } {
  const term = typeof label === "string" ? meaning(label) : "";
  const help = [title, term, "A click sorts the rows by this column."].filter(Boolean).join("\n");
  return { title: help, "aria-description": help };
}

export function compare(a: string | number | null, b: string | number | null, down: boolean): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  const sign = down ? -1 : 1;
  return typeof a === "number" && typeof b === "number"
    ? sign * (a - b)
    : sign * String(a).localeCompare(String(b), undefined, { numeric: true });
}
