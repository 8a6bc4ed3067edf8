// @vitest-environment happy-dom
import { afterEach, expect, it, vi } from "vitest";
import { isDark, onThemeChange, readTheme } from "../src/graph/draw/theme";

let media: Record<string, { matches: boolean; listeners: Set<() => void> }>;
const mode = (dark: boolean, forced: boolean): void => {
  const query = (matches: boolean) => ({ matches, listeners: new Set<() => void>() });
  media = { "(prefers-color-scheme: dark)": query(dark), "(forced-colors: active)": query(forced) };
  vi.stubGlobal("matchMedia", (name: string) => ({
    matches: media[name]!.matches,
    addEventListener: (_: string, listener: () => void) => media[name]!.listeners.add(listener),
    removeEventListener: (_: string, listener: () => void) => media[name]!.listeners.delete(listener),
  }));
};
afterEach(() => {
  delete document.body.dataset.jpThemeLight;
  delete document.body.dataset.theme;
  vi.unstubAllGlobals();
});

it.each([
  [undefined, false, false, false],
  [undefined, true, false, true],
  ["true", true, false, false],
  ["false", false, false, true],
  ["true", true, true, true],
  ["false", false, true, false],
])(
  "is dark as Jupyter says (light: %s), else as the system does (%s), which forced colours decide (%s): %s",
  (light, dark, forced, expected) => {
    if (light !== undefined) document.body.dataset.jpThemeLight = light;
    mode(dark, forced);
    expect(isDark()).toBe(expected);
  },
);

it.each([
  ["dark", false, false, true],
  ["light", true, false, false],
  ["light", true, true, true],
])("is dark as marimo says (%s), unless colours are forced", (theme, dark, forced, expected) => {
  document.body.dataset.theme = theme;
  mode(dark, forced);
  expect(isDark()).toBe(expected);
});

it("tells of a change of Jupyter's theme, of the system's and of forced colours, until it ends", async () => {
  mode(false, false);
  const end = new AbortController();
  const changed = vi.fn();
  onThemeChange(changed, end.signal);
  for (const { listeners } of Object.values(media)) for (const listener of listeners) listener();
  expect(changed).toHaveBeenCalledTimes(2);
  document.body.dataset.jpThemeLight = "false";
  await vi.waitFor(() => expect(changed).toHaveBeenCalledTimes(3));
  document.body.dataset.theme = "dark";
  await vi.waitFor(() => expect(changed).toHaveBeenCalledTimes(4));
  end.abort();
  expect(Object.values(media).map(({ listeners }) => listeners.size)).toEqual([0, 0]);
  document.body.dataset.jpThemeLight = "true";
  await new Promise((done) => setTimeout(done, 5));
  expect(changed).toHaveBeenCalledTimes(4);
});

it("reads each colour from the variable of its name, and takes other inks on dark", () => {
  const names = "ground card ink muted line-strong edge tag select select-tint hover hover-tint hatch".split(
    " ",
  );
  const style = document.head.appendChild(document.createElement("style"));
  style.textContent = `.root { font-family: Mono; ${names.map((name, k) => `--rt-${name}: rgb(${k}, 0, 0);`).join("")} }`;
  const root = document.body.appendChild(document.createElement("div"));
  root.className = "root";
  const theme = readTheme(root, false) as unknown as Record<string, unknown>;
  const keys = names.map((name) =>
    name === "line-strong" ? "line" : name.replace(/-(.)/, (_, letter: string) => letter.toUpperCase()),
  );
  expect(keys.map((key) => theme[key])).toEqual(names.map((_, k) => `rgb(${k}, 0, 0)`));
  expect([theme.font, theme.dark, root.children.length]).toEqual(["Mono", false, 0]);
  expect(theme.familyInk).toBe(theme.family);
  expect(readTheme(root, true).familyInk).not.toEqual(theme.family);
  style.remove();
  root.remove();
});
