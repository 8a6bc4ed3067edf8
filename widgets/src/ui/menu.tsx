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
  /** Of several with this set one is chosen. */
  radio?: boolean;
  checked?: boolean;
  keys?: string;
  help?: string;
}

interface ListProps {
  label: string;
  items: readonly Item[];
  left?: number;
  onClose(): void;
}

/** Keeps a menu inside the widget, whose edge would cut it off. */
const EDGE = 8;
const LEAST = 120;

/** A menu: arrow keys, first letters, Escape; a click elsewhere closes it. */
export function MenuList({ label, items, left, onClose }: ListProps) {
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
  }, [left]);
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
    const at = list.indexOf(document.activeElement as HTMLElement);
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
      {...(left === undefined ? {} : { style: { left: `${left}px` } })}
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

interface MoreProps {
  label: string;
  help?: string;
  name: string;
  items(): Item[];
  /** What is chosen in the menu beside the usual; stands on the button. */
  note?: string;
  /** The button's picture, where three dots do not tell enough. */
  icon?: ComponentChildren;
}

export function MoreMenu({ label, help = "", name, items, note = "", icon = <More /> }: MoreProps) {
  const [open, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  return (
    <div class="rt-select" data-control={name}>
      <button
        type="button"
        class="rt-tool"
        ref={button}
        aria-haspopup="menu"
        aria-expanded={open}
        aria-label={[label, note].filter(Boolean).join(": ")}
        title={[label, help].filter(Boolean).join("\n")}
        {...(help ? { "aria-description": help } : {})}
        onClick={() => setOpen(!open)}
      >
        {icon}
        {note}
      </button>
      {open && (
        <MenuList
          label={label}
          items={items()}
          onClose={() => {
            setOpen(false);
            button.current?.focus({ preventScroll: true });
          }}
        />
      )}
    </div>
  );
}
