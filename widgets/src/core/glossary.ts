/** A word of the field with its meaning, and what else texts call it. */
export type Term = readonly [name: string, meaning: string, ...spellings: string[]];

export interface Piece {
  text: string;
  term?: number;
}

let terms: readonly Term[] = [];
const places = new Map<string, number>();
let any = /$^/g;

/** Takes the terms, which are the same for all widgets of a page. */
export function setGlossary(glossary: readonly Term[]): void {
  terms = glossary;
  places.clear();
  for (const [at, [name, , ...spellings]] of glossary.entries())
    for (const word of [name, ...spellings]) places.set(word.toLowerCase(), at);
  const words = [...places.keys()]
    .sort((a, b) => b.length - a.length)
    .map((word) => word.replace(/[/.*+?^${}()|[\]\\]/g, "\\$&"));
  // Parts of names and paths, such as layer1 or /layer/conv, are no terms.
  any = new RegExp(`(?<![\\w/.-])(${words.join("|")})(s?)(?![\\w/-]|\\.\\w)`, "gi");
}

export const termAt = (place: number): Term => terms[place]!;

export const meaning = (text: string): string =>
  pieces(text).flatMap(({ term }) => (term === undefined ? [] : termAt(term)[1]))[0] ?? "";

/** A text divided at its terms, each marked where it stands first. */
export function pieces(text: string): Piece[] {
  const pieces: Piece[] = [];
  const marked = new Set<number>();
  let from = 0;
  for (const match of text.matchAll(any)) {
    const term = places.get(match[1]!.toLowerCase())!;
    if (marked.has(term)) continue;
    marked.add(term);
    if (match.index > from) pieces.push({ text: text.slice(from, match.index) });
    from = match.index + match[0].length;
    pieces.push({ text: match[0], term });
  }
  if (from < text.length) pieces.push({ text: text.slice(from) });
  return pieces;
}

export function termsOf(query: string): Term[] {
  const text = query.trim().toLowerCase();
  const parts = text.split(/\s+/);
  const rank = ([name]: Term): number => Number(!name.toLowerCase().startsWith(text));
  return terms
    .filter((term) => parts.every((part) => term.some((text) => text.toLowerCase().includes(part))))
    .sort((a, b) => rank(a) - rank(b));
}
