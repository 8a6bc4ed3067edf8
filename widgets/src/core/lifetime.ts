import { effect } from "@preact/signals";

/** Runs effects until the signal aborts. */
export function effectsUntil(end: AbortSignal, ...runs: (() => void)[]): void {
  for (const run of runs) end.addEventListener("abort", effect(run));
}
