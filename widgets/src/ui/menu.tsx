import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { useKeys } from "./hooks";
import { More } from "./icons";

/** One line of a menu. Without `pick` it is a heading; with a `reason` it cannot be picked, and says why. */
export interface Item {
  id: string;
  label: string;
  pick?(): void;
  reason?: string | undefined;
  radio?: boolean;
  checked?: boolean;
  keys?: string;
  help?: string;
}

interface ListProps {
  label: string;
  items: readonly Item[];
  left?: number;
  /** Below its box, where it is left out. */
  top?: number;
  onClose(): void;
}

const EDGE = 8;
const LEAST = 120;

export function MenuList({ label, items, left, top, onClose }: ListProps) {
  const box = useRef<HTMLDivElement>(null);
  const usable = (): HTMLElement[] => [...box.current!.querySelectorAll<HTMLElement>("button")];
  useLayoutEffect(() => {
    const { style } = box.current!;
    style.translate = "";
    const room = box.current!.closest(".rtlab")!.getBoundingClientRect();
    const place = box.current!.getBoundingClientRect();
    const shift = Math.min(0, room.right - EDGE - place.right) || Math.max(0, room.left + EDGE - place.left);
    style.maxHeight = `${Math.max(LEAST, room.bottom - place.top - EDGE)}px`;
    style.translate = `${shift}px`;
  }, [left, top]);
  useLayoutEffect(() => {
    const { current } = box;
    usable()[0]?.focus({ preventScroll: true });
    const outside = (event: PointerEvent): void => {
      // The button that opened the menu closes it by itself.
      const inside = (part: EventTarget): boolean =>
        part === current || (part instanceof Element && part.matches('[aria-expanded="true"]'));
      if (!event.composedPath().some(inside)) onClose();
    };
    window.addEventListener("pointerdown", outside, true);
    return () => window.removeEventListener("pointerdown", outside, true);
  }, []);
  useKeys(box, ({ key }) => {
    const list = usable();
    // In marimo the widget lies in a shadow tree, which has an active element of its own.
    const { activeElement } = box.current!.getRootNode() as Document | ShadowRoot;
    const at = list.indexOf(activeElement as HTMLElement);
    const step = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[key];
    if (step !== undefined) list.at(step % list.length)?.focus();
    else if (key === "Escape" || key === "Tab") onClose();
    else if (key === "Enter" || key === " ") list[at]?.click();
    else if (key.length === 1) {
      const next = [...list.slice(at + 1), ...list.slice(0, at + 1)];
      next.find(({ innerText }) => innerText.toLowerCase().startsWith(key.toLowerCase()))?.focus();
    }
    return true;
  });
  return (
    <div
      class={`rt-popup rt-menu ${left === undefined ? "rt-right" : ""}`}
      role="menu"
      aria-label={label}
      ref={box}
      style={{
        ...(left === undefined ? {} : { left: `${left}px` }),
        ...(top === undefined ? {} : { top: `${top}px` }),
      }}
    >
      {items.map(({ id, label: text, pick, reason, radio, checked, keys, help }) =>
        pick ? (
          <button
            type="button"
            key={id}
            role={checked === undefined ? "menuitem" : radio ? "menuitemradio" : "menuitemcheckbox"}
            {...(checked === undefined ? {} : { "aria-checked": checked })}
            aria-disabled={Boolean(reason)}
            data-item={id}
            title={reason ?? ""}
            onClick={() => {
              if (reason) return;
              onClose();
              pick();
            }}
          >
            {text}
            {keys && <kbd>{keys}</kbd>}
            {(reason || help) && <small>{reason || help}</small>}
          </button>
        ) : (
          <h4 key={id} role="presentation">
            {text}
          </h4>
        ),
      )}
    </div>
  );
}

interface MenuButtonProps {
  label: string;
  help?: string;
  name: string;
  items(): Item[];
  note?: string;
  icon?: ComponentChildren;
  /** For tests. */
  value?: string | number;
  /** Why the menu cannot be opened; empty where it can. */
  disabled?: string;
  look?: { box?: string; button?: string; left?: number };
  /** Stands beside the button. */
  children?: ComponentChildren;
}

export function MoreMenu(props: MenuButtonProps) {
  const {
    label,
    help = "",
    name,
    items,
    note = "",
    icon = <More />,
    value,
    disabled = "",
    look = {},
  } = props;
  const [open, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  return (
    <div
      class={`rt-select ${look.box ?? ""}`.trim()}
      data-control={name}
      {...(value === undefined ? {} : { "data-value": value })}
    >
      <button
        type="button"
        class={look.button ?? "rt-tool"}
        ref={button}
        aria-haspopup="menu"
        aria-expanded={open}
        aria-label={[label, note].filter(Boolean).join(": ")}
        title={disabled || [label, help].filter(Boolean).join("\n")}
        {...(help ? { "aria-description": help } : {})}
        disabled={disabled !== ""}
        onClick={() => setOpen(!open)}
      >
        {look.button ? <span class="rt-value">{note}</span> : icon}
        {look.button ? icon : note}
      </button>
      {props.children}
      {open && (
        <MenuList
          label={label}
          items={items()}
          {...(look.left === undefined ? {} : { left: look.left })}
          onClose={() => {
            setOpen(false);
            button.current?.focus({ preventScroll: true });
          }}
        />
      )}
    </div>
  );
}
