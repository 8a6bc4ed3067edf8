// Groups that a graph can be folded into: bodies of nodes, engine layers or what a build has fused so far, repeated
// blocks and name scopes.

import type { Fused } from "../core/build_log";
import type { Box, Detail, EngineView, Graph, Grouping, OpChip } from "../core/contract";
import { plural } from "../core/format";
import type { Mapping } from "../core/mapping";
import { append } from "../core/multimap";

export interface Tree {
  boxes: readonly Box[];
  parent: Int32Array;
  /** 1 where a group is open at first. */
  open: Uint8Array;
  /** By the box of the first of several equal blocks, those of all, block by block: it is drawn for them. */
  copies: ReadonlyMap<number, readonly number[]>;
}

/** What the id of the group of an engine layer begins with. */
export const LAYER = "layer:";

/** The boxes of a graph in a tree of groups: bodies of nodes always, and what the grouping asks for. */
export function grouped(
  graph: Graph,
  grouping: Grouping,
  engine: EngineView | null,
  links: Mapping,
  fused: readonly Fused[] = [],
): Tree {
  const grove = new GroupTree(graph);
  grove.bodies();
  if (grouping === "layers" && engine) byLayer(grove, engine, links);
  else if (grouping === "replay") byReplay(grove, fused);
  else if (grouping === "repeats") byRepeat(grove, graph);
  else if (grouping === "scopes") byScope(grove);
  grove.tellApart();
  return grove.tree();
}

interface Named {
  id: string;
  op: string;
  title: string;
  lines?: string[];
  chips?: OpChip[];
  details?: Detail[];
  open?: boolean;
}

class GroupTree {
  readonly boxes: Box[];
  readonly parent: number[];
  readonly copies = new Map<number, number[]>();
  readonly own: number;
  readonly #open: number[];

  constructor({ boxes }: Graph) {
    this.boxes = [...boxes];
    this.own = boxes.length;
    this.parent = boxes.map(({ parent }) => parent);
    this.#open = boxes.map(() => 0);
  }

  /** Positions of the nodes and layers that stand in no body. */
  get top(): number[] {
    const { parent } = this;
    return this.boxes.flatMap(({ kind }, v) =>
      v < this.own && parent[v]! < 0 && (kind === "node" || kind === "layer") ? [v] : [],
    );
  }

  /** Finds the positions of some of these boxes by their ids, in their order. */
  finder(): (ids: readonly string[]) => number[] {
    const top = new Map(this.top.map((v) => [this.boxes[v]!.id, v]));
    return (ids) => ids.flatMap((id) => top.get(id) ?? []).sort((a, b) => a - b);
  }

  /** Numbers groups of one name that stand side by side: what their nodes are called does not always tell them apart. */
  tellApart(): void {
    const alike = new Map<string, number[]>();
    for (let at = this.own; at < this.boxes.length; at++) {
      const key = `${this.parent[at]} ${this.boxes[at]!.title}`;
      append(alike, key, at);
    }
    for (const places of alike.values())
      if (places.length > 1)
        places.forEach((at, k) => {
          const box = this.boxes[at]!;
          this.boxes[at] = { ...box, title: `${box.title} · ${k + 1} of ${places.length}` };
        });
  }

  /** Adds a group around boxes, inside of `around`; returns its position. `all` are the boxes at its bottom. */
  add(named: Named, members: readonly number[], around = -1, all: readonly number[] = members): number {
    const { id, op, title, lines, chips, details = [], open = false } = named;
    const inside = [...all].sort((a, b) => a - b).map((v) => this.boxes[v]!);
    const box: Box = {
      id,
      kind: "group",
      parent: -1,
      body: "",
      op,
      family: common(inside.map(({ family }) => family)),
      title,
      lines: lines ?? [plural(all.length, inside[0]?.kind === "layer" ? "layer" : "node")],
      chips: chips ?? chipsOf(inside),
      precision: agreed(inside.map(({ precision }) => precision)) ?? "",
      reads: "",
      writes: "",
      stream: agreed(inside.map(({ stream }) => stream)) ?? 0,
      slim: false,
      inputs: [],
      outputs: [],
      details,
    };
    const at = this.boxes.push(box) - 1;
    this.parent.push(around);
    this.#open.push(Number(open));
    for (const v of members) this.parent[v] = at;
    return at;
  }

  /** A node with several bodies, such as If, has a frame of its own for each. */
  bodies(): void {
    const owners = new Map<number, Map<string, number[]>>();
    for (let v = 0; v < this.own; v++) {
      const owner = this.parent[v]!;
      if (owner < 0) continue;
      const bodies = owners.get(owner) ?? new Map<string, number[]>();
      owners.set(owner, bodies);
      append(bodies, this.boxes[v]!.body, v);
    }
    for (const [owner, bodies] of owners) {
      if (bodies.size < 2) continue;
      for (const [name, members] of bodies)
        this.add(
          { id: `body:${this.boxes[owner]!.id}:${name}`, op: "body", title: name, open: true },
          members,
          owner,
        );
    }
  }

  tree(): Tree {
    const { boxes, parent, copies } = this;
    return { boxes, parent: Int32Array.from(parent), open: Uint8Array.from(this.#open), copies };
  }
}

function chipsOf(boxes: readonly Box[]): OpChip[] {
  return boxes.flatMap((box) =>
    box.kind === "node"
      ? [{ op: box.op, family: box.family, node: box.id, role: "work" as const, title: box.op }]
      : box.chips,
  );
}

function common<T>(list: readonly T[]): T {
  const counts = new Map<T, number>();
  for (const each of list) counts.set(each, (counts.get(each) ?? 0) + 1);
  return [...counts].reduce((best, next) => (next[1] > best[1] ? next : best))[0];
}

const agreed = <T>(list: readonly T[]): T | undefined => (new Set(list).size === 1 ? list[0] : undefined);

/** One open frame around the nodes of each layer that runs several; a node of several layers is in its first. */
function byLayer(grove: GroupTree, engine: EngineView, links: Mapping): void {
  const find = grove.finder();
  engine.graph.boxes
    .filter(({ kind }) => kind === "layer")
    .forEach(({ id, title, precision }, k) => {
      const members = find(links.homeOf(id));
      if (members.length < 2) return;
      const lines = [precision, plural(members.length, "node")].filter(Boolean);
      const details = [{ key: "kernel", value: title }];
      const named = { id: LAYER + id, op: "layer", title: `layer ${k + 1}`, lines, details, open: true };
      grove.add(named, members);
    });
}

/** One open frame around the nodes that a build has made one layer so far. */
function byReplay(grove: GroupTree, fused: readonly Fused[]): void {
  const find = grove.finder();
  for (const { nodes, step, text } of fused) {
    const members = find(nodes);
    if (members.length < 2) continue;
    // The name stays while the group grows, so that it stays folded.
    const id = `fused:${grove.boxes[members[0]!]!.id}`;
    const details = [{ key: "decision", value: text }];
    grove.add({ id, op: "step", title: `step ${step}`, details, open: true }, members);
  }
}

interface Scope {
  members: number[];
  scopes: Map<string, Scope>;
}

/** Groups by the path in the names that exporters write, such as /layer1/conv1/Conv. */
function byScope(grove: GroupTree): void {
  const top = grove.top;
  const slashes = top.filter((v) => grove.boxes[v]!.title.includes("/")).length;
  const separator = slashes > top.length / 4 ? "/" : ".";
  const root: Scope = { members: [], scopes: new Map() };
  for (const v of top) {
    let at = root;
    for (const part of grove.boxes[v]!.title.split(separator).filter(Boolean).slice(0, -1)) {
      const next = at.scopes.get(part) ?? { members: [], scopes: new Map() };
      at.scopes.set(part, next);
      at = next;
    }
    at.members.push(v);
  }
  const count = (scope: Scope): number =>
    [...scope.scopes.values()].reduce((sum, inner) => sum + count(inner), scope.members.length);
  const plant = (scope: Scope, path: string[], start: string[], around: number): void => {
    for (const [part, inner] of scope.scopes) {
      const whole = [...path, part];
      const title = [...start, part];
      const total = count(inner);
      // A path without a fork is one scope; one box needs none.
      if (total < 2 || (inner.scopes.size === 1 && !inner.members.length)) {
        plant(inner, whole, total < 2 ? [] : title, around);
        for (const v of inner.members) grove.parent[v] = around;
        continue;
      }
      const id = `scope:${whole.join(separator)}`;
      const named = { id, op: "scope", title: title.join(separator) };
      const at = grove.add(named, inner.members, around, everything(inner));
      plant(inner, whole, [], at);
    }
  };
  plant(root, [], [], -1);
}

const everything = (scope: Scope): number[] => [
  ...scope.members,
  ...[...scope.scopes.values()].flatMap(everything),
];

/**
 * Blocks that follow each other several times, such as the layers of an encoder: one group for all copies, and in it the
 * boxes of the first stand for those of the others.
 */
function byRepeat(grove: GroupTree, { boxes, repeats }: Graph): void {
  for (const { title, rows } of repeats) {
    const inside = rows.map(([v]) => boxes[v!]!).filter(({ kind }) => kind === "node" || kind === "layer");
    const lines = [`${plural(inside.length, inside[0]!.kind)} each`];
    grove.add(
      { id: `repeat:${inside[0]!.id}`, op: "repeat", title, lines, chips: chipsOf(inside) },
      rows.flat(),
    );
    for (const row of rows) grove.copies.set(row[0]!, row);
  }
}
