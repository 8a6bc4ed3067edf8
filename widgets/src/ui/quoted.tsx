import type { Graph, Side } from "../core/contract";
import { brief, ending, shorten } from "../core/format";
import type { ExplorerState } from "../explorer/explorer_state";

const LONGEST = 400;
const LONGEST_NAME = 36;
const FLAG = /(--[A-Za-z](?:[\w=:.]*\w)?)/;

interface Props {
  explorer: ExplorerState;
  text: string;
  plain?: boolean;
}

/** A sentence whose names in quotes lead to their nodes or layers; those of a `plain` one that do not stay as they are. */
export function Quoted({ explorer, text, plain = false }: Props) {
  return (
    <>
      {text
        .split('"')
        .map((part, k) =>
          k % 2 ? (
            <Named key={k} explorer={explorer} name={part} plain={plain} />
          ) : (
            <Flags key={k} text={shorten(part, LONGEST)} />
          ),
        )}
    </>
  );
}

/** Words in which no option of a command is torn apart at its hyphens. */
function Flags({ text }: { text: string }) {
  return (
    <>
      {text.split(FLAG).map((part, k) =>
        k % 2 ? (
          <code key={k} class="rt-flag">
            {part}
          </code>
        ) : (
          part
        ),
      )}
    </>
  );
}

function Named({ explorer, name, plain }: { explorer: ExplorerState; name: string; plain: boolean }) {
  const label = ending(brief(name), LONGEST_NAME);
  const target = (["node", "layer"] as const)
    .map((side) => ({ side, id: idOf(explorer, side, name) }))
    .find(({ id }) => id !== undefined);
  if (!target && plain) return `"${name}"`;
  if (!target) return <q title={shorten(name, LONGEST)}>{label}</q>;
  return (
    <button
      type="button"
      class="rt-link"
      title={`${shorten(name, LONGEST)}\nSelects it, and brings it into view`}
      onClick={() => explorer.jump(target.side, target.id!)}
    >
      {label}
    </button>
  );
}

/** A box by its id, or by its whole name, which sentences about layers use. */
function idOf({ study }: ExplorerState, side: Side, name: string): string | undefined {
  if (study.box(side, name)) return name;
  const graph = study.whole(side);
  return graph ? titlesOf(graph).get(name) : undefined;
}

const titles = new WeakMap<Graph, Map<string, string>>();

function titlesOf(graph: Graph): Map<string, string> {
  let index = titles.get(graph);
  if (!index) {
    index = new Map(graph.boxes.map(({ title, id }) => [title, id]));
    titles.set(graph, index);
  }
  return index;
}
