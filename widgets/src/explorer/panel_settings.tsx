import { useId, useState } from "preact/hooks";
import type { Panel, Setting, Work } from "../core/contract";
import { Select } from "../ui/select";
import type { ExplorerState } from "./explorer_state";

export function Settings({ explorer, panel }: { explorer: ExplorerState; panel: Panel }) {
  const { settings, work, name, variant } = panel;
  if (explorer.saved || !(settings.length || work.length)) return null;
  const busy = explorer.busy();
  const dead = explorer.unusable();
  const stale = variant !== explorer.study.engine.value?.variant;
  return (
    <div class="rt-settings">
      {settings.map((setting) => (
        <One
          key={setting.key}
          setting={setting}
          name={`${name}.${setting.key}`}
          value={shownOf(explorer, panel, setting)}
          dead={dead}
          onPick={(value) => explorer.set(`${name}.${setting.key}`, value)}
        />
      ))}
      {work.map((one) => (
        <Start
          key={one.label}
          work={one}
          reason={busy || one.reason || (stale ? "Wait for this variant's numbers" : "")}
          onStart={() => explorer.work(one, panel)}
        />
      ))}
    </div>
  );
}

function shownOf(
  explorer: ExplorerState,
  { name, problem }: Panel,
  { key, kind, value, options }: Setting,
): string {
  const setting = explorer.study.view.value.settings[`${name}.${key}`];
  if (setting === undefined || !(explorer.requests.waiting.value || problem)) return value;
  return kind === "text" || options.some(({ id }) => id === setting) ? setting : value;
}

interface OneProps {
  setting: Setting;
  name: string;
  value: string;
  dead: string;
  onPick(value: string): void;
}

function One({ setting: { kind, label, told, options, hint }, name, value, dead, onPick }: OneProps) {
  if (kind === "select")
    return (
      <Select
        label={label}
        help={told}
        name={name}
        prefix={`${label}:`}
        options={options}
        value={value}
        disabled={dead}
        onPick={onPick}
      />
    );
  if (kind === "text")
    return (
      <Field label={label} told={told} name={name} value={value} hint={hint} dead={dead} onPick={onPick} />
    );
  const at = Math.max(
    0,
    options.findIndex(({ id }) => id === value),
  );
  const option = options[at]?.label ?? value;
  return (
    <label class="rt-stops" title={dead || told}>
      <span>{label}</span>
      <input
        type="range"
        aria-description={dead || told}
        disabled={dead !== ""}
        data-control={name}
        min={0}
        max={options.length - 1}
        step={1}
        value={at}
        aria-valuetext={option}
        onInput={(event) => onPick(options[event.currentTarget.valueAsNumber]?.id ?? value)}
      />
      <output>{option}</output>
    </label>
  );
}

function Field({
  label,
  told,
  name,
  value,
  hint,
  dead,
  onPick,
}: Omit<OneProps, "setting"> & { label: string; told: string; hint: string }) {
  const [draft, setDraft] = useState<string | null>(null);
  const commit = (): void => {
    if (draft !== null && draft.trim() !== value) onPick(draft.trim());
    setDraft(null);
  };
  return (
    <label class="rt-stops">
      <span>{label}</span>
      <input
        class="rt-write"
        type="text"
        data-control={name}
        value={draft ?? value}
        disabled={dead !== ""}
        placeholder={hint}
        title={dead || `${told}\n${hint}`}
        aria-description={dead || told}
        spellcheck={false}
        onInput={(event) => setDraft(event.currentTarget.value)}
        onBlur={commit}
        onKeyDown={(event) => event.key === "Enter" && commit()}
      />
    </label>
  );
}

function Start({ work, reason, onStart }: { work: Work; reason: string; onStart(): void }) {
  const id = useId();
  return (
    <>
      <button
        type="button"
        class="rt-field"
        data-work={work.work}
        aria-disabled={reason !== ""}
        aria-describedby={id}
        title={reason || work.told}
        onClick={() => reason || onStart()}
      >
        {work.label}
      </button>
      <span class="rt-spoken" id={id}>
        {reason || work.told}
      </span>
    </>
  );
}
