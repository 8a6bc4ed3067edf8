import type { ComponentChildren } from "preact";

interface Props {
  label: string;
  help?: string;
  icon: ComponentChildren;
  control?: string;
  pressed?: boolean;
  disabled?: boolean;
  extra?: string;
  onClick(): void;
}

export function Tool({
  label,
  help = "",
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
      title={[label, help].filter(Boolean).join("\n")}
      {...(help ? { "aria-description": help } : {})}
      {...(control ? { "data-control": control } : {})}
      {...(pressed === undefined ? {} : { "aria-pressed": pressed })}
      disabled={disabled}
      onClick={onClick}
    >
      {icon}
    </button>
  );
}
