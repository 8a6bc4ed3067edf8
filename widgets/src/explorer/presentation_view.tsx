import { plural } from "../core/format";
import { Close, Next, Plus, Present, Previous, Up } from "../ui/icons";
import { type Item, MoreMenu } from "../ui/menu";
import { Tool } from "../ui/tool";
import type { ExplorerState } from "./explorer_state";

interface Props {
  explorer: ExplorerState;
}

export function PresentMenu({ explorer }: Props) {
  const { presentation, saved } = explorer;
  const count = presentation.steps.value.length;
  const steps: Item = {
    id: "steps",
    label: count ? `Steps of the presentation: ${count}` : "Record steps",
    pick: () => {
      presentation.listing.value = true;
    },
  };
  return (
    <MoreMenu
      label="Present"
      help="Larger type, fewer controls, and steps that the arrow keys play."
      name="show"
      icon={<Present />}
      note={saved && count ? plural(count, "step") : ""}
      items={() => [
        { id: "present", label: "Present", keys: "P", pick: () => togglePresentation(explorer) },
        ...(saved && !count ? [] : [steps]),
      ]}
    />
  );
}

/** Begins or ends a presentation; that of a report takes the whole screen. */
export function togglePresentation({
  presentation,
  paneSet: { root },
  fullscreen,
  saved,
}: ExplorerState): void {
  presentation.toggle();
  const whole = saved && presentation.steps.peek().length > 0 && !fullscreen.unavailable;
  if (whole && fullscreen.on.peek() !== presentation.on.peek()) fullscreen.toggle();
  root.focus({ preventScroll: true });
}

/** Replaces the top row while presenting: the sentence of the step, and the way through the steps. */
export function PresentationBar({ explorer }: Props) {
  const { presentation } = explorer;
  const { steps, at, caption } = presentation;
  const last = steps.value.length - 1;
  return (
    <div class="rt-showbar" role="toolbar" aria-label="Presentation">
      <p class="rt-words" aria-live="polite" data-control="words">
        {caption.value || explorer.choice.value.model.split(/[\\/]/).at(-1)}
      </p>
      {last >= 0 && (
        <>
          <Tool
            label="Previous step (←)"
            control="step-before"
            disabled={at.value <= 0}
            icon={<Previous />}
            onClick={() => presentation.play(at.value - 1)}
          />
          <span class="rt-quiet">
            {at.value + 1} / {last + 1}
          </span>
          <Tool
            label="Next step (→)"
            control="step-next"
            disabled={at.value >= last}
            icon={<Next />}
            onClick={() => presentation.play(at.value + 1)}
          />
        </>
      )}
      <Tool
        label="End (Esc)"
        control="present"
        icon={<Close />}
        onClick={() => togglePresentation(explorer)}
      />
    </div>
  );
}

/** The steps: recorded, named, moved up, removed and played; in a report only played. */
export function StepList({ explorer }: Props) {
  const { presentation, saved } = explorer;
  const steps = presentation.steps.value;
  const close = (): void => {
    presentation.listing.value = false;
    explorer.paneSet.root.querySelector<HTMLElement>('[data-control="show"] button')?.focus();
  };
  return (
    <aside class="rt-agenda" aria-label="Steps of a presentation">
      <header>
        <h3>Steps</h3>
        {!saved && (
          <button
            type="button"
            class="rt-field"
            data-control="record"
            title="Adds the current view to explorer.steps, which study.report takes into a report"
            onClick={() => presentation.record("")}
          >
            <Plus /> Record
          </button>
        )}
        <Tool
          label="Close the list"
          help="The steps stay, in the notebook too."
          control="close-steps"
          icon={<Close />}
          onClick={close}
        />
      </header>
      <ol>
        {steps.map((step, at) => {
          const name = `step ${at + 1}`;
          const before = steps[at - 1];
          return (
            <li key={at} data-step={at} aria-current={presentation.at.value === at ? "step" : undefined}>
              <button
                type="button"
                class={saved ? "rt-content" : "rt-number"}
                title={`Show ${name}`}
                onClick={() => presentation.play(at)}
              >
                <b>{at + 1}</b>
                {saved && (step.words || "(no sentence)")}
              </button>
              {!saved && (
                <>
                  <input
                    type="text"
                    aria-label={`Sentence of ${name}`}
                    placeholder="What is to be seen?"
                    value={step.words}
                    onChange={({ currentTarget: { value: words } }) =>
                      presentation.change(steps.with(at, { ...step, words }))
                    }
                  />
                  <Tool
                    label={`Move ${name} up`}
                    disabled={!before}
                    icon={<Up />}
                    onClick={() => presentation.change(steps.with(at, before!).with(at - 1, step))}
                  />
                  <Tool
                    label={`Remove ${name}`}
                    icon={<Close />}
                    onClick={() => presentation.change(steps.toSpliced(at, 1))}
                  />
                </>
              )}
            </li>
          );
        })}
      </ol>
    </aside>
  );
}
