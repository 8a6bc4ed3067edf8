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
  /** The panel on screen shows what was true before. */
  readonly waiting: Signal<boolean> = signal(false);
  readonly #send: (asked: AskPanel) => void;
  /** Questions of this view, among those of all pages that show the widget. */
  readonly #view = Math.random().toString(36).slice(2);
  readonly #keys = new Map<PanelName, string>();
  readonly #sent = new Map<string, Sent>();
  #wanted: { question: Question; key: string } | null = null;
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
    effectsUntil(end, () => this.#want(question.value, occasion.value));
    end.addEventListener("abort", () => clearTimeout(this.#timer));
  }

  /** An answer of the kernel; one to another view of the same widget, and one that came late, changes nothing. */
  take(id: string, content: Panel): void {
    const sent = this.#sent.get(id);
    if (!sent) return;
    const { panel, serial, key } = sent;
    // An answer to what was asked before is old by now.
    for (const [earlier, other] of this.#sent) if (other.serial <= serial) this.#sent.delete(earlier);
    this.#keys.set(panel, key);
    this.answers.value = { ...this.answers.value, [panel]: carried(this.answers.value[panel], content) };
    this.#settle();
  }

  /** The kernel has failed: what was asked stays unanswered. */
  giveUp(): void {
    this.#wanted = null;
    this.waiting.value = false;
  }

  /** Another model: what was told is of the old one. */
  forget(): void {
    this.answers.value = {};
    this.#keys.clear();
    this.#sent.clear();
    this.#settle();
  }

  #want(question: Question | null, occasion: string): void {
    this.#wanted = question && { question, key: JSON.stringify([question, occasion]) };
    this.#settle();
  }

  #settle(): void {
    const wanted = this.#wanted;
    this.waiting.value = wanted !== null && this.#keys.get(wanted.question.panel) !== wanted.key;
    clearTimeout(this.#timer);
    if (!wanted || !this.waiting.peek()) return;
    const sent = [...this.#sent.values()].at(-1);
    // What is wanted may be on its way, however long it takes.
    if (sent?.key === wanted.key) return;
    const due = this.#last + (sent ? PATIENCE_MS : PACE_MS) - performance.now();
    if (due <= 0) this.#ask(wanted);
    else this.#timer = setTimeout(() => this.#settle(), due);
  }

  #ask({ question, key }: { question: Question; key: string }): void {
    const serial = ++this.#serial;
    // The number tells two answers to one question apart.
    const id = `${this.#view}.${serial}`;
    this.#last = performance.now();
    this.#sent.set(id, { serial, panel: question.panel, key });
    this.#send({ type: "panel", id, ...question });
  }
}
