import { type ReadonlySignal, signal } from "@preact/signals";
import { fittingHeight, HOSTS } from "./fitting";

/** The height that the page has for a widget, as long as the abort signal has not fired. */
export function follow(root: HTMLElement, end: AbortSignal): ReadonlySignal<number> {
  const host = root.closest(HOSTS);
  const now = (): number => fittingHeight(window.innerHeight, host?.clientHeight);
  const fitting = signal(now());
  const update = (): void => {
    // A notebook that is out of view has no height, and comes back as it was.
    if (!host || host.clientHeight) fitting.value = now();
  };
  window.addEventListener("resize", update, { signal: end });
  if (host) {
    const observer = new ResizeObserver(update);
    observer.observe(host);
    end.addEventListener("abort", () => observer.disconnect());
  }
  return fitting;
}
