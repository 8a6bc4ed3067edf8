import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Option } from "../contract";
import { elapsed, shorten } from "../format";
import { onKeys } from "../keys";
import type { Lab } from "../lab";
import { Close, Outside, Play } from "./icons";
import { Tool } from "./pane";
import { Select } from "./select";

/** The choice: model, precision, calibrator, target; Build, and the progress of what is being built. */
export function TopRow({ lab }: { lab: Lab }) {
  if (lab.saved) return <SavedRow lab={lab} />;
  const { models, precisions, calibrators, targets } = lab.controls.value;
  const choice = lab.choice.value;
  const model = lab.opening.value || choice.model;
  const running = lab.build.value.running;
  const dead = lab.alive.value ? "" : "The kernel was restarted: run the cell again.";
  const noCalibrator = calibrators.some(({ enabled }) => enabled)
    ? ""
    : calibrators[0]?.reason || `${choice.precision || "This precision"} needs no calibrator`;
  return (
    <div class="rt-top" role="toolbar" aria-label="Choice of model, precision and target">
      <div class="rt-choices">
        <Select
          label="Model"
          name="model"
          options={listed(models, model)}
          value={model}
          disabled={dead}
          onPick={(id) => lab.open(id)}
          footer={(close) => <PathField lab={lab} close={close} />}
        />
        <Segments lab={lab} options={precisions} value={choice.precision} dead={dead} />
        <Select
          label="Calibrator"
          name="calibrator"
          options={calibrators}
          value={choice.calibrator}
          disabled={dead || noCalibrator}
          onPick={(calibrator) => lab.choose({ calibrator })}
        />
        <Select
          label="Target"
          name="target"
          options={targets}
          value={choice.target}
          disabled={dead}
          onPick={(target) => lab.choose({ target })}
        />
        <button
          type="button"
          class={`rt-build ${lab.stale.value && !running ? "rt-call" : ""}`}
          data-control="build"
          disabled={running || dead !== "" || !lab.study.source.value}
          title={
            lab.stale.value
              ? "Build the chosen variant; until then the last one stays on screen"
              : "Build the chosen variant"
          }
          onClick={() => lab.run()}
        >
          <Play /> Build
        </button>
        {running && <Progress lab={lab} />}
      </div>
      <Tool
        label={dead || "Open the model in Netron"}
        control="netron"
        disabled={dead !== ""}
        icon={<Outside />}
        onClick={() => lab.send("netron")}
      />
      <HelpTool lab={lab} />
    </div>
  );
}

/** In a report: whose it is, and why nothing can be built. */
function SavedRow({ lab }: { lab: Lab }) {
  const { model } = lab.choice.value;
  return (
    <div class="rt-top" role="toolbar" aria-label="Report">
      <h2 title={shorten(model, LONGEST)}>{shorten(model, LONGEST)}</h2>
      <span class="rt-quiet">Saved report. To build other variants, open the study in a notebook.</span>
      <div class="rt-fill" />
      <HelpTool lab={lab} />
    </div>
  );
}

const LONGEST = 400;

const HelpTool = ({ lab }: { lab: Lab }) => (
  <Tool label="Keys (?)" icon={<b>?</b>} onClick={() => lab.toggleHelp()} />
);

/** A model that was opened by its path is in no list of samples; it is still the one on screen. */
function listed(models: readonly Option[], current: string): readonly Option[] {
  if (!current || models.some(({ id }) => id === current)) return models;
  const label = current.split(/[\\/]/).at(-1) || current;
  return [{ id: current, label, enabled: true, reason: "" }, ...models];
}

function PathField({ lab, close }: { lab: Lab; close: () => void }) {
  const [path, setPath] = useState("");
  const form = useRef<HTMLFormElement>(null);
  const open = (): void => {
    if (!path.trim()) return;
    lab.open(path.trim());
    close();
  };
  useLayoutEffect(() => {
    onKeys(form.current, (event) => {
      if (event.key !== "Enter") return false;
      open();
      return true;
    });
  });
  return (
    <form class="rt-path" ref={form} onSubmit={(event) => event.preventDefault()}>
      <input
        type="text"
        aria-label="Path of an ONNX file"
        placeholder="path/to/model.onnx"
        spellcheck={false}
        value={path}
        onInput={(event) => setPath(event.currentTarget.value)}
      />
      <button type="button" class="rt-field" onClick={open}>
        Open
      </button>
      <small>or drop an .onnx file anywhere here</small>
    </form>
  );
}

interface SegmentsProps {
  lab: Lab;
  options: readonly Option[];
  value: string;
  dead: string;
}

function Segments({ lab, options, value, dead }: SegmentsProps) {
  const box = useRef<HTMLDivElement>(null);
  const pick = (option: Option): void => {
    if (option.enabled && !dead && option.id !== value) lab.choose({ precision: option.id });
  };
  useLayoutEffect(() => {
    onKeys(box.current, (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return false;
      const usable = options.filter(({ enabled }) => enabled);
      const next = usable[usable.findIndex(({ id }) => id === value) + by];
      if (next) {
        pick(next);
        box.current?.querySelector<HTMLElement>(`[data-value="${CSS.escape(next.id)}"]`)?.focus();
      }
      return true;
    });
  });
  return (
    <div
      class="rt-segments"
      role="radiogroup"
      aria-label="Precision"
      ref={box}
      data-control="precision"
      data-value={value}
    >
      {options.map((option) => (
        // biome-ignore lint/a11y/useSemanticElements: a segmented control is a radio group of buttons
        <button
          type="button"
          role="radio"
          key={option.id}
          data-value={option.id}
          aria-checked={option.id === value}
          aria-disabled={!option.enabled || dead !== ""}
          tabIndex={option.id === value || !value ? 0 : -1}
          title={dead || option.reason || option.label}
          onClick={() => pick(option)}
        >
          {option.label}
        </button>
      ))}
    </div>
  );
}

const TICK_MS = 100;

function Progress({ lab }: { lab: Lab }) {
  const { phase, fraction, since } = lab.build.value;
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  const percent = fraction === null ? null : Math.round(100 * Math.min(1, Math.max(0, fraction)));
  return (
    <div class="rt-progress" data-control="progress">
      <div
        class={`rt-bar ${percent === null ? "rt-unknown" : ""}`}
        role="progressbar"
        aria-label={phase || "Building"}
        aria-valuemin={0}
        aria-valuemax={100}
        {...(percent === null ? {} : { "aria-valuenow": percent })}
      >
        <div style={percent === null ? {} : { width: `${percent}%` }} />
      </div>
      <span class="rt-phase" title={phase}>
        {phase || "Building"}
      </span>
      <span class="rt-elapsed">{elapsed(now / 1000 - since)}</span>
      <button type="button" class="rt-cancel" data-control="cancel" onClick={() => lab.send("cancel")}>
        <Close /> Cancel
      </button>
    </div>
  );
}
