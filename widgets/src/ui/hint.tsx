import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { termAt } from "../core/glossary";

/** Delays, so that passing over terms and controls shows no hint. */
const [HOVER_MS, FOCUS_MS] = [180, 600];
const GAP = 6;

interface Told {
  of: Element;
  name: string;
  words: string;
}

function toldBy(target: EventTarget | null, keyed: boolean): Told | null {
  const element = target instanceof Element ? target : null;
  const term = element?.closest("[data-term]");
  if (term) {
    const [name, words] = termAt(Number(term.getAttribute("data-term")));
    return { of: term, name, words };
  }
  const words = keyed && element?.matches(":focus-visible") ? element.getAttribute("title") : "";
  return words ? { of: element!, name: "", words } : null;
}

/** Beside a term what it means, and beside a control that the Tab key came to what it does. */
export function Hint({ root }: { root: HTMLElement }) {
  const [hint, setTold] = useState<Told | null>(null);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const end = new AbortController();
    let timer = 0;
    const show = (next: Told | null, delay: number): void => {
      clearTimeout(timer);
      timer = window.setTimeout(() => setTold(next), delay);
    };
    const on = <K extends keyof HTMLElementEventMap>(
      name: K,
      heard: (event: HTMLElementEventMap[K]) => void,
    ): void => root.addEventListener(name, heard, { signal: end.signal });
    on("pointerover", ({ target }) => {
      if (box.current?.contains(target as Node)) clearTimeout(timer);
      else show(toldBy(target, false), HOVER_MS);
    });
    on("pointerleave", () => show(null, HOVER_MS));
    on("focusin", ({ target }) => {
      const next = toldBy(target, true);
      show(next, next?.name ? 0 : FOCUS_MS);
    });
    on("focusout", () => show(null, 0));
    on("click", ({ target }) => show(toldBy(target, false), 0));
    // Any key but the one that leads to the next control: Escape too, which means something else besides.
    window.addEventListener("keydown", () => show(null, 0), { capture: true, signal: end.signal });
    root.addEventListener("scroll", () => show(null, 0), { capture: true, signal: end.signal });
    return () => {
      clearTimeout(timer);
      end.abort();
    };
  }, []);
  useLayoutEffect(() => {
    const { current } = box;
    if (!hint || !current) return;
    const room = root.getBoundingClientRect();
    const at = hint.of.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = current;
    const below = at.bottom + GAP + height <= room.bottom - GAP;
    const x = Math.max(GAP, Math.min(at.left - room.left, room.width - width - GAP));
    const y = below ? at.bottom + GAP - room.top : at.top - GAP - height - room.top;
    current.style.transform = `translate(${x}px, ${Math.max(GAP, y)}px)`;
  }, [hint]);
  if (!hint?.of.isConnected) return null;
  return (
    <div class="rt-hint" role="tooltip" ref={box} data-hint={hint.name}>
      {hint.name && <b>{hint.name}</b>} {hint.words}
    </div>
  );
}
