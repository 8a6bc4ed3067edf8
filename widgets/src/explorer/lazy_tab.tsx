import { useEffect } from "preact/hooks";
import { useDelayed } from "../ui/hooks";
import type { ExplorerState } from "./explorer_state";
import type { TabPart } from "./lazy_tabs";

const WORDS_MS = 400;

interface Props {
  explorer: ExplorerState;
  tab: TabPart;
  props: object;
}

export function LazyTab({ explorer, tab, props }: Props) {
  const loaded = explorer.lazyTabs.of(tab).value;
  const alive = explorer.saved || explorer.alive.value;
  // A kernel that can be reached again has forgotten what it did not hear.
  useEffect(() => explorer.lazyTabs.ask(tab, alive), [tab, alive]);
  const waiting = useDelayed(!loaded && alive, WORDS_MS);
  if (!loaded?.View)
    return (
      <p class="rt-quiet rt-pad" role="status" data-control="late">
        {loaded?.problem && `Cannot show this tab: ${loaded.problem}. Open it again, or reload the page.`}
        {!loaded && !alive && `This tab had not arrived before. ${explorer.unusable()}.`}
        {waiting && "Waiting for the kernel, which sends this tab as soon as it is free."}
      </p>
    );
  const { View, css } = loaded;
  return (
    <>
      {css && <style>{css}</style>}
      <View {...{ explorer, ...props }} />
    </>
  );
}
