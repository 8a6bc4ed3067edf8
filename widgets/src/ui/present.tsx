import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Step } from "../contract";
import type { ExplorerState } from "../explorerstate";
import { plural } from "../format";
import { onKeys } from "../keys";
import { moved, python } from "../presenting";
import { Copy } from "./cells";
import { Close, Down, FullScreen, Next, Plus, Present, Previous, Up } from "./icons";
import { type Item, MoreMenu } from "./menu";
import { Tool } from "./tool";

/** In the top row: the mode for a room, its steps, the whole screen. */
export function ShowTools({ explorer }: { explorer: ExplorerState }) {
  const { presenting, room } = explorer;
  const steps = presenting.steps.value.length;
  const list: Item = {
    id: "steps",
    label: steps ? `Steps of the presentation: ${steps}` : "Record steps",
    pick: () => {
      presenting.listing.value = true;
    },
  };
  const items = (): Item[] => [
    { id: "present", label: "Present", keys: "P", pick: () => present(explorer) },
    // In a report nothing would keep what is recorded, and its steps have a button of their own.
    ...(explorer.saved ? [] : [list]),
    {
      id: "full",
      label: room.full.value ? "Leave full screen" : "Full screen",
      keys: "F",
      reason: room.unable,
      pick: () => room.toggle(),
    },
  ];
  const told = "The whole screen, larger type for a room, and steps that the arrow keys play.";
  return <MoreMenu label="Present" told={told} name="show" icon={<Present />} items={items} />;
}

const FullTool = ({ explorer: { room } }: { explorer: ExplorerState }) => (
  <Tool
    label={room.unable || (room.full.value ? "Leave full screen (F)" : "Full screen (F)")}
    control="full"
    pressed={room.full.value}
    disabled={room.unable !== ""}
    icon={<FullScreen />}
    onClick={() => room.toggle()}
  />
);

/** In the top row of a report: its steps as a table of contents, and the slide show. */
export function SlideShow({ explorer }: { explorer: ExplorerState }) {
  const { presenting } = explorer;
  const steps = presenting.steps.value.length;
  if (!steps) return null;
  return (
    <>
      <button
        type="button"
        class="rt-field"
        data-control="contents"
        title="The steps of this report's presentation, to go to one of them"
        aria-expanded={presenting.listing.value}
        onClick={() => {
          presenting.listing.value = !presenting.listing.value;
        }}
      >
        {plural(steps, "step")}
      </button>
      <button
        type="button"
        class="rt-build"
        data-control="play"
        title="The steps in larger type, on the whole screen: arrow keys go on and back (P)"
        onClick={() => present(explorer)}
      >
        <Present /> Present
      </button>
    </>
  );
}

/** Begins or ends a presentation, and has the keys go to it. That of a report takes the whole screen. */
export function present({ presenting, paneSet: { root }, room, saved }: ExplorerState): void {
  presenting.toggle();
  const whole = saved && presenting.steps.peek().length > 0 && !room.unable;
  if (whole && room.full.peek() !== presenting.on.peek()) room.toggle();
  root.focus({ preventScroll: true });
}

/** In the place of the top row while one presents: the sentence of the step, and the way through the steps. */
export function ShowBar({ explorer }: { explorer: ExplorerState }) {
  const { presenting } = explorer;
  const { steps, at, words } = presenting;
  const last = steps.value.length - 1;
  const title = explorer.choice.value.model.split(/[\\/]/).at(-1);
  return (
    <div class="rt-showbar" role="toolbar" aria-label="Presentation">
      <p class="rt-words" aria-live="polite" data-control="words">
        {words.value || title}
      </p>
      {last >= 0 && (
        <>
          <Tool
            label="Step before (←)"
            control="step-before"
            disabled={at.value <= 0}
            icon={<Previous />}
            onClick={() => presenting.key("ArrowLeft")}
          />
          <span class="rt-quiet">
            {at.value + 1} / {last + 1}
          </span>
          <Tool
            label="Next step (→)"
            control="step-next"
            disabled={at.value >= last}
            icon={<Next />}
            onClick={() => presenting.key("ArrowRight")}
          />
        </>
      )}
      <FullTool explorer={explorer} />
      <Tool label="End (Esc)" control="present" icon={<Close />} onClick={() => present(explorer)} />
    </div>
  );
}

/** A spot around the pointer, so that a room can follow it. */
export function Spot({ root }: { root: HTMLElement }) {
  const spot = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const end = new AbortController();
    const put = (event: PointerEvent): void => {
      const { left, top } = root.getBoundingClientRect();
      const { style } = spot.current!;
      style.transform = `translate(${event.clientX - left - root.clientLeft}px, ${event.clientY - top - root.clientTop}px)`;
      spot.current!.hidden = false;
    };
    root.addEventListener("pointermove", put, { signal: end.signal });
    const leave = ({ clientX: x, clientY: y }: PointerEvent): void => {
      // What a chart lays over the page while a bar is pressed is no way out.
      const { left, right, top, bottom } = root.getBoundingClientRect();
      spot.current!.hidden = x <= left || x >= right || y <= top || y >= bottom;
    };
    root.addEventListener("pointerleave", leave, { signal: end.signal });
    return () => end.abort();
  }, []);
  return <div class="rt-spot" ref={spot} aria-hidden="true" hidden />;
}

/** The list of steps: what is on screen is added to it, and each is named, moved, played and removed. */
export function StepList({ explorer }: { explorer: ExplorerState }) {
  const { presenting } = explorer;
  const steps = presenting.steps.value;
  const [text, setText] = useState("");
  const form = useRef<HTMLFormElement>(null);
  const box = useRef<HTMLElement>(null);
  const close = (): void => {
    presenting.listing.value = false;
    const opener = explorer.saved ? '[data-control="contents"]' : '[data-control="show"] button';
    explorer.paneSet.root.querySelector<HTMLElement>(opener)?.focus();
  };
  const record = (): void => {
    presenting.record(text.trim());
    setText("");
  };
  useLayoutEffect(() => {
    onKeys(form.current, ({ key, target }) => {
      if (key !== "Enter" || target instanceof HTMLButtonElement) return false;
      record();
      return true;
    });
    onKeys(box.current, ({ key, target }) => {
      if (key === "Escape") close();
      else if (key === "Enter" && target instanceof HTMLButtonElement) target.click();
      // What is typed here is for no one else.
      return key === "Escape" || (key === "Enter" && target instanceof HTMLButtonElement);
    });
  });
  useEffect(() => form.current?.querySelector("input")?.focus({ preventScroll: true }), []);
  return (
    <aside class="rt-agenda" aria-label="Steps of a presentation" ref={box}>
      <header>
        <h3>Steps</h3>
        {steps.length > 0 && !explorer.saved && (
          <>
            <Copy
              title="Copy as Python, to keep the steps in a cell"
              text={() => `explorer.steps = ${python(steps)}`}
            />
            <button
              type="button"
              class="rt-field"
              data-control="play"
              onClick={() => {
                presenting.at.value = 0;
                present(explorer);
              }}
            >
              Present
            </button>
          </>
        )}
        <Tool
          label="Close the list"
          told="The steps stay, in the notebook too."
          control="close-steps"
          icon={<Close />}
          onClick={close}
        />
      </header>
      {!explorer.saved && (
        <form ref={form} onSubmit={(event) => event.preventDefault()}>
          <input
            type="text"
            aria-label="What is to be seen"
            placeholder="What is to be seen here?"
            title="The sentence that stands above while the step is shown"
            data-control="words-new"
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
          <button
            type="button"
            class="rt-field"
            data-control="record"
            title="Keeps this view as a step, with the sentence beside it"
            onClick={record}
          >
            <Plus /> Record
          </button>
        </form>
      )}
      {!steps.length && (
        <p class="rt-quiet">
          A step keeps the selection, the tab, the colours and what part of the graphs is in view. The arrow
          keys play the steps while you present; <code>study.report(path, steps=explorer.steps)</code> takes
          them into a report.
        </p>
      )}
      <ol>
        {steps.map((step, at) =>
          explorer.saved ? (
            <li key={at} data-step={at} aria-current={presenting.at.value === at ? "step" : undefined}>
              <button type="button" class="rt-content" onClick={() => presenting.play(at)}>
                <b>{at + 1}</b>
                {step.words || "(no sentence)"}
              </button>
            </li>
          ) : (
            <StepLine key={at} explorer={explorer} step={step} at={at} last={steps.length - 1} />
          ),
        )}
      </ol>
    </aside>
  );
}

interface LineProps {
  explorer: ExplorerState;
  step: Step;
  at: number;
  last: number;
}

function StepLine({ explorer: { presenting }, step, at, last }: LineProps) {
  const steps = presenting.steps.value;
  const move = (to: number): void => {
    presenting.change(moved(steps, at, to));
    if (presenting.at.peek() === at) presenting.at.value = to;
  };
  const name = `step ${at + 1}`;
  return (
    <li data-step={at} aria-current={presenting.at.value === at ? "step" : undefined}>
      <button
        type="button"
        class="rt-number"
        aria-label={`Show ${name}`}
        title={`Show ${name}`}
        onClick={() => presenting.play(at)}
      >
        {at + 1}
      </button>
      <input
        type="text"
        aria-label={`Sentence of ${name}`}
        placeholder="no sentence"
        value={step.words}
        onChange={(event) => {
          const words = event.currentTarget.value;
          presenting.change(steps.map((one, k) => (k === at ? { ...one, words } : one)));
        }}
      />
      <Tool label={`Move ${name} up`} disabled={at === 0} icon={<Up />} onClick={() => move(at - 1)} />
      <Tool label={`Move ${name} down`} disabled={at === last} icon={<Down />} onClick={() => move(at + 1)} />
      <Tool
        label={`Remove ${name}`}
        icon={<Close />}
        onClick={() => presenting.change(steps.filter((_, k) => k !== at))}
      />
    </li>
  );
}
