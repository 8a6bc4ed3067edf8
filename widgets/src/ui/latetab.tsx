import { useEffect } from "preact/hooks";
import type { Lab } from "../lab";
import type { LateTab } from "../late";
import { useLater } from "./later";

/** What comes at once is not worth a word. */
const WORDS_MS = 400;

interface Props {
  lab: Lab;
  tab: LateTab;
  /** What the tab is given beside the lab. */
  given: object;
}

/** A tab whose code comes when it is opened. */
export function LateView({ lab, tab, given }: Props) {
  const come = lab.late.of(tab).value;
  const alive = lab.saved || lab.alive.value;
  // A kernel that can be reached again has forgotten what it did not hear.
  useEffect(() => lab.late.ask(tab, alive), [tab, alive]);
  const waiting = useLater(!come && alive, WORDS_MS);
  if (!come?.View)
    return (
      <p class="rt-quiet rt-pad" role="status" data-control="late">
        {come?.problem && `Cannot show this tab: ${come.problem}. Open it again, or reload the page.`}
        {!come && !alive && `This tab had not arrived before. ${lab.unusable()}.`}
        {waiting && "Waiting for the kernel, which sends this tab as soon as it is free."}
      </p>
    );
  const { View, css } = come;
  return (
    <>
      {css && <style>{css}</style>}
      <View {...{ lab, ...given }} />
    </>
  );
}
