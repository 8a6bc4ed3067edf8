import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Chip } from "../contract";
import { difference, quantity, shorten, timeOf } from "../format";
import { onKeys } from "../keys";
import type { Lab } from "../lab";
import { More, Pin, Warning } from "./icons";

/** The variants built so far: size, time, and accuracy as a difference from the baseline. */
export function Chips({ lab }: { lab: Lab }) {
  const chips = lab.chips.value;
  const shown = lab.study.engine.value?.variant ?? lab.study.view.value.variant;
  const severalTargets = new Set(chips.map(({ target }) => target)).size > 1;
  /** The chip whose menu is open, and where in the row it stands. */
  const [menu, setMenu] = useState<{ id: string; left: number } | null>(null);
  const box = useRef<HTMLDivElement>(null);
  const row = useRef<HTMLDivElement>(null);
  const open = chips.find(({ id }) => id === menu?.id);
  useEffect(() => {
    if (!menu) return;
    const outside = (event: PointerEvent): void => {
      const inside = (part: EventTarget): boolean =>
        part instanceof Element && part.matches(".rt-menu, .rt-more");
      if (!event.composedPath().some(inside)) setMenu(null);
    };
    window.addEventListener("pointerdown", outside, true);
    return () => window.removeEventListener("pointerdown", outside, true);
  }, [menu]);
  useLayoutEffect(() => {
    onKeys(box.current, (event) => {
      if (event.key !== "Escape" || !menu) return false;
      setMenu(null);
      return true;
    });
  });
  // Only the row scrolls: the page stays where the reader is.
  useEffect(() => {
    const chip = row.current?.querySelector<HTMLElement>(".rt-current");
    if (!chip) return;
    const { scrollLeft, clientWidth } = row.current!;
    if (chip.offsetLeft < scrollLeft || chip.offsetLeft + chip.offsetWidth > scrollLeft + clientWidth)
      row.current!.scrollLeft = chip.offsetLeft;
  }, [shown, chips.length]);
  const place = (id: string): void => {
    const button = row.current!.querySelector(`[data-chip="${CSS.escape(id)}"] .rt-more`)!;
    setMenu({ id, left: button.getBoundingClientRect().left - box.current!.getBoundingClientRect().left });
  };
  return (
    <div class="rt-chips" role="toolbar" aria-label="Variants" ref={box}>
      <span class="rt-quiet">Variants</span>
      {chips.length === 0 && <span class="rt-quiet">none yet: press Build</span>}
      <div class="rt-row" ref={row} onScroll={() => open && place(open.id)}>
        {chips.map((chip) => (
          <ChipView
            key={chip.id}
            lab={lab}
            chip={chip}
            current={chip.id === shown}
            tagged={severalTargets}
            open={chip.id === open?.id}
            onMenu={() => (chip.id === open?.id ? setMenu(null) : place(chip.id))}
          />
        ))}
      </div>
      {lab.notice.value && <span class="rt-notice">{lab.notice.value}</span>}
      {open && <Menu lab={lab} chip={open} left={menu!.left} onClose={() => setMenu(null)} />}
    </div>
  );
}

interface ChipProps {
  lab: Lab;
  chip: Chip;
  current: boolean;
  /** Whether the target stands on the chip, because there is another. */
  tagged: boolean;
  open: boolean;
  onMenu(): void;
}

function ChipView({ lab, chip, current, tagged, open, onMenu }: ChipProps) {
  const show = (): void => {
    if (chip.status === "failed") lab.ownFailure.value = chip.error;
    else if (chip.status === "ready") lab.send("show", chip.id);
  };
  return (
    <div class={`rt-chip rt-${chip.status} ${current ? "rt-current" : ""}`} data-chip={chip.id}>
      <button type="button" aria-pressed={current} title={hint(chip)} onClick={show}>
        {chip.status === "building" && <i class="rt-spin" aria-hidden="true" />}
        {chip.status === "failed" && <Warning />}
        {chip.baseline && <Pin />}
        <b>{chip.label}</b>
        {tagged && chip.target && <small class="rt-tag">{shorten(chip.target, LONGEST_TARGET)}</small>}
        <Facts chip={chip} />
      </button>
      {!lab.saved && (
        <button
          type="button"
          class="rt-more"
          aria-haspopup="menu"
          aria-expanded={open}
          aria-label={`More for ${chip.label}`}
          onClick={onMenu}
        >
          <More />
        </button>
      )}
    </div>
  );
}

const LONGEST_TARGET = 22;
const MENU_WIDTH = 180;

interface MenuProps {
  lab: Lab;
  chip: Chip;
  left: number;
  onClose(): void;
}

/** Stands beside the row and not in it, because a row that scrolls would cut it off. */
function Menu({ lab, chip, left, onClose }: MenuProps) {
  const act = (type: "baseline" | "rebuild" | "remove"): void => {
    onClose();
    lab.send(type, chip.id);
  };
  return (
    <div
      class="rt-popup rt-menu"
      role="menu"
      style={{ left: `${Math.max(4, Math.min(left, lab.width.value - MENU_WIDTH))}px` }}
    >
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
      {chip.time !== null && <span class="rt-strong">{timeOf(chip)}</span>}
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
