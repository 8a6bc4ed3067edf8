import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { useKeys, useResize } from "./hooks";
import { MoreMenu } from "./menu";

interface Props<T extends string> {
  names: readonly T[];
  /** The one that is open; empty where all are folded. */
  name: T | "";
  title: string;
  label(name: NoInfer<T>): string;
  help(name: NoInfer<T>): string;
  onPick(name: NoInfer<T>): void;
  children?: ComponentChildren;
}

interface ListProps<T extends string> extends Props<T> {
  class: string;
  mark: "tab" | "segment" | "order" | "help";
}

/** Tabs of which one is open: arrow keys go around, Home and End to the ends; while all are folded they open none. */
export function TabList<T extends string>(props: ListProps<T>) {
  const { names, name, title, label, help, onPick, mark } = props;
  const box = useRef<HTMLDivElement>(null);
  useKeys(box, ({ key }) => {
    const focused = names.findIndex((one) => box.current!.querySelector(`[data-${mark}="${one}"]:focus`));
    const at = name ? names.indexOf(name) : focused;
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: -1 }[key];
    if (to === undefined) return false;
    const next = names.at(to % names.length)!;
    if (name) onPick(next);
    box.current?.querySelector<HTMLElement>(`[data-${mark}="${next}"]`)?.focus();
    return true;
  });
  // The chosen one stays in view where there is no room for all.
  useLayoutEffect(() => {
    const row = box.current!;
    const tab = row.querySelector<HTMLElement>('[aria-selected="true"]');
    if (!tab) return;
    const left = tab.offsetLeft - row.offsetLeft;
    if (left < row.scrollLeft) row.scrollLeft = left - EDGE;
    else if (left + tab.offsetWidth > row.scrollLeft + row.clientWidth)
      row.scrollLeft = left + tab.offsetWidth - row.clientWidth + EDGE;
  });
  return (
    <div class={props.class} role="tablist" aria-label={title} ref={box}>
      {names.map((one) => (
        <button
          type="button"
          role="tab"
          key={one}
          {...{ [`data-${mark}`]: one }}
          aria-selected={one === name}
          {...(mark === "tab" ? { "aria-expanded": one === name } : {})}
          tabIndex={one === (name || names[0]) ? 0 : -1}
          title={help(one)}
          onClick={() => onPick(one)}
        >
          {label(one)}
        </button>
      ))}
    </div>
  );
}

const EDGE = 28;

/** A row of tabs whose content folds: a click on the open one picks it once more. */
export function TabRow<T extends string>(props: Props<T>) {
  const { names, name, label, onPick } = props;
  const box = useRef<HTMLDivElement>(null);
  const [crowded, setCrowded] = useState(false);
  const measure = (row: HTMLElement): void => {
    const last = row.querySelector("[role=tablist]")!.lastElementChild as HTMLElement | null;
    const end = row.querySelector<HTMLElement>(".rt-end")?.offsetWidth ?? 0;
    setCrowded(last !== null && last.offsetLeft + last.offsetWidth > row.clientWidth - end);
  };
  useResize(box, measure, [names.length]);
  return (
    <div class={`rt-tabrow ${crowded ? "rt-crowded" : ""}`} ref={box}>
      <TabList {...props} class="rt-tabs" mark="tab" />
      {crowded && (
        <MoreMenu
          label={`All ${names.length} tabs`}
          help="There is no room for all of them in the row."
          name="tabs"
          items={() =>
            names.map((one) => ({
              id: one,
              label: label(one),
              pick: () => onPick(one),
              radio: true,
              checked: one === name,
            }))
          }
        />
      )}
      {props.children && <div class="rt-end">{props.children}</div>}
    </div>
  );
}
