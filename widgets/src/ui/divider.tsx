import { useRef } from "preact/hooks";
import { useKeys } from "./hooks";

interface Props {
  label: string;
  help: string;
  axis: "x" | "y";
  value: number;
  least: number;
  most: number;
  class?: string;
  onMove(by: number, done: boolean): void;
  onReset?(): void;
}

const STEP = 24;

/** A line between two parts that is dragged, or moved with the arrow keys; a double click or Enter puts it back. */
export function Divider({
  label,
  help,
  axis,
  value,
  least,
  most,
  class: extra = "",
  onMove,
  onReset,
}: Props) {
  const box = useRef<HTMLDivElement>(null);
  const from = useRef<number | null>(null);
  const at = (event: PointerEvent): number => (axis === "x" ? event.clientX : event.clientY);
  useKeys(box, (event) => {
    const back = axis === "x" ? "ArrowLeft" : "ArrowUp";
    const forth = axis === "x" ? "ArrowRight" : "ArrowDown";
    if (event.key === "Enter" && onReset) {
      onReset();
      return true;
    }
    if (event.key !== back && event.key !== forth) return false;
    onMove(event.key === back ? -STEP : STEP, true);
    return true;
  });
  return (
    // biome-ignore lint/a11y/useSemanticElements: a separator that moves is no hr
    <div
      ref={box}
      class={`rt-divider rt-along-${axis} ${extra}`}
      role="separator"
      tabIndex={0}
      aria-label={label}
      title={`${label}\n${help}`}
      aria-description={help}
      aria-orientation={axis === "x" ? "vertical" : "horizontal"}
      aria-valuenow={Math.round(value)}
      aria-valuemin={Math.round(least)}
      aria-valuemax={Math.round(most)}
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        event.preventDefault();
        from.current = at(event);
      }}
      onPointerMove={(event) => {
        if (from.current === null) return;
        const now = at(event);
        onMove(now - from.current, false);
        from.current = now;
      }}
      {...(onReset ? { onDblClick: onReset } : {})}
      onPointerUp={() => {
        if (from.current === null) return;
        from.current = null;
        onMove(0, true);
      }}
    />
  );
}
