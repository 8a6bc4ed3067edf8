import { replayable } from "../core/build_log";
import type { Grouping, Side } from "../core/contract";
import { NO_MODEL } from "../core/format";
import type { ExplorerState } from "../explorer/explorer_state";
import { askFusion, fusionOf } from "../explorer/why";
import type { Item } from "../ui/menu";
import { savePicture } from "../ui/save";
import { NAMES } from "./canvas";
import { foldAll } from "./folding";
import type { PaneSet } from "./paneset";

/** What the ⋯ menu of a pane offers; what cannot work now says why. */
export function paneMenu(
  paneSet: PaneSet,
  explorer: ExplorerState | undefined,
  side: Side,
  search: () => void,
): Item[] {
  const { study } = paneSet;
  const view = study.view.peek();
  const visible = study.visible(side);
  const head = (id: string, label: string): Item => ({ id, label });
  const gone = visible ? undefined : "There is no graph yet";
  const nodes = side === "node";
  const field = nodes ? "grouping_nodes" : "grouping";
  const whole = study.whole(side);
  const scoped = whole?.boxes.some(({ kind, title }) => kind === "node" && /.[/.]/.test(title));
  const unless = (possible: unknown, reason: string): string | undefined => (possible ? undefined : reason);
  const groupings: readonly (readonly [Grouping, string, string | undefined, boolean])[] = [
    ["none", "Nothing", undefined, true],
    ["layers", "Engine layers", unless(study.engine.peek(), "There is no engine yet"), nodes],
    ["replay", "What the build has fused so far", undefined, nodes && replayable(study.story.peek())],
    ["repeats", "Repeated blocks", unless(whole?.repeats.length, "No block repeats"), true],
    ["scopes", "Name scopes", unless(scoped, "The names of its nodes have no scopes"), nodes],
  ];
  const groups = visible?.foldable.size ?? 0;
  const folded = groups - (visible?.frames.size ?? 0);
  const sides: Side[] = ["node", "layer"];
  const selected = study.selected(side, view);
  const unselected = selected.length ? undefined : "Select something first";
  return [
    head("group", "Group by"),
    ...groupings
      .filter(([, , , offered]) => offered)
      .map(
        ([id, label, reason]): Item => ({
          id: `group-${id}`,
          label,
          reason: gone ?? reason,
          radio: true,
          checked: study.grouping(side) === id,
          pick: () => study.change({ [field]: id }),
        }),
      ),
    {
      id: "open-all",
      label: "Open all groups",
      reason: folded ? undefined : groups ? "All are open" : "There are no groups",
      pick: () => foldAll(study, side, true),
    },
    {
      id: "fold-all",
      label: "Fold all groups",
      reason: folded < groups ? undefined : groups ? "All are folded" : "There are no groups",
      pick: () => foldAll(study, side, false),
    },
    head("view", "View"),
    ...([false, true] as const).map(
      (across): Item => ({
        id: across ? "across" : "down",
        label: across ? "From left to right" : "From top to bottom",
        radio: true,
        checked: view.across === across,
        pick: () => study.change({ across }),
      }),
    ),
    { id: "search", label: "Search", keys: "/", reason: gone, pick: search },
    { id: "fit", label: "Fit the graph", keys: "f", reason: gone, pick: () => paneSet.stages[side]?.fit() },
    {
      id: "zoom",
      label: "Zoom to the selection",
      keys: "z",
      reason: unselected,
      pick: () => paneSet.zoomToSelection(side),
    },
    head("panes", "Panes"),
    ...sides.map(
      (one): Item => ({
        id: `pane-${one}`,
        label: NAMES[one],
        checked: paneSet.sides.peek().includes(one),
        reason:
          one === "node" && paneSet.hidesNodes.peek()
            ? NO_MODEL
            : paneSet.sides.peek().length === 1 && paneSet.sides.peek()[0] === one
              ? "The last pane stays"
              : undefined,
        pick: () => paneSet.togglePane(one),
      }),
    ),
    head("save", "Save"),
    { id: "svg", label: "Picture as SVG", reason: gone, pick: () => savePicture(paneSet, side, "svg") },
    {
      id: "png",
      label: "Picture as PNG, twice the size",
      reason: gone,
      pick: () => savePicture(paneSet, side, "png"),
    },
    ...(explorer && !explorer.saved ? kernelItems(explorer, side) : []),
  ];
}

function kernelItems(explorer: ExplorerState, side: Side): Item[] {
  const dead = explorer.unusable();
  const question = fusionOf(explorer, side);
  const why: Item = {
    id: "why",
    label: question?.label ?? "Why one layer, or not?",
    reason:
      explorer.busy() ||
      (question
        ? undefined
        : side === "node"
          ? "Select two nodes, or a wire"
          : "Select a layer of several nodes"),
    pick: () => question && askFusion(explorer, question),
  };
  if (side !== "node") return side === "layer" ? [why] : [];
  return [
    why,
    {
      id: "extract",
      label: "Selected nodes as ONNX",
      reason: dead || (explorer.selectedNodes().length ? undefined : "Select nodes first"),
      pick: () => explorer.send({ type: "extract", nodes: explorer.selectedNodes() }),
    },
  ];
}
