import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { type KeyHandler, onKeys } from "../core/keys";

export function useDelayed(condition: boolean, delay: number): boolean {
  const [passed, setPassed] = useState(false);
  useEffect(() => {
    if (!condition) return setPassed(false);
    const timer = setTimeout(() => setPassed(true), delay);
    return () => clearTimeout(timer);
  }, [condition]);
  return condition && passed;
}

export function useKeys(box: RefObject<Element | null>, handler: KeyHandler): void {
  useLayoutEffect(() => onKeys(box.current, handler));
}

export function useResize(
  box: RefObject<HTMLElement | null>,
  onResize: (element: HTMLElement) => void,
  inputs: readonly unknown[] = [],
): void {
  useLayoutEffect(() => {
    const element = box.current!;
    const observer = new ResizeObserver(() => onResize(element));
    observer.observe(element);
    return () => observer.disconnect();
  }, inputs);
}
