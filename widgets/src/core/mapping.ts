import type { EngineView, Evidence, Missing, Pair } from "./contract";
import { append } from "./multimap";

/** The relation between nodes and layers of one variant, both ways. */
export class Mapping {
  readonly #layers = new Map<string, Pair[]>();
  readonly #nodes = new Map<string, Pair[]>();
  readonly #unmapped = new Map<string, Missing>();
  readonly empty: boolean;

  constructor(engine: EngineView | null) {
    this.empty = engine === null;
    for (const pair of engine?.pairs ?? []) {
      append(this.#layers, pair.node, pair);
      append(this.#nodes, pair.layer, pair);
    }
    for (const entry of engine?.unmapped ?? []) this.#unmapped.set(entry.node, entry);
  }

  layersOf(nodes: Iterable<string>): string[] {
    return gather(nodes, this.#layers, (pair) => pair.layer);
  }

  nodesOf(layers: Iterable<string>): string[] {
    return gather(layers, this.#nodes, (pair) => pair.node);
  }

  /** The nodes whose first layer this is, and which it runs. Others it serves, such as by a Q put before them. */
  homeOf(layer: string): string[] {
    return this.nodesOf([layer]).filter((node) => {
      const [first] = this.pairsOfNode(node);
      return first!.layer === layer && first!.role === "work";
    });
  }

  pairsOfNode(node: string): readonly Pair[] {
    return this.#layers.get(node) ?? [];
  }

  pairsOfLayer(layer: string): readonly Pair[] {
    return this.#nodes.get(layer) ?? [];
  }

  nodesRun(layer: string): string[] {
    return this.pairsOfLayer(layer).flatMap(({ node, role }) => (role === "work" ? node : []));
  }

  evidence(node: string, layer: string): Evidence | null {
    return this.pairsOfNode(node).find((pair) => pair.layer === layer)?.evidence ?? null;
  }

  unmapped(node: string): Missing | null {
    return this.#unmapped.get(node) ?? null;
  }

  get reasons(): readonly Missing[] {
    return [...this.#unmapped.values()];
  }
}

function gather(ids: Iterable<string>, from: Map<string, Pair[]>, side: (pair: Pair) => string): string[] {
  const results = new Set<string>();
  for (const id of ids) for (const pair of from.get(id) ?? []) results.add(side(pair));
  return [...results];
}
