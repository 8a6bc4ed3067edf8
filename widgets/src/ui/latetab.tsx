import { useEffect } from "preact/hooks";
import type { ExplorerState } from "../explorerstate";
import type { LateTab } from "../late";
import { useLater } from "./later";

/** What comes at once is not worth a word. */
const WORDS_MS = 400;

interface Props {
  explorer: ExplorerState;
  tab: LateTab;
  /** What the tab is given beside the explorer. */
  given: object;
}

/** A tab whose code comes when it is opened. */
export function LateView({ explorer, tab, given }: Props) {
  const come = explorer.late.of(tab).value;
  const alive = explorer.saved || explorer.alive.value;
  // A kernel that can be reached again has forgotten what it did not hear.
  useEffect(() => explorer.late.ask(tab, alive), [tab, alive]);
  const waiting = useLater(!come && alive, WORDS_MS);
  if (!come?.View)
    return (
      <p class="rt-quiet rt-pad" role="status" data-control="late">
        {come?.problem && `Cannot show this tab: ${come.problem}. Open it again, or reload the page.`}
        {!come && !alive && `This tab had not arrived before. ${explorer.unusable()}.`}
        {waiting && "Waiting for the kernel, which sends this tab as soon as it is free."}
      </p>
    );
  const { View, css } = come;
  return (
    <>
      {css && <style>{css}</style>}
      <View {...{ explorer, ...given }} />
    </>
  );
}
