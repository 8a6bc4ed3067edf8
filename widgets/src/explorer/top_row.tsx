import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Option, TREATMENTS } from "../core/contract";
import { elapsed, ending, plural, shorten } from "../core/format";
import { meaning } from "../core/glossary";
import { useKeys } from "../ui/hooks";
import { Close, Down, Fullscreen, Outside, Play, Save } from "../ui/icons";
import { type Item, MoreMenu } from "../ui/menu";
import { Select } from "../ui/select";
import { Tool } from "../ui/tool";
import { transformKinds } from "./choice";
import type { ExplorerState } from "./explorer_state";
import { OPENABLE } from "./files";
import { chosenSizes, describeSizes, fitVariant } from "./input_sizes";
import { OpenFiles } from "./open_files";
import { PresentMenu } from "./presentation_view";

/** The choice: model, precision, calibrator, target; Build, and the progress of what is being built. */
export function TopRow({ explorer }: { explorer: ExplorerState }) {
  if (explorer.saved) return <SavedRow explorer={explorer} />;
  const { models, precisions, calibrators, targets } = explorer.controls.value;
  const choice = explorer.choice.value;
  const model = explorer.opening.value || choice.model;
  const running = explorer.build.value.running;
  const fixed = explorer.unbuildable();
  const blocked = explorer.busy();
  const noCalibrator = calibrators.some(({ reason }) => !reason)
    ? ""
    : calibrators[0]?.reason || `${choice.precision || "This precision"} needs no calibrator`;
  return (
    <div class="rt-top" role="toolbar" aria-label="Choice of model, precision and target">
      <div class="rt-choices">
        <Select
          label="Model"
          help="A sample, a model of yours by its path, or files that are dropped here."
          name="model"
          options={listed(models, model)}
          value={model}
          disabled={explorer.busy()}
          onPick={(id) => explorer.open(id)}
          footer={(close) => (
            <TextField
              label="Path of an ONNX file"
              example="path/to/model.onnx"
              button="Open"
              hint={`or drop files anywhere here, or paste what you copied: ${OPENABLE}`}
              onEnter={(path) => explorer.open(path)}
              close={close}
            >
              <OpenFiles explorer={explorer} onOpen={close} />
            </TextField>
          )}
        />
        <Segments explorer={explorer} options={precisions} value={choice.precision} dead={fixed} />
        <Select
          label="Calibrator"
          help="The rule that makes the scales of int8 and fp8 of what samples show."
          name="calibrator"
          brief
          options={listed(calibrators, choice.calibrator)}
          value={choice.calibrator}
          disabled={fixed || noCalibrator}
          onPick={(calibrator) => explorer.choose({ calibrator })}
          footer={(close) => (
            <TextField
              label="Calibrator with its parameters"
              example="percentile(99.9)"
              button="Apply"
              hint="a method with parameters, such as entropy2(bins=4096)"
              onEnter={(calibrator) => explorer.choose({ calibrator })}
              close={close}
            />
          )}
        />
        <Select
          label="Target"
          help="The processor that the engine is built for; it need not be in this machine."
          name="target"
          brief
          options={targets}
          value={choice.target}
          disabled={fixed}
          onPick={(target) => explorer.choose({ target })}
        />
        <Pins explorer={explorer} dead={fixed} />
        <Treatments explorer={explorer} dead={fixed} />
        <MoreMenu
          label="More settings"
          help="How weights are scaled and pruned, which compiler builds, and how long measuring may take."
          name="settings"
          note={[
            ...(choice.sizes ?? []),
            choice.weights === "tensor" && "per tensor",
            choice.sparsity.length > 0 && "2:4",
            release(explorer),
            BUDGETS.find(({ id }) => id === budgetOf(explorer))?.note,
          ]
            .filter(Boolean)
            .join(" · ")}
          items={() => settings(explorer, fixed)}
        />
        {running ? (
          <Progress explorer={explorer} />
        ) : (
          <button
            type="button"
            class={`rt-build ${explorer.stale.value ? "rt-call" : ""}`}
            data-control="build"
            disabled={fixed !== "" || !explorer.study.source.value}
            title={
              fixed ||
              (explorer.stale.value
                ? "Build the chosen variant; until then the last one stays on screen"
                : "Build the chosen variant")
            }
            onClick={() => explorer.run()}
          >
            <Play /> Build
          </button>
        )}
      </div>
      <Tool
        label={fixed || "Open the model in Netron"}
        help="The whole ONNX graph with all attributes, in a tab of its own."
        control="netron"
        disabled={fixed !== ""}
        icon={<Outside />}
        onClick={() => explorer.send({ type: "netron" })}
      />
      <Tool
        label={blocked || "Save the study"}
        help="Variants, results, times and scores in one file beside the notebook, without weights; rtlab.open shows them again."
        control="save-study"
        disabled={blocked !== ""}
        icon={<Save />}
        onClick={() => explorer.send({ type: "keep" })}
      />
      <PresentMenu explorer={explorer} />
      <FullscreenTool explorer={explorer} />
      <HelpTool explorer={explorer} />
    </div>
  );
}

function SavedRow({ explorer }: { explorer: ExplorerState }) {
  const { model } = explorer.choice.value;
  return (
    <div class="rt-top" role="toolbar" aria-label="Report">
      <h2 title={shorten(model, LONGEST)}>{shorten(model, LONGEST)}</h2>
      <span class="rt-quiet">Saved report. To build other variants, open the study in a notebook.</span>
      <div class="rt-fill" />
      <PresentMenu explorer={explorer} />
      <FullscreenTool explorer={explorer} />
      <HelpTool explorer={explorer} />
    </div>
  );
}

const LONGEST = 400;

function FullscreenTool({ explorer: { fullscreen } }: { explorer: ExplorerState }) {
  const { on, unavailable } = fullscreen;
  return (
    <Tool
      label={unavailable || (on.value ? "Leave full screen (F)" : "Full screen (F)")}
      help="The Explorer alone on the whole screen."
      control="full"
      pressed={on.value}
      disabled={unavailable !== ""}
      icon={<Fullscreen />}
      onClick={() => fullscreen.toggle()}
    />
  );
}

const HelpTool = ({ explorer }: { explorer: ExplorerState }) => (
  <Tool
    label="Help (?)"
    help="The keys, the terms, and a tour of a minute."
    control="help"
    icon={<b>?</b>}
    onClick={() => explorer.toggleHelp()}
  />
);

/** What is chosen though no list has it: a model that was opened by its path, a calibrator with parameters. */
function listed(options: readonly Option[], current: string): readonly Option[] {
  if (!current || options.some(({ id }) => id === current)) return options;
  const label = current.split(/[\\/]/).at(-1) || current;
  return [{ id: current, label, reason: "" }, ...options];
}

interface TextFieldProps {
  label: string;
  example: string;
  button: string;
  hint: string;
  onEnter(text: string): void;
  close(): void;
  children?: ComponentChildren;
}

function TextField({ label, example, button, hint, onEnter, close, children }: TextFieldProps) {
  const [text, setText] = useState("");
  const form = useRef<HTMLFormElement>(null);
  const enter = (): void => {
    if (!text.trim()) return;
    onEnter(text.trim());
    close();
  };
  useKeys(form, (event) => {
    if (event.key !== "Enter") return false;
    if (event.target instanceof HTMLButtonElement) event.target.click();
    else enter();
    return true;
  });
  return (
    <form class="rt-path" ref={form} onSubmit={(event) => event.preventDefault()}>
      <input
        type="text"
        aria-label={label}
        placeholder={example}
        spellcheck={false}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <button type="button" class="rt-field" onClick={enter}>
        {button}
      </button>
      {children}
      <small>{hint}</small>
    </form>
  );
}

function Pins({ explorer, dead }: { explorer: ExplorerState; dead: string }) {
  const { pins } = explorer.choice.value;
  if (!pins.length) return null;
  const items = (): Item[] => [
    { id: "pins", label: "Pinned; pick one to remove it" },
    ...pins.slice(0, MOST_PINS).map(({ pattern, precision }, at) => ({
      id: pattern,
      label: `${ending(pattern, LONGEST_PATTERN)} → ${precision}`,
      keys: "✕",
      pick: () => explorer.choose({ pins: pins.toSpliced(at, 1) }),
    })),
    ...(pins.length > MOST_PINS ? [{ id: "more", label: `and ${pins.length - MOST_PINS} more` }] : []),
  ];
  return (
    <MoreMenu
      label="Pinned nodes"
      help={shorten(pins.map((pin) => `${pin.pattern} → ${pin.precision}`).join("\n"), LONGEST)}
      name="pins"
      value={pins.length}
      note={`${pins.length} pinned`}
      icon={null}
      disabled={dead}
      look={{ box: "rt-pill", button: "rt-pins" }}
      items={items}
    >
      <Tool
        label="Remove all pins"
        help="All nodes have the precision of the variant again."
        control="unpin"
        disabled={dead !== ""}
        icon={<Close />}
        onClick={() => explorer.choose({ pins: [] })}
      />
    </MoreMenu>
  );
}

/** PTQ transforms of the model; absent where nothing is quantized. */
function Treatments({ explorer, dead }: { explorer: ExplorerState; dead: string }) {
  const { treatments } = explorer.choice.value;
  const offered = explorer.controls.value.treatments ?? [];
  if (!treatments.length && offered.every(({ reason }) => reason)) return null;
  const items = (): Item[] => [
    { id: "treatments", label: "Transforms that reduce the error of rounding" },
    ...offered.map(({ id, label, reason }): Item => {
      const own = treatments.filter((one) => /^\w+/.exec(one)![0] === id);
      const others = treatments.filter((one) => !own.includes(one));
      return {
        id,
        label: own.join(", ") || label,
        help: TREATMENTS[id] ?? "",
        checked: own.length > 0,
        reason: dead || reason,
        pick: () => explorer.choose({ treatments: own.length ? others : [...treatments, id] }),
      };
    }),
  ];
  const kinds = transformKinds(treatments);
  return (
    <MoreMenu
      label="Transforms"
      help={kinds.join(", ") || "none"}
      name="treatments"
      value={treatments.join(" · ")}
      note={kinds.length ? plural(kinds.length, "transform") : "unmodified"}
      icon={<Down />}
      disabled={dead}
      look={{ button: "rt-field", left: 0 }}
      items={items}
    />
  );
}

const LONGEST_PATTERN = 30;
const MOST_PINS = 40;

function settings(explorer: ExplorerState, dead: string): Item[] {
  const { weights, sparsity } = explorer.choice.value;
  const all = sparsity.includes("*");
  const scaled = (id: string, label: string): Item => ({
    id,
    label,
    radio: true,
    checked: weights === id,
    reason: dead,
    pick: () => explorer.choose({ weights: id }),
  });
  const unusable = explorer.controls.value.precisions.filter((option) => folded(explorer, option));
  return [
    ...(unusable.length ? [{ id: "precisions", label: "Precision" }] : []),
    ...unusable.map(({ id, label, reason }): Item => ({ id, label, reason, pick: () => {} })),
    ...sizing(explorer, dead),
    { id: "weights", label: "Scales of quantized weights" },
    scaled("channel", "one per channel"),
    scaled("tensor", "one per tensor"),
    { id: "sparsity", label: "Weights" },
    {
      id: "sparse",
      label: "prune all layers to 2:4",
      checked: all,
      reason: dead,
      pick: () => explorer.choose({ sparsity: all ? [] : ["*"] }),
    },
    ...compilers(explorer, dead),
    { id: "budget", label: "Measuring here, after compiling" },
    ...BUDGETS.map(
      ({ id, label }): Item => ({
        id: `budget-${id}`,
        label,
        radio: true,
        checked: budgetOf(explorer) === id,
        reason: dead,
        pick: () => explorer.set(BUDGET, id),
      }),
    ),
  ];
}

function sizing(explorer: ExplorerState, dead: string): Item[] {
  const { sizes } = explorer.controls.value;
  if (!sizes.length) return [];
  return [
    { id: "sizes", label: "Sizes of the inputs" },
    {
      id: "resize",
      label: sizes.some(({ lacking }) => lacking)
        ? "name them…"
        : `${ending(describeSizes(chosenSizes(sizes, explorer.choice.value)), LONGEST_PATTERN)}, change…`,
      help: fitVariant(sizes)
        ? "Builds a variant at other sizes of the inputs, or opens the model with them."
        : "Opens the model with other sizes of its inputs, and builds it.",
      reason: dead,
      pick: () => {
        explorer.sizing.value = true;
      },
    },
  ];
}

/** The releases of the compiler, where there are several: the one that builds, the usual one unless it is chosen. */
function compilers(explorer: ExplorerState, dead: string): Item[] {
  const { compilers: releases } = explorer.controls.value;
  if (releases.length < 2) return [];
  const { backend } = explorer.choice.value;
  return [
    { id: "compilers", label: "Compiler" },
    ...releases.map(
      ({ id, label, reason }): Item => ({
        id,
        label,
        radio: true,
        checked: id === backend,
        reason: reason || dead,
        pick: () => explorer.choose({ backend: id }),
      }),
    ),
  ];
}

function release(explorer: ExplorerState): string {
  const { backend } = explorer.choice.value;
  const others = explorer.controls.value.compilers.slice(1);
  return backend.split(":")[1] ?? others.find(({ id }) => id === backend)?.label ?? "";
}

const BUDGET = "run.budget_s";
const DEFAULT_BUDGET = "15";
const BUDGETS = [
  { id: "0", label: "only compile", note: "only compile" },
  { id: "5", label: "5 s", note: "5 s" },
  { id: DEFAULT_BUDGET, label: "15 s, a first answer", note: "15 s" },
  { id: "60", label: "60 s", note: "60 s" },
  { id: "inf", label: "all samples, however long", note: "all samples" },
] as const;

const budgetOf = (explorer: ExplorerState): string =>
  explorer.study.view.value.settings[BUDGET] ?? DEFAULT_BUDGET;

interface SegmentsProps {
  explorer: ExplorerState;
  options: readonly Option[];
  value: string;
  dead: string;
}

const ROOMY = 1240;

const folded = (explorer: ExplorerState, { id, reason }: Option): boolean =>
  reason !== "" && id !== explorer.choice.value.precision && explorer.width.value < ROOMY;

function Segments({ explorer, options, value, dead }: SegmentsProps) {
  const box = useRef<HTMLDivElement>(null);
  const usable = options.filter(({ reason }) => !reason);
  const visible = options.filter((option) => !folded(explorer, option));
  const pick = (option: Option): void => {
    if (!option.reason && !dead && option.id !== value) explorer.choose({ precision: option.id });
  };
  useKeys(box, (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return false;
    const next = usable[usable.findIndex(({ id }) => id === value) + by];
    if (next) {
      pick(next);
      box.current?.querySelector<HTMLElement>(`[data-value="${CSS.escape(next.id)}"]`)?.focus();
    }
    return true;
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
      {visible.map((option) => (
        // biome-ignore lint/a11y/useSemanticElements: a segmented control is a radio group of buttons
        <button
          type="button"
          role="radio"
          key={option.id}
          data-value={option.id}
          aria-checked={option.id === value}
          aria-disabled={option.reason !== "" || dead !== ""}
          tabIndex={option.id === value || !value ? 0 : -1}
          title={dead || option.reason || `${option.label}\n${meaning(option.label)}`}
          aria-description={dead || option.reason || meaning(option.label)}
          onClick={() => pick(option)}
        >
          {option.label}
        </button>
      ))}
    </div>
  );
}

const TICK_MS = 100;

function Progress({ explorer }: { explorer: ExplorerState }) {
  const build = explorer.build.value;
  const { phase, fraction } = build;
  const [now, setNow] = useState(performance.now());
  const received = useMemo(() => performance.now(), [build]);
  useEffect(() => {
    const timer = setInterval(() => setNow(performance.now()), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  const dead = explorer.unusable();
  const text = dead ? "No connection" : phase || "Building";
  const percent = fraction === null ? null : Math.round(100 * Math.min(1, Math.max(0, fraction)));
  return (
    <div class="rt-progress" data-control="progress">
      <span class="rt-phase" title={dead || phase}>
        {text}
      </span>
      <div
        class={`rt-bar ${percent === null && !dead ? "rt-unknown" : ""}`}
        role="progressbar"
        aria-label={text}
        aria-valuemin={0}
        aria-valuemax={100}
        {...(percent === null ? {} : { "aria-valuenow": percent })}
      >
        <div style={percent === null ? {} : { width: `${percent}%` }} />
      </div>
      {!dead && <span class="rt-elapsed">{elapsed(build.elapsed + Math.max(0, now - received) / 1000)}</span>}
      <button
        type="button"
        class="rt-cancel"
        data-control="cancel"
        disabled={dead !== ""}
        title={dead}
        onClick={() => explorer.send({ type: "cancel" })}
      >
        <Close /> Cancel
      </button>
    </div>
  );
}
