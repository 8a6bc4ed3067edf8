export type Bytes = DataView | ArrayBuffer | Uint8Array;

/** Width in bytes; bits of the form: 1 for differences, 2 for the order of `ranked`. */
type Column = [width: number, form: number];
type Table = [count: number, width: number, form: number];
type Tree =
  | ["value", unknown]
  | ["object", Record<string, Tree>]
  | ["string" | "float" | "int" | "bool", Column]
  | ["list" | "optional", Column, Tree]
  | ["map", Column, Column, Tree];

interface Header {
  tree: Tree;
  strings: Table;
  floats: Table;
  /** Text, then in turns the column of the numbers that stand there, and text. */
  templates: [string, ...(Column | string)[]][];
}

/** Reads what `encode` in rtlab/documents/payload.py wrote, which tells the form; null where the trait is empty. */
export async function decode<T>(bytes: Bytes | null | undefined): Promise<T | null> {
  if (!bytes || bytes.byteLength === 0) return null;
  const view = ArrayBuffer.isView(bytes)
    ? new Uint8Array(bytes.buffer as ArrayBuffer, bytes.byteOffset, bytes.byteLength)
    : new Uint8Array(bytes);
  try {
    return unpack(new Uint8Array(await gunzip(view).arrayBuffer())) as T;
  } catch (error) {
    throw new Error(
      `Cannot show these results: their ${bytes.byteLength} bytes are damaged. ` +
        "Restart the kernel and run the cell again; a saved report must be written anew.",
      { cause: error },
    );
  }
}

function unpack(data: Uint8Array): unknown {
  let at = 4 + new DataView(data.buffer).getUint32(0, true);
  const { tree, templates, ...tables }: Header = JSON.parse(new TextDecoder().decode(data.subarray(4, at)));

  const column = (
    count: number,
    width: number,
    form: number,
    order?: number[],
  ): Int32Array | Float64Array => {
    const size = width > 4 ? 8 : 4;
    const raw = new Uint8Array(count * size);
    for (let plane = 0; plane < width; plane++)
      for (let i = plane; i < raw.length; i += size) raw[i] = data[at++] as number;
    if (size > 4) return new Float64Array(raw.buffer);
    const folded = new Int32Array(raw.buffer);
    const moved = form & 2 ? order : null;
    const values = moved ? new Int32Array(count) : folded;
    let last = 0;
    for (let i = 0; i < count; i++) {
      const bits = folded[i] as number;
      last = ((bits >>> 1) ^ -(bits & 1)) + (form & 1 ? last : 0);
      values[moved ? (moved[i] as number) : i] = last;
    }
    return values;
  };

  const read = (tree: Tree, count: number, order?: number[]): unknown[] => {
    const results = new Array(count);
    if (tree[0] === "value") return results.fill(tree[1]);
    if (tree[0] === "object") {
      for (let i = 0; i < count; i++) results[i] = { ...tree[1] };
      for (const field in tree[1]) {
        const values = read(tree[1][field] as Tree, count, order);
        for (let i = 0; i < count; i++) results[i][field] = values[i];
      }
      return results;
    }
    const [kind] = tree;
    const own = column(count, ...tree[1], order);
    const table = kind === "string" ? strings : kind === "float" && floats;
    if (table) for (let i = 0; i < count; i++) results[i] = table[own[i] as number];
    else if (kind === "int") for (let i = 0; i < count; i++) results[i] = own[i];
    else if (kind === "bool") for (let i = 0; i < count; i++) results[i] = !!own[i];
    else {
      let total = 0;
      for (const length of own) total += length;
      const keys = kind === "map" ? column(total, ...tree[2]) : [];
      const items = read(tree.at(-1) as Tree, total, kind === "list" ? ranked(own, total) : undefined);
      for (let i = 0, next = 0; i < count; i++) {
        const end = next + (own[i] as number);
        if (kind === "optional") results[i] = next < end ? items[next] : null;
        else if (kind === "list") results[i] = items.slice(next, end);
        // Not by assignment: a name may be "__proto__".
        else
          results[i] = Object.fromEntries(
            items.slice(next, end).map((item, k) => [strings[keys[next + k] as number], item]),
          );
        next = end;
      }
    }
    return results;
  };

  const ids = column(...tables.strings);
  const uses = templates.map(() => 0);
  for (const id of ids) (uses[id] as number)++;
  const rows = templates.map(([first, ...more], id) => {
    const texts: string[] = new Array(uses[id]).fill(first);
    for (let at = 0; at < more.length; at += 2) {
      const numbers = column(texts.length, ...(more[at] as Column));
      for (let i = 0; i < texts.length; i++) texts[i] += `${numbers[i]}`.slice(1) + more[at + 1];
    }
    return texts.values();
  });
  const strings = Array.from(ids, (id) => rows[id]?.next().value as string);
  const upper = column(...tables.floats);
  const floats =
    upper instanceof Float64Array ? upper : new Float32Array(upper.map((bits) => bits << 9).buffer);
  const [result] = read(tree, 1);
  if (at !== data.length) throw new Error("The columns are too short or too long.");
  return result;
}

/** Positions of the items of lists in the order of their ranks: all first items, then all second ones, and so on. */
function ranked(lengths: Int32Array | Float64Array, total: number): number[] {
  const order: number[] = [];
  const starts: number[] = [];
  let at = 0;
  for (const length of lengths) {
    starts.push(at);
    at += length;
  }
  let longer = [...starts.keys()];
  for (let rank = 0; order.length < total; rank++) {
    longer = longer.filter((row) => (lengths[row] as number) > rank);
    for (const row of longer) order.push((starts[row] as number) + rank);
  }
  return order;
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  // A call for each letter of a report takes a tenth of a second.
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

export function gunzip(bytes: Uint8Array<ArrayBuffer>): Response {
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
}
