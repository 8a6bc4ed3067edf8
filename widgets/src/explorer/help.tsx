import { useEffect, useRef, useState } from "preact/hooks";
import { termsOf } from "../core/glossary";
import { TabList } from "../ui/tabs";
import type { ExplorerState } from "./explorer_state";

const KEYS: [string, string][] = [
  ["↑ ↓ ← →", "follow edges"],
  ["Enter", "select; with Shift add to the selection"],
  ["Tab", "move to the next pane"],
  ["o", "open or fold the group"],
  ["f  z", "fit the graph, zoom to the selection"],
  ["+  −", "zoom; also Ctrl and the wheel"],
  ["/", "search; n and N go through the hits"],
  ["u  d", "what comes before, what follows"],
  ["p", "paths between two selected boxes"],
  ["c", "next way to colour the pane"],
  ["m", "fold nodes into layers, and back"],
  ["s", "swap with the next pane"],
  ["← → Space", "in the tab Build: step through it, play it"],
  ["Esc", "leave the search, the highlight, the selection"],
  ["T", "a minute's tour; ← and → go through it, Esc leaves"],
  ["Shift P  F", "present, full screen"],
  ["← → Home End", "while presenting: through the steps"],
  ["Click", "select a box, or a wire with both its ends; with Shift add; twice zooms to the box"],
  ["?", "show or hide this help"],
];
const PARTS = { keys: "Keys", terms: "Terms" } as const;
type Part = keyof typeof PARTS;
const NAMES = Object.keys(PARTS) as Part[];

export function Help({ explorer }: { explorer: ExplorerState }) {
  const close = useRef<HTMLButtonElement>(null);
  const [part, setPart] = useState<Part>("keys");
  useEffect(() => {
    close.current?.focus({ preventScroll: true });
    close.current?.closest(".rt-card")?.scrollIntoView({ block: "nearest", behavior: "instant" });
  }, []);
  return (
    <div class="rt-veil rt-whole">
      <div class="rt-card rt-help" role="dialog" aria-label="Help" data-control="help-card">
        <header>
          <h3>Help</h3>
          <TabList
            class="rt-segments rt-small rt-parts"
            mark="help"
            title="Parts of the help"
            names={NAMES}
            name={part}
            label={(one) => PARTS[one]}
            help={(one) => (one === "keys" ? "What each key does." : "What the terms mean, to look up.")}
            onPick={setPart}
          />
        </header>
        {part === "keys" ? (
          <dl class="rt-keys">
            {KEYS.map(([key, meaning]) => (
              <>
                <dt>
                  <kbd>{key}</kbd>
                </dt>
                <dd>{meaning}</dd>
              </>
            ))}
          </dl>
        ) : (
          <TermList />
        )}
        <footer>
          <button
            type="button"
            class="rt-field"
            data-control="tour"
            title="Five stops that show how to read the Explorer; Escape leaves them at any time"
            onClick={() => {
              explorer.toggleHelp();
              explorer.guide.begin();
            }}
          >
            Take a minute's tour
          </button>
          <button
            type="button"
            class="rt-field"
            title="Back to the Explorer (Esc)"
            ref={close}
            onClick={() => explorer.toggleHelp()}
          >
            Close
          </button>
        </footer>
      </div>
    </div>
  );
}

function TermList() {
  const [query, setQuery] = useState("");
  const terms = termsOf(query);
  return (
    <>
      <input
        type="search"
        class="rt-write"
        aria-label="Search the terms"
        title="Shows the terms that contain all of these words"
        placeholder="amax, fusion, tactic …"
        data-control="terms"
        value={query}
        onInput={(event) => setQuery(event.currentTarget.value)}
      />
      <dl class="rt-glossary" tabIndex={0} aria-label="Terms">
        {terms.map(([name, meaning]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <p class="rt-quiet" role="status">
        {terms.length ? "" : "No term has these words."}
      </p>
    </>
  );
}
