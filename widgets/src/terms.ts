import { TERMS } from "./glossary";

/** A part of a text: a term, by its place in the list, or what stands between two. */
export interface Piece {
  text: string;
  term?: number;
}

const places = new Map(
  TERMS.flatMap(([name, _, ...spellings], at) =>
    [name, ...spellings].map((word): [string, number] => [word.toLowerCase(), at]),
  ),
);
/** The longer ones first: per-channel scales are one term, and then another. */
const words = [...places.keys()]
  .sort((a, b) => b.length - a.length)
  .map((word) => word.replace(/[/.*+?^${}()|[\]\\]/g, "\\$&"));
/** Parts of names and paths, such as layer1 or /layer/conv, are no terms. */
const ANY = new RegExp(`(?<![\\w/.-])(${words.join("|")})(s?)(?![\\w/-]|\\.\\w)`, "gi");

/** What the first term in a text means; empty where there is none. */
export const meaning = (text: string): string =>
  pieces(text).flatMap(({ term }) => (term === undefined ? [] : TERMS[term]![1]))[0] ?? "";

/** A text divided at its terms, each marked where it stands first. */
export function pieces(text: string): Piece[] {
  const found: Piece[] = [];
  const seen = new Set<number>();
  let from = 0;
  for (const match of text.matchAll(ANY)) {
    const term = places.get(match[1]!.toLowerCase())!;
    if (seen.has(term)) continue;
    seen.add(term);
    if (match.index > from) found.push({ text: text.slice(from, match.index) });
    from = match.index + match[0].length;
    found.push({ text: match[0], term });
  }
  if (from < text.length) found.push({ text: text.slice(from) });
  return found;
}

/** The terms in whose name, spellings or meaning all words of a query stand; the names that begin with it come first. */
export function termsOf(query: string): (typeof TERMS)[number][] {
  const asked = query.trim().toLowerCase();
  const parts = asked.split(/\s+/);
  const rank = ([name]: (typeof TERMS)[number]): number => Number(!name.toLowerCase().startsWith(asked));
  return TERMS.filter((term) =>
    parts.every((part) => term.some((text) => text.toLowerCase().includes(part))),
  ).sort((a, b) => rank(a) - rank(b));
}
