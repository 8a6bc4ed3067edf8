import type { Family } from "../../core/contract";
import { FAMILY, FAMILY_ON_DARK } from "../colour";

/** Colours and the typeface of the canvas, read from the widget's CSS variables. */
export interface Theme {
  dark: boolean;
  font: string;
  ground: string;
  card: string;
  ink: string;
  muted: string;
  line: string;
  edge: string;
  tag: string;
  select: string;
  selectTint: string;
  hover: string;
  hoverTint: string;
  hatch: string;
  family: Record<Family, string>;
  familyInk: Record<Family, string>;
}

const DARK = "(prefers-color-scheme: dark)";
const FORCED = "(forced-colors: active)";

export function isDark(): boolean {
  // Jupyter's way of naming its theme, and marimo's.
  const { jpThemeLight, theme } = document.body.dataset;
  if (!matchMedia(FORCED).matches) {
    if (jpThemeLight !== undefined) return jpThemeLight === "false";
    if (theme !== undefined) return theme === "dark";
  }
  return matchMedia(DARK).matches;
}

/** Calls back when the theme changes, until the signal aborts. */
export function onThemeChange(changed: () => void, end: AbortSignal): void {
  const observer = new MutationObserver(changed);
  observer.observe(document.body, {
    attributes: true,
    attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "data-theme"],
  });
  const media = [DARK, FORCED].map((query) => matchMedia(query));
  for (const one of media) one.addEventListener("change", changed);
  end.addEventListener("abort", () => {
    observer.disconnect();
    for (const one of media) one.removeEventListener("change", changed);
  });
}

export function readTheme(root: HTMLElement, dark: boolean): Theme {
  const probe = root.appendChild(document.createElement("span"));
  // What is read are the variables, which follow the system's colours themselves.
  probe.style.setProperty("forced-color-adjust", "none");
  const colour = (name: string): string => {
    probe.style.color = `var(--rt-${name})`;
    return getComputedStyle(probe).color;
  };
  const theme: Theme = {
    dark,
    font: getComputedStyle(root).fontFamily || "sans-serif",
    ground: colour("ground"),
    card: colour("card"),
    ink: colour("ink"),
    muted: colour("muted"),
    line: colour("line-strong"),
    edge: colour("edge"),
    tag: colour("tag"),
    select: colour("select"),
    selectTint: colour("select-tint"),
    hover: colour("hover"),
    hoverTint: colour("hover-tint"),
    hatch: colour("hatch"),
    family: FAMILY,
    familyInk: dark ? FAMILY_ON_DARK : FAMILY,
  };
  probe.remove();
  return theme;
}
