import type { Box, Chip, Choice, Pin } from "../core/contract";

/** A precision that is one switch for the whole engine, and no type in a graph. */
export const WHOLE = "tf32";
const WILD = /[*?[]|^op:/;
const PRUNABLE = new Set(["Conv", "ConvTranspose", "Gemm", "MatMul"]);

/** Whether a pattern fits a node: its id or name with wildcards, or op: and its operator, as the kernel reads it. */
export function fits(pattern: string, { id, title, op }: Box): boolean {
  if (pattern.startsWith("op:")) return matches(pattern.slice(3), op);
  // Equality first, because names may hold the brackets that are a pattern's too.
  return [id, title].some((name) => name === pattern || matches(pattern, name));
}

function matches(pattern: string, name: string): boolean {
  if (!WILD.test(pattern)) return name === pattern;
  const spelled = pattern.replace(
    /\[(!?)(\]?[^\]]*)\]|[*?.+^${}()|\\[\]]/g,
    (sign, not: string, set?: string) =>
      set !== undefined
        ? `[${not && "^"}${set.replace(/[\\^\]]/g, "\\$&")}]`
        : ({ "*": ".*", "?": "." }[sign] ?? `\\${sign}`),
  );
  try {
    return new RegExp(`^${spelled}$`, "s").test(name);
  } catch {
    return false;
  }
}

function finder(patterns: readonly string[]): (box: Box) => number {
  const plain = new Map<string, number>();
  const wild: [number, string][] = [];
  for (const [i, pattern] of patterns.entries())
    if (WILD.test(pattern)) wild.push([i, pattern]);
    else plain.set(pattern, i);
  return (box) =>
    Math.max(
      plain.get(box.id) ?? -1,
      plain.get(box.title) ?? -1,
      wild.findLast(([, pattern]) => fits(pattern, box))?.[0] ?? -1,
    );
}

/** Tells the precision that a node is pinned to, empty where it is as the variant: of several pins the last counts. */
export function pinned(pins: readonly Pin[]): (box: Box) => string {
  const find = finder(pins.map(({ pattern }) => pattern));
  return (box) => pins[find(box)]?.precision ?? "";
}

/** The pins once nodes are pinned to a precision, or, with none, are as the variant again. */
export function repinned({ pins, precision }: Choice, boxes: readonly Box[], target: string): Pin[] {
  const ids = new Set(boxes.map(({ id }) => id));
  const others = pins.filter(({ pattern }) => !ids.has(pattern));
  const inherits = pinned(others);
  const own = boxes.flatMap((box) => {
    const inherited = inherits(box);
    // A wider pattern pins the node still: only a pin of its own takes it out.
    const own = target || (inherited && precision !== WHOLE ? precision : "");
    return own && own !== inherited ? [{ pattern: box.id, precision: own }] : [];
  });
  return [...others, ...own];
}

export const prunable = ({ op, inputs }: Box): boolean =>
  PRUNABLE.has(op) && inputs.some(({ constant }) => constant);

export function pruned(sparsity: readonly string[]): (box: Box) => boolean {
  const find = finder(sparsity);
  return (box) => find(box) >= 0;
}

/** The patterns of pruned nodes once some are pruned or not; `all` are the nodes that can be. */
export function repruned(
  sparsity: readonly string[],
  boxes: readonly Box[],
  on: boolean,
  all: readonly Box[],
): string[] {
  const is = pruned(sparsity);
  if (on) return [...sparsity, ...boxes.filter((box) => !is(box)).map(({ id }) => id)];
  const off = new Set(boxes.map(({ id }) => id));
  const patterns = sparsity.flatMap((pattern) => {
    if (off.has(pattern)) return [];
    if (!WILD.test(pattern) || !boxes.some((box) => fits(pattern, box))) return pattern;
    return all.filter((box) => fits(pattern, box) && !off.has(box.id)).map(({ id }) => id);
  });
  return [...new Set(patterns)];
}

/** The name of a choice as `Variant.id` in rtlab/core/variant.py makes it, and its short form as `Variant.name`. */
export function variantName(choice: Choice): { id: string; name: string } {
  // A saved notebook may hold a choice that has none.
  const { precision, calibrator, target, pins, weights, sparsity, treatments, sizes = [] } = choice;
  const head = calibrator ? `${precision}·${calibrator}` : precision;
  const tensor = weights === "tensor" ? ["per tensor"] : [];
  const which = sparsity.join() === "*" ? "" : ` ${sparsity.join()}`;
  const id = [head, ...sizes, ...pins.map((pin) => `${pin.pattern}=${pin.precision}`), ...tensor];
  const name = [head, ...sizes, ...(pins.length ? [`${pins.length} pinned`] : []), ...tensor];
  if (sparsity.length) {
    id.push(`2:4${which}`);
    name.push("2:4");
  }
  id.push(...treatments);
  name.push(...transformKinds(treatments));
  return { id: `${id.join(" ")}@${target}`, name: name.join(" · ") };
}

/** What was done by treatments, as `Treatment.done` says it; several of a kind count once. */
export const transformKinds = (treatments: readonly string[]): string[] => [
  ...new Set(treatments.map((one) => /^\w+/.exec(one)![0].replace(/e?$/, "ed"))),
];

const OPTIONS = / · \d+ options?$/;

/** Whether a choice asks for another variant than the chip's. What was read from files belongs to no choice. */
export function differs(choice: Choice, { id, choice: chosen, target, recorded }: Chip): boolean {
  if (recorded) return false;
  const name = variantName(choice);
  // Options of a builder are no part of a choice: a variant that has some agrees in all that can be chosen.
  const plain = chosen.replace(OPTIONS, "");
  if (plain !== name.name || target !== choice.target) return true;
  if (plain !== chosen)
    return id.includes(`@${target}`) && !id.startsWith(`${name.id.slice(0, name.id.lastIndexOf("@"))} `);
  const comparable = id.startsWith(chosen.split(" · ")[0]!) && id.includes(`@${target}`);
  return comparable && id !== name.id && !id.startsWith(`${name.id}/`);
}
