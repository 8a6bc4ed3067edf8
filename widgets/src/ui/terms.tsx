import { pieces, termAt } from "../core/glossary";

/** A text in which terms can be asked what they mean: by the pointer, by a tap, and with the Tab key. */
export function Terms({ text }: { text: string }) {
  return (
    <>
      {pieces(text).map(({ text: part, term }) =>
        term === undefined ? (
          part
        ) : (
          <button
            type="button"
            class="rt-term"
            key={term}
            data-term={term}
            aria-description={termAt(term)[1]}
          >
            {part}
          </button>
        ),
      )}
    </>
  );
}
