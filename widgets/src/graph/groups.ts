// Groups that a graph can be folded into: bodies of nodes, engine layers or what a build has fused so far, repeated
// blocks and name scopes.

import type { Fused } from "../core/build_log";
import type { Box, Detail, EngineView, Graph, Grouping, OpChip } from "../core/contract";
import { plural } from "../core/format";
import type { Mapping } from "../core/mapping";
import { append } from "../core/multimap";
import { divide } from "./layout/blocks";
import { backEdges, components, Digraph } from "./layout/digraph";
import { Numbering } from "./numbering";

export interface Tree {
  boxes: readonly Box[];
  parent: Int32Array;
  /** 1 where a group is open at first. */
  open: Uint8Array;
}

/** What the id of the group of an engine layer begins with. */
export const LAYER = "layer:";
/** Blocks of at most so many stretches between cuts are looked for. */
const LONGEST_PERIOD = 48;
const LEAST_REPEAT = 6;

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
    return { boxes: this.boxes, parent: Int32Array.from(this.parent), open: Uint8Array.from(this.#open) };
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

/** Blocks that follow each other several times, such as the layers of an encoder. */
function byRepeat(grove: GroupTree, graph: Graph): void {
  for (const units of stretches(graph)) {
    const signs = new Numbering<string>();
    const sign = units.map(({ sign }) => signs.of(sign));
    for (const { start, period, count } of repeats(
      sign,
      units.map(({ members }) => members.length),
    )) {
      const copies = Array.from({ length: count }, (_, k) =>
        units.slice(start + k * period, start + (k + 1) * period).flatMap(({ members }) => members),
      );
      const first = graph.boxes[copies[0]![0]!]!;
      const kind = first.kind === "layer" ? "layer" : "node";
      const chips = chipsOf(copies[0]!.map((v) => graph.boxes[v]!));
      const lines = [`${plural(copies[0]!.length, kind)} each`];
      const title = `${count} × ${unnumbered(nameOf(graph, copies[0]!), nameOf(graph, copies.at(-1)!))}`;
      const whole = grove.add(
        { id: `repeat:${first.id}`, op: "repeat", title, lines, chips },
        [],
        -1,
        copies.flat(),
      );
      copies.forEach((members) => {
        const id = `block:${graph.boxes[members[0]!]!.id}`;
        grove.add({ id, op: "block", title: nameOf(graph, members) }, members, whole);
      });
    }
  }
}

/** What the names of a block's nodes have in common, or the word for it. */
function nameOf(graph: Graph, members: readonly number[]): string {
  const parts = members.map((v) => graph.boxes[v]!.title.split(/[/.]/).filter(Boolean));
  const first = parts[0]!;
  let same = 0;
  while (same < first.length - 1 && parts.every((path) => path[same] === first[same])) same++;
  return members.length > 1 && same ? first.slice(0, same).join("/") : "block";
}

/** A name without the numbers in which two copies differ: encoder/layer for encoder/layer0 and encoder/layer5. */
function unnumbered(first: string, last: string): string {
  const [a, b] = [first.split(/(\d+)/), last.split(/(\d+)/)];
  const name = a.filter((part, k) => k % 2 === 0 || part === b[k]).join("");
  return name.replace(/[._/-]+(?=\/|$)/g, "") || "block";
}

interface Unit {
  members: number[];
  /** Equal for units of the same operators, wired in the same way. */
  sign: string;
}

/** The stretches between the nodes that every path passes through, in order, for each connected part. */
function stretches(graph: Graph): Unit[][] {
  const { boxes } = graph;
  const root = Int32Array.from(boxes, (_, v) => rootOf(boxes, v));
  const pairs = new Map<number, [number, number]>();
  for (const edge of graph.edges) {
    const [s, t] = [root[edge.source]!, root[edge.target]!];
    if (s !== t) pairs.set(s * boxes.length + t, [s, t]);
  }
  const edges = [...pairs.values()];
  const raw = new Digraph(
    boxes.length,
    edges.map(([s]) => s),
    edges.map(([, t]) => t),
  );
  const back = backEdges(raw);
  const part = components(raw);
  const lists: number[][] = Array.from({ length: part.count }, () => []);
  root.forEach((r, v) => {
    if (r === v) lists[part.of[v]!]!.push(v);
  });
  const inner: [number, number][][] = lists.map(() => []);
  edges.forEach(([s, t], e) => {
    inner[part.of[s]!]!.push(back[e] ? [t, s] : [s, t]);
  });
  return lists.map((nodes, c) => {
    if (nodes.length < LEAST_REPEAT) return [];
    const local = new Map(nodes.map((v, i) => [v, i]));
    const source = Int32Array.from(inner[c]!, ([s]) => local.get(s)!);
    const target = Int32Array.from(inner[c]!, ([, t]) => local.get(t)!);
    const entry = Uint8Array.from(nodes, (v) => Number(boxes[v]!.kind === "input"));
    const blocks = divide({ width: new Float32Array(nodes.length), entry }, source, target);
    return blocks.flatMap((block): Unit[] => {
      const [head, ...rest] = Array.from(block.nodes, (v) => nodes[v]!);
      const place = new Map(Array.from(block.nodes, (v, i) => [v, i]));
      // An input stands before the first block as a cut does before the others.
      const pill = !block.startsAtCut && boxes[head!]!.kind === "input";
      const members = block.startsAtCut || pill ? rest : [head!, ...rest];
      const wires = block.edges.map((e) => `${place.get(source[e]!)}>${place.get(target[e]!)}`).sort();
      const unit = { members, sign: JSON.stringify([members.map((v) => signOf(boxes[v]!)), wires]) };
      return pill ? [{ members: [head!], sign: boxes[head!]!.id }, unit] : [unit];
    });
  });
}

function rootOf(boxes: readonly Box[], v: number): number {
  let at = v;
  while (boxes[at]!.parent >= 0) at = boxes[at]!.parent;
  return at;
}

const signOf = ({ id, kind, op, lines, chips, precision }: Box): unknown =>
  kind === "input" || kind === "output" ? id : [op, lines, chips.map((chip) => chip.op), precision];

interface Run {
  start: number;
  period: number;
  count: number;
}

/** Runs of equal stretches, those that cover most first come first served from the left. */
export function repeats(sign: readonly number[], size: readonly number[]): Run[] {
  const total = sign.length;
  const most = Math.min(LONGEST_PERIOD, total >> 1);
  // agree[p][i]: how many signs from i on equal the one p places further.
  const agree = Array.from({ length: most + 1 }, (_, p) => {
    const run = new Int32Array(total + 1);
    for (let i = total - p - 1; p && i >= 0; i--) run[i] = sign[i] === sign[i + p] ? run[i + 1]! + 1 : 0;
    return run;
  });
  const weight = (start: number, length: number): number => {
    let sum = 0;
    for (let i = start; i < start + length; i++) sum += size[i]!;
    return sum;
  };
  const best = (i: number): (Run & { boxes: number }) | null => {
    let run: (Run & { boxes: number }) | null = null;
    for (let period = 1; period <= most && i + 2 * period <= total; period++) {
      const count = Math.floor(agree[period]![i]! / period) + 1;
      if (count < 2 || (run && count * period <= run.count * run.period)) continue;
      const boxes = count * weight(i, period);
      if (boxes >= LEAST_REPEAT && boxes > count) run = { start: i, period, count, boxes };
    }
    return run;
  };
  const runs: Run[] = [];
  for (let i = 0; i < total; ) {
    const here = best(i);
    if (!here) {
      i++;
      continue;
    }
    // A short run must not spoil a longer one that starts inside of it.
    let better = 0;
    for (let k = 1; k < here.count * here.period && k <= LONGEST_PERIOD; k++) {
      const later = best(i + k);
      if (later && later.boxes > 2 * here.boxes) {
        better = k;
        break;
      }
    }
    if (better) {
      i += better;
      continue;
    }
    runs.push({ start: here.start, period: here.period, count: here.count });
    i += here.count * here.period;
  }
  return runs;
}
