import { useComputed } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { isGone } from "../core/connection";
import { onKeys, onKeysFirst } from "../core/keys";
import { effectsUntil } from "../core/lifetime";
import { Panes } from "../graph/panes";
import { Divider } from "../ui/divider";
import { Hint } from "../ui/hint";
import { useResize } from "../ui/hooks";
import { bottomHeight, isLow, isSlim } from "../ui/responsive";
import { Terms } from "../ui/terms";
import { Bottom } from "./bottom";
import { BuildCommands } from "./build_commands";
import { Details } from "./details";
import { FailureCard, SizesBar } from "./error_card";
import type { ExplorerState } from "./explorer_state";
import { FIELDS, openable, transferredFiles } from "./files";
import { GuideView } from "./guide_view";
import { Help } from "./help";
import { BusyWords, ExplorerBanner, SavedBanner } from "./kernel_banner";
import { PresentationBar, StepList, togglePresentation } from "./presentation_view";
import { Start } from "./start_page";
import { StatusLine } from "./status_line";
import { TopRow } from "./top_row";
import { Variants } from "./variants";

const LEAST_HEIGHT = 420;
const SPLIT = "page.split";
const [LEAST_BOTTOM, LEAST_WORK] = [34, 120];
/** What arrow keys and Escape mean something in, in a presentation and in the tour too. */
const KEYS_OF_THEIR_OWN = 'input, select, textarea, [role="menu"], [role="listbox"], [role="separator"]';
const ROOMY = 900;

export function ExplorerView({ explorer, root }: { explorer: ExplorerState; root: HTMLElement }) {
  const { guide, presentation, fullscreen } = explorer;
  const [split, setSplit] = useState<string | null>(null);
  const [dropping, setDropping] = useState(false);
  useEffect(() => {
    root.tabIndex = -1;
    onKeys(root, (event) => {
      const escaped = event.key === "Escape";
      if (escaped && explorer.help.value) explorer.toggleHelp();
      else if (escaped && presentation.listing.value) presentation.listing.value = false;
      else if (escaped && explorer.cardShown.value) explorer.dismiss();
      else if (escaped && explorer.commandsOf.value) explorer.commandsOf.value = "";
      else if (event.target instanceof HTMLInputElement) return false;
      else if (event.key === "?") explorer.toggleHelp();
      else if (event.key === "P") togglePresentation(explorer);
      else if (event.key === "T" || event.key === "t") guide.begin();
      else if (event.key === "F" && !fullscreen.unavailable) fullscreen.toggle();
      // The browser itself ends full screen where it has the key first.
      else if (escaped && fullscreen.on.peek()) fullscreen.toggle();
      else return false;
      return true;
    });
    // While one presents or takes the tour, arrow keys mean the steps wherever the last click was.
    onKeysFirst(root, ({ key, target }) => {
      if (explorer.help.peek() || explorer.cardShown.peek() || explorer.commandsOf.peek()) return false;
      if (target instanceof Element && target.closest(KEYS_OF_THEIR_OWN)) return false;
      if (guide.key(key)) return true;
      if (!presentation.on.peek()) return false;
      if (key !== "Escape") return presentation.key(key);
      togglePresentation(explorer);
      return true;
    });
    let whole = false;
    effectsUntil(
      explorer.end,
      () => {
        // The page does not receive the key that ends full screen: a presentation ends with it.
        if (explorer.saved && whole && !fullscreen.on.value && presentation.on.peek())
          togglePresentation(explorer);
        whole = fullscreen.on.value;
      },
      () => {
        root.style.height = `${explorer.pixelHeight.value}px`;
        root.classList.toggle("rt-narrow", explorer.width.value < ROOMY);
        root.classList.toggle("rt-slim", isSlim(explorer.width.value));
        root.classList.toggle("rt-low", isLow(explorer.pixelHeight.value));
        root.classList.toggle("rt-present", presentation.on.value);
        root.dataset.stale = explorer.stale.value ? "1" : "0";
        root.dataset.building = explorer.build.value.running ? "1" : "0";
      },
    );
  }, []);
  useResize({ current: root }, ({ clientWidth }) => {
    explorer.width.value = clientWidth;
  });

  const loading = useComputed(
    () =>
      !explorer.study.source.value &&
      !isGone(explorer.study.kernelState.value) &&
      (explorer.study.pending.value > 0 || explorer.study.preparing.value),
  );
  const dragged = split ?? explorer.study.view.value.settings[SPLIT];
  const tall = explorer.pixelHeight.value;
  const height = bottomHeight(tall, dragged);
  const [work, bottom] = [useRef<HTMLDivElement>(null), useRef<HTMLDivElement>(null)];
  const [most, setMost] = useState(tall);
  const room = (): number => work.current!.offsetHeight + bottom.current!.offsetHeight;
  const open = explorer.page.value.tab !== "";
  useLayoutEffect(() => {
    if (open) setMost(room() - LEAST_WORK);
  }, [tall, open]);
  const drag = (by: number, done: boolean): void => {
    if (done && !by && split === null) return;
    const now = bottom.current!.offsetHeight - by;
    const next = Math.min(room() - LEAST_WORK, Math.max(LEAST_BOTTOM, now));
    const text = ((100 * next) / tall).toFixed(2);
    setSplit(done ? null : text);
    if (done) explorer.set(SPLIT, text);
  };
  const own = useRef(false);
  const inField = (event: Event) => event.target instanceof Element && event.target.closest(FIELDS) !== null;
  // A text that is dropped on a field belongs to the field, as one that is pasted does.
  const accepts = (event: DragEvent): boolean =>
    !explorer.saved &&
    !own.current &&
    openable(event.dataTransfer) &&
    (Boolean(event.dataTransfer?.types.includes("Files")) || !inField(event));
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: a place to drop files and to paste; the model list offers the same by path
    <div
      class={`rt-frame ${dropping ? "rt-dropping" : ""}`}
      onPaste={(event) => {
        const pasted = explorer.saved || inField(event) ? [] : transferredFiles(event.clipboardData);
        if (!pasted.length) return;
        event.preventDefault();
        event.stopPropagation();
        void explorer.drop(pasted);
      }}
      onDragStart={() => {
        own.current = true;
      }}
      onDragEnd={() => {
        own.current = false;
      }}
      onDragOver={(event) => {
        if (!accepts(event)) return;
        event.preventDefault();
        event.stopPropagation();
        setDropping(true);
      }}
      onDragLeave={(event) => {
        if (!(event.relatedTarget instanceof Node && event.currentTarget.contains(event.relatedTarget)))
          setDropping(false);
      }}
      onDrop={(event) => {
        if (!accepts(event)) return;
        event.preventDefault();
        event.stopPropagation();
        setDropping(false);
        const dropped = transferredFiles(event.dataTransfer);
        if (dropped.length) void explorer.drop(dropped);
      }}
    >
      {presentation.on.value ? <PresentationBar explorer={explorer} /> : <TopRow explorer={explorer} />}
      <Variants explorer={explorer} />
      {!explorer.saved && <ExplorerBanner explorer={explorer} />}
      <SavedBanner explorer={explorer} />
      <SizesBar explorer={explorer} />
      <div class={`rt-work ${open && dragged ? "rt-dragged" : ""}`} ref={work}>
        <Panes
          paneSet={explorer.paneSet}
          explorer={explorer}
          stale={explorer.stale.value}
          empty={{
            node: loading.value ? <div class="rt-skeleton" /> : <Start explorer={explorer} />,
            layer: <Waiting explorer={explorer} />,
            other: <Comparing explorer={explorer} />,
          }}
        />
        <Details explorer={explorer} />
        {presentation.listing.value && <StepList explorer={explorer} />}
        <BuildCommands explorer={explorer} />
        {!explorer.saved && <BusyWords explorer={explorer} />}
        <FailureCard explorer={explorer} />
      </div>
      {open && (
        <Divider
          label="Move the line above the charts"
          help="Gives height to the graphs or to the charts; a double click or Enter puts it back."
          axis="y"
          value={Math.min(height, most)}
          least={LEAST_BOTTOM}
          most={most}
          onMove={drag}
          onReset={() => explorer.set(SPLIT, "")}
        />
      )}
      <Bottom explorer={explorer} height={height} box={bottom} />
      <GuideView explorer={explorer} root={root} />
      {explorer.help.value && <Help explorer={explorer} />}
      <Hint root={root} />
      <StatusLine explorer={explorer} />
      {!explorer.saved && !fullscreen.on.value && (
        <Divider
          label="Change the height"
          help="How much of the notebook the Explorer takes; arrow keys move it too."
          axis="y"
          class="rt-handle"
          value={explorer.pixelHeight.value}
          least={LEAST_HEIGHT}
          most={2000}
          onMove={(by, done) =>
            explorer.resize(Math.max(LEAST_HEIGHT, explorer.pixelHeight.value + by), done)
          }
        />
      )}
    </div>
  );
}

function Comparing({ explorer }: { explorer: ExplorerState }) {
  const { kernelState, view } = explorer.study;
  if (view.value.compared)
    return isGone(kernelState.value) ? (
      <p>{explorer.study.loadingText("Its layers")}</p>
    ) : (
      <div class="rt-skeleton" />
    );
  return (
    <div class="rt-start">
      <h3>Compare a variant</h3>
      <p>
        <Terms text="Choose “Compare in a third pane” from the menu of a variant above." />
      </p>
    </div>
  );
}

function Waiting({ explorer }: { explorer: ExplorerState }) {
  const { running, phase } = explorer.build.value;
  if (running) return <div class="rt-skeleton" title={phase} />;
  if (!explorer.study.source.value) return null;
  if (isGone(explorer.study.kernelState.value))
    return <p>{explorer.study.loadingText("The layers of an engine")}</p>;
  return (
    <div class="rt-start">
      <h3>No engine yet</h3>
      <p>
        <Terms text="Choose a precision and a target, then press Build." />
      </p>
    </div>
  );
}
