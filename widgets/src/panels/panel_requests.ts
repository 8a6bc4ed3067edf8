import { type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { AskPanel, Panel, PanelName } from "../core/contract";
import { effectsUntil } from "../core/lifetime";
import { carried } from "./page";

export interface Question {
  panel: PanelName;
  variant: string;
  settings: Record<string, string>;
}

const PACE_MS = 100;
const PATIENCE_MS = 2000;

interface Sent {
  serial: number;
  panel: PanelName;
  key: string;
}

/** Puts the question of the panel on screen, and keeps the newest answer of each panel. */
export class PanelRequests {
  readonly answers: Signal<Partial<Record<PanelName, Panel>>> = signal({});
  readonly waiting: Signal<boolean> = signal(false);
  readonly #send: (asked: AskPanel) => void;
  /** Questions of this view, among those of all pages that show the widget. */
  readonly #view = Math.random().toString(36).slice(2);
  readonly #keys = new Map<PanelName, string>();
  readonly #pending = new Map<string, Sent>();
  #current: { question: Question; key: string } | null = null;
  #serial = 0;
  #last = Number.NEGATIVE_INFINITY;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** `occasion` is what else answers depend on: when it changes, the question is put again. */
  constructor(
    question: ReadonlySignal<Question | null>,
    occasion: ReadonlySignal<string>,
    send: (asked: AskPanel) => void,
    end: AbortSignal,
  ) {
    this.#send = send;
    effectsUntil(end, () => this.#request(question.value, occasion.value));
    end.addEventListener("abort", () => clearTimeout(this.#timer));
  }

  /** An answer of the kernel; one to another view of the same widget, and one that came late, changes nothing. */
  take(id: string, content: Panel): void {
    const request = this.#pending.get(id);
    if (!request) return;
    const { panel, serial, key } = request;
    // An answer to what was asked before is old by now.
    for (const [earlier, other] of this.#pending) if (other.serial <= serial) this.#pending.delete(earlier);
    this.#keys.set(panel, key);
    this.answers.value = { ...this.answers.value, [panel]: carried(this.answers.value[panel], content) };
    this.#update();
  }

  /** The kernel has failed: what was asked stays unanswered. */
  cancel(): void {
    this.#current = null;
    this.waiting.value = false;
  }

  clear(): void {
    this.answers.value = {};
    this.#keys.clear();
    this.#pending.clear();
    this.#update();
  }

  #request(question: Question | null, occasion: string): void {
    this.#current = question && { question, key: JSON.stringify([question, occasion]) };
    this.#update();
  }

  #update(): void {
    const current = this.#current;
    this.waiting.value = current !== null && this.#keys.get(current.question.panel) !== current.key;
    clearTimeout(this.#timer);
    if (!current || !this.waiting.peek()) return;
    const request = [...this.#pending.values()].at(-1);
    // What is wanted may be on its way, however long it takes.
    if (request?.key === current.key) return;
    const due = this.#last + (request ? PATIENCE_MS : PACE_MS) - performance.now();
    if (due <= 0) this.#ask(current);
    else this.#timer = setTimeout(() => this.#update(), due);
  }

  #ask({ question, key }: { question: Question; key: string }): void {
    const serial = ++this.#serial;
    const id = `${this.#view}.${serial}`;
    this.#last = performance.now();
    this.#pending.set(id, { serial, panel: question.panel, key });
    this.#send({ type: "panel", id, ...question });
  }
}
