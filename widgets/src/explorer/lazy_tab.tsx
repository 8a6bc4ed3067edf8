import { useEffect } from "preact/hooks";
import { useDelayed } from "../ui/hooks";
import type { ExplorerState } from "./explorer_state";
import type { TabPart } from "./lazy_tabs";

const WORDS_MS = 400;

interface Props {
  explorer: ExplorerState;
  tab: TabPart;
  given: object;
}

export function LateView({ explorer, tab, given }: Props) {
  const come = explorer.lazyTabs.of(tab).value;
  const alive = explorer.saved || explorer.alive.value;
  // A kernel that can be reached again has forgotten what it did not hear.
  useEffect(() => explorer.lazyTabs.ask(tab, alive), [tab, alive]);
  const waiting = useDelayed(!come && alive, WORDS_MS);
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
