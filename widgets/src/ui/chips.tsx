import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Chip } from "../contract";
import { difference, quantity } from "../format";
import { onKeys } from "../keys";
import type { Lab } from "../lab";
import { More, Pin, Warning } from "./icons";

/** The variants built so far: size, time, and accuracy as a difference from the baseline. */
export function Chips({ lab }: { lab: Lab }) {
  const chips = lab.chips.value;
  const shown = lab.study.engine.value?.variant ?? lab.study.view.value.variant;
  return (
    <div class="rt-chips" role="toolbar" aria-label="Variants">
      <span class="rt-quiet">Variants</span>
      {chips.length === 0 && <span class="rt-quiet">none yet: press Build</span>}
      {chips.map((chip) => (
        <ChipView key={chip.id} lab={lab} chip={chip} current={chip.id === shown} />
      ))}
      {lab.notice.value && <span class="rt-notice">{lab.notice.value}</span>}
    </div>
  );
}

function ChipView({ lab, chip, current }: { lab: Lab; chip: Chip; current: boolean }) {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const outside = (event: PointerEvent): void => {
      if (!event.composedPath().includes(box.current!)) setOpen(false);
    };
    window.addEventListener("pointerdown", outside, true);
    return () => window.removeEventListener("pointerdown", outside, true);
  }, [open]);
  useLayoutEffect(() => {
    onKeys(box.current, (event) => {
      if (event.key !== "Escape" || !open) return false;
      setOpen(false);
      return true;
    });
  });
  const act = (type: "baseline" | "rebuild" | "remove"): void => {
    setOpen(false);
    lab.send(type, chip.id);
  };
  const show = (): void => {
    if (chip.status === "failed") lab.ownFailure.value = chip.error;
    else if (chip.status === "ready") lab.send("show", chip.id);
  };
  return (
    <div class={`rt-chip rt-${chip.status} ${current ? "rt-current" : ""}`} ref={box} data-chip={chip.id}>
      <button type="button" aria-pressed={current} title={hint(chip)} onClick={show}>
        {chip.status === "building" && <i class="rt-spin" aria-hidden="true" />}
        {chip.status === "failed" && <Warning />}
        {chip.baseline && <Pin />}
        <b>{chip.label}</b>
        <Facts chip={chip} />
      </button>
      {!lab.saved && (
        <button
          type="button"
          class="rt-more"
          aria-haspopup="menu"
          aria-expanded={open}
          aria-label={`More for ${chip.label}`}
          onClick={() => setOpen(!open)}
        >
          <More />
        </button>
      )}
      {open && (
        <div class="rt-popup rt-menu" role="menu">
          <button
            type="button"
            role="menuitem"
            disabled={chip.baseline || chip.status !== "ready"}
            onClick={() => act("baseline")}
          >
            Make it the baseline
          </button>
          <button
            type="button"
            role="menuitem"
            disabled={chip.status === "building"}
            onClick={() => act("rebuild")}
          >
            Build again
          </button>
          <button
            type="button"
            role="menuitem"
            disabled={chip.status === "building"}
            onClick={() => act("remove")}
          >
            Remove
          </button>
        </div>
      )}
    </div>
  );
}

function Facts({ chip }: { chip: Chip }) {
  if (chip.status === "failed") return <span>failed</span>;
  if (chip.status === "building") return <span>building</span>;
  const delta = chip.score_delta;
  return (
    <>
      <span>
        {chip.nodes} → {chip.layers} layers
      </span>
      {chip.time !== null && <span class="rt-strong">{quantity(chip.time, "ms")}</span>}
      {delta !== null && !chip.baseline ? (
        <span class={delta <= -0.05 ? "rt-worse" : "rt-quiet"}>{difference(delta, chip.score_unit)}</span>
      ) : (
        chip.score !== null && <span class="rt-strong">{quantity(chip.score, chip.score_unit)}</span>
      )}
    </>
  );
}

function hint(chip: Chip): string {
  if (chip.status === "failed")
    return chip.error?.message.slice(0, 300) ?? "The build failed; click to see why";
  const score =
    chip.score === null ? "" : `Accuracy ${quantity(chip.score, chip.score_unit)}, ${chip.score_source}`;
  const time = chip.time === null ? "" : `${quantity(chip.time, "ms")}, ${chip.time_source}`;
  return [chip.target && `Target ${chip.target}`, time, score].filter(Boolean).join("\n");
}
