import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Option } from "../core/contract";
import { useKeys } from "./hooks";
import { Down } from "./icons";

interface Props {
  label: string;
  help: string;
  name: string;
  options: readonly Option[];
  value: string;
  disabled?: string;
  prefix?: string;
  align?: "left" | "right";
  brief?: boolean;
  onPick(id: string): void;
  footer?: (close: () => void) => preact.ComponentChildren;
}

const LEAST = 90;

/** A select whose disabled options show the reason. */
export function Select({
  label,
  help,
  name,
  options,
  value,
  disabled,
  prefix,
  align,
  brief,
  onPick,
  footer,
}: Props) {
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(0);
  const box = useRef<HTMLDivElement>(null);
  const list = useRef<HTMLUListElement>(null);
  const current = options.find(({ id }) => id === value);
  const shown = brief ? current?.label.split(" · ")[0] : current?.label;
  const unusable = disabled ?? "";

  const close = (): void => setOpen(false);
  const leave = (): void => {
    close();
    box.current?.querySelector("button")?.focus();
  };
  const pick = (option: Option | undefined): void => {
    if (!option || option.reason) return;
    leave();
    if (option.id !== value) onPick(option.id);
  };
  const toggle = (): void => {
    if (unusable) return;
    setAt(
      Math.max(
        0,
        options.findIndex(({ id }) => id === value),
      ),
    );
    setOpen(!open);
  };

  useEffect(() => {
    if (!open) return;
    const outside = (event: PointerEvent): void => {
      if (!event.composedPath().includes(box.current!)) close();
    };
    window.addEventListener("pointerdown", outside, true);
    return () => window.removeEventListener("pointerdown", outside, true);
  }, [open]);

  // At the bottom of the widget the list ends where the bottom does.
  useLayoutEffect(() => {
    const room = open && box.current?.closest(".rt-bottom");
    if (!room) return;
    const { top } = list.current!.getBoundingClientRect();
    list.current!.style.maxHeight = `${Math.max(LEAST, room.getBoundingClientRect().bottom - top - 10)}px`;
  }, [open]);

  // The side panel scrolls, so that the list is not cut off at its edge.
  useLayoutEffect(() => {
    const panel = open && box.current?.closest(".rt-panel");
    if (!panel) return;
    const under = list.current!.parentElement!.getBoundingClientRect().bottom;
    panel.scrollTop += Math.max(0, under + 8 - panel.getBoundingClientRect().bottom);
  }, [open]);

  useEffect(() => {
    list.current?.children[at]?.scrollIntoView({ block: "nearest" });
  }, [at, open]);

  useKeys(box, (event) => {
    const typing = event.target instanceof HTMLInputElement;
    if (!open) {
      if ((event.key !== "ArrowDown" && event.key !== "ArrowUp") || unusable) return false;
      toggle();
      return true;
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setAt((at + step + options.length) % options.length);
    else if (event.key === "Escape") leave();
    else if (!typing && (event.key === "Enter" || event.key === " ")) pick(options[at]);
    else if (!typing && event.key.length === 1) {
      const match = options.findIndex((o) => o.label.toLowerCase().startsWith(event.key.toLowerCase()));
      if (match >= 0) setAt(match);
    } else return false;
    return true;
  });

  return (
    <div class="rt-select" ref={box} data-control={name} data-value={value}>
      <button
        type="button"
        class="rt-field"
        aria-haspopup="listbox"
        aria-expanded={open}
        aria-label={`${label}: ${current?.label ?? "none"}`}
        aria-disabled={unusable !== ""}
        title={unusable || `${label}: ${current?.label ?? "none"}\n${help}`}
        aria-description={unusable || help}
        onClick={toggle}
      >
        {prefix && <span class="rt-prefix">{prefix}</span>}
        <span class="rt-value">{shown ?? (unusable ? "—" : "choose")}</span>
        <Down />
      </button>
      {open && (
        <div class={`rt-popup ${align === "right" ? "rt-right" : ""}`}>
          <ul role="listbox" aria-label={label} ref={list}>
            {options.map((option, i) => (
              // biome-ignore lint/a11y/useKeyWithClickEvents: keys reach the list through onKeys
              <li
                key={option.id}
                role="option"
                tabIndex={-1}
                aria-selected={option.id === value}
                aria-disabled={option.reason !== ""}
                data-value={option.id}
                class={i === at ? "rt-at" : ""}
                title={option.reason}
                onPointerMove={() => setAt(i)}
                onClick={() => pick(option)}
              >
                {option.label}
                {option.reason !== "" && <small>{option.reason}</small>}
              </li>
            ))}
          </ul>
          {footer?.(leave)}
        </div>
      )}
    </div>
  );
}
