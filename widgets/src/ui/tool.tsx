import type { ComponentChildren } from "preact";

interface Props {
  label: string;
  /** What it does or shows, in a sentence. */
  told?: string;
  icon: ComponentChildren;
  /** Names it for tests. */
  control?: string;
  pressed?: boolean;
  disabled?: boolean;
  extra?: string;
  onClick(): void;
}

/** A button that is a picture; its words are in the tooltip. */
export function Tool({
  label,
  told = "",
  icon,
  control,
  pressed,
  disabled = false,
  extra = "",
  onClick,
}: Props) {
  return (
    <button
      type="button"
      class={`rt-tool ${extra}`}
      aria-label={label}
      title={[label, told].filter(Boolean).join("\n")}
      {...(told ? { "aria-description": told } : {})}
      {...(control ? { "data-control": control } : {})}
      {...(pressed === undefined ? {} : { "aria-pressed": pressed })}
      disabled={disabled}
      onClick={onClick}
    >
      {icon}
    </button>
  );
}
