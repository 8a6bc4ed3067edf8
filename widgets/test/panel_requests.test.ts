import { signal } from "@preact/signals";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { AskPanel } from "../src/core/contract";
import { PanelRequests, type Question } from "../src/panels/panel_requests";
import { panel } from "./payloads";

const end = new AbortController();
const question = (batch: string, part: Partial<Question> = {}): Question => ({
  panel: "memory",
  variant: "fp32",
  settings: { batch },
  ...part,
});

/** What was asked, oldest first, and the means to answer it. */
function asker(first: Question | null) {
  const wanted = signal(first);
  const occasion = signal("1");
  const sent: AskPanel[] = [];
  const asking = new PanelRequests(wanted, occasion, (asked) => sent.push(asked), end.signal);
  const answer = (k: number, title: string): void =>
    asking.take(sent[k]!.id, panel({ name: "memory", title }));
  const asked = (): string[] => sent.map(({ settings }) => settings.batch!);
  const shown = (): string | undefined => asking.answers.value.memory?.title;
  return { wanted, occasion, sent, asking, answer, asked, shown };
}

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

describe("asking for a panel", () => {
  it("asks at once what is on screen, and nothing twice", () => {
    const { asking, answer, sent, shown, wanted } = asker(question("1"));
    expect([1, true]).toEqual([sent.length, asking.waiting.value]);
    expect({ type: "panel", id: sent[0]!.id, ...question("1") }).toEqual(sent[0]);
    answer(0, "one");
    expect(["one", false]).toEqual([shown(), asking.waiting.value]);
    wanted.value = question("1");
    vi.advanceTimersByTime(10_000);
    expect(1).toBe(sent.length);
  });

  it("asks ten times a second at most while a slider is dragged, the last place in any case", () => {
    // Each stop of the drag would cost the kernel the whole analysis.
    const { wanted, asked, sent, answer } = asker(question("0"));
    answer(0, "0");
    for (let ms = 1; ms <= 500; ms++) {
      wanted.value = question(String(ms));
      vi.advanceTimersByTime(1);
      if (sent.length > 1) answer(sent.length - 1, "");
    }
    vi.advanceTimersByTime(100);
    expect(true).toBe(sent.length >= 5 && sent.length <= 7);
    expect("500").toBe(asked().at(-1));
  });

  it("waits for a slow kernel instead of piling questions up, but not for ever", () => {
    const { wanted, asked, answer, shown } = asker(question("0"));
    for (const batch of ["1", "2", "3"]) {
      wanted.value = question(batch);
      vi.advanceTimersByTime(300);
    }
    expect(["0"]).toEqual(asked());
    answer(0, "0");
    expect(["0", "3"]).toEqual(asked());
    wanted.value = question("4");
    vi.advanceTimersByTime(2100);
    expect(["0", "3", "4"]).toEqual(asked());
    answer(2, "4");
    expect("4").toBe(shown());
  });

  it.each([-86_400_000, 86_400_000])("asks on although the clock is put right by %i ms", (jump) => {
    const { wanted, asked, answer } = asker(question("0"));
    answer(0, "0");
    vi.setSystemTime(Date.now() + jump);
    wanted.value = question("1");
    expect(["0"]).toEqual(asked());
    vi.advanceTimersByTime(200);
    expect(["0", "1"]).toEqual(asked());
  });

  it("is patient with one question, however long it takes", () => {
    const { wanted, sent, answer, shown } = asker(question("0"));
    vi.advanceTimersByTime(30_000);
    wanted.value = question("0");
    vi.advanceTimersByTime(30_000);
    expect(1).toBe(sent.length);
    answer(0, "late");
    expect("late").toBe(shown());
  });

  it("never lets an old answer take the place of a newer one", () => {
    const { wanted, answer, shown, asking } = asker(question("0"));
    wanted.value = question("1");
    vi.advanceTimersByTime(2100);
    answer(1, "new");
    answer(0, "old");
    expect(["new", false]).toEqual([shown(), asking.waiting.value]);
    // Back to what was asked first: the answer from then is no longer known to be true.
    wanted.value = question("0");
    expect(true).toBe(asking.waiting.value);
  });

  it("shows what came while another question waits, and says that it is not the last word", () => {
    const { wanted, answer, shown, asking } = asker(question("0"));
    wanted.value = question("1");
    answer(0, "zero");
    expect(["zero", true]).toEqual([shown(), asking.waiting.value]);
  });

  it("asks again when the numbers may have changed, and for another variant", () => {
    const { wanted, occasion, sent, answer, asking } = asker(question("0"));
    answer(0, "");
    vi.advanceTimersByTime(200);
    occasion.value = "2";
    expect([2, true]).toEqual([sent.length, asking.waiting.value]);
    answer(1, "");
    vi.advanceTimersByTime(200);
    wanted.value = question("0", { variant: "int8" });
    expect("int8").toBe(sent[2]!.variant);
  });

  it("keeps the answers of other panels, and what another view of the widget asked changes nothing", () => {
    const { wanted, asking, answer, sent } = asker(question("0"));
    answer(0, "memory");
    vi.advanceTimersByTime(200);
    wanted.value = question("", { panel: "schedule" });
    asking.take(sent[1]!.id, panel({ name: "schedule", title: "streams" }));
    asking.take("another.1", panel({ title: "strange" }));
    const { memory, schedule } = asking.answers.value;
    expect(["memory", "streams"]).toEqual([memory?.title, schedule?.title]);
    // What was answered already and is still true needs no question.
    wanted.value = question("0");
    vi.advanceTimersByTime(5000);
    expect(2).toBe(sent.length);
  });

  it("stops waiting when the kernel has failed, until something else is wanted", () => {
    const { asking, wanted, sent, answer } = asker(question("0"));
    asking.cancel();
    vi.advanceTimersByTime(5000);
    expect([false, 1]).toEqual([asking.waiting.value, sent.length]);
    wanted.value = question("1");
    expect([true, 2]).toEqual([asking.waiting.value, sent.length]);
    // The failure may have been another's: what was asked may still be answered.
    answer(0, "after all");
    expect("after all").toBe(asking.answers.value.memory?.title);
  });

  it("forgets the answers about another model, and asks anew", () => {
    // The variant has the same name in both.
    const { asking, sent, answer } = asker(question("0"));
    answer(0, "old model");
    vi.advanceTimersByTime(200);
    asking.clear();
    expect([{}, 2]).toEqual([asking.answers.value, sent.length]);
  });
});
