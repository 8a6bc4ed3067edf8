import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { formatsOf } from "../src/panels/table";
import { cellsOf } from "../src/ui/cells";
import { delimited } from "../src/ui/csv";
import { box } from "./payloads";

/** Reads what RFC 4180 describes, letter by letter. */
function parsed(text: string, separator: string): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = "";
  let quoted = false;
  for (let i = 0; i < text.length; i++) {
    const letter = text[i]!;
    if (quoted) {
      if (letter !== '"') cell += letter;
      else if (text[i + 1] === '"') cell += text[++i]!;
      else quoted = false;
    } else if (letter === '"') quoted = true;
    else if (letter === separator) {
      row.push(cell);
      cell = "";
    } else if (letter === "\r" && text[i + 1] === "\n") {
      i++;
      rows.push([...row, cell]);
      row = [];
      cell = "";
    } else cell += letter;
  }
  return rows;
}

describe("a table as text", () => {
  it("is read back cell by cell, whatever names hold", () => {
    // Names of layers hold commas, quotes and control characters.
    const cell = fc.oneof(
      fc.string({ unit: fc.constantFrom("a", ",", "\t", '"', "\n", "\r", "'", " ", "é", "x") }),
      fc.string(),
    );
    fc.assert(
      fc.property(
        fc.array(fc.array(cell, { minLength: 1, maxLength: 4 }), { maxLength: 5 }),
        fc.constantFrom("\t" as const, "," as const),
        (rows, separator) => {
          const guarded = rows.map((row) => row.map((text) => (/^[=+@-]/.test(text) ? `'${text}` : text)));
          expect(guarded).toEqual(parsed(delimited(rows, separator), separator));
        },
      ),
    );
  });

  it("quotes a lone carriage return, which many programs take for the end of a row", () => {
    expect('"a\rb"\r\n').toBe(delimited([["a\rb"]], ","));
  });

  it("runs no name as a formula", () => {
    // A model from a stranger names a layer =HYPERLINK(...), and a spreadsheet obeys.
    expect("'=1+1,'@x,'+y,'-z,-3.5\r\n").toBe(delimited([["=1+1", "@x", "+y", "-z", -3.5]], ","));
  });

  it("has full numbers, and nothing where there is none", () => {
    // What the screen rounds, a program needs.
    expect("0.012345678\t\t\t0\r\n").toBe(delimited([[0.012345678, null, Number.NaN, 0]], "\t"));
  });

  it("has headings with units over plain values", () => {
    const td = () => null as never;
    const columns = [
      { key: "name", label: "Layer", by: (row: { name: string }) => row.name, cell: td },
      { key: "time", label: "Time", unit: "ms", by: () => null, cell: td },
    ];
    expect([
      ["Layer", "Time (ms)"],
      ["conv", null],
    ]).toEqual(cellsOf([{ name: "conv" }], columns));
  });
});

describe("the formats of a layer", () => {
  const port = (format: string, constant = false) => ({ name: "", dtype: "", shape: "", format, constant });

  it("are what it reads and writes, once where they agree", () => {
    const of = (before: string[], after: string[]) =>
      formatsOf(box({ id: "A", inputs: before.map((f) => port(f)), outputs: after.map((f) => port(f)) }));
    expect(["NHWC", "NCHW → NHWC", "NCHW, NHWC → NHWC", "NCHW", "NHWC", ""]).toEqual([
      of(["NHWC", "NHWC"], ["NHWC"]),
      of(["NCHW"], ["NHWC"]),
      of(["NCHW", "NHWC"], ["NHWC"]),
      of(["NCHW"], []),
      of([], ["NHWC"]),
      of([""], [""]),
    ]);
  });

  it("leave out those of constants", () => {
    // Weights are laid out once, at build time.
    expect("NHWC").toBe(
      formatsOf(box({ id: "A", inputs: [port("KCRS", true), port("NHWC")], outputs: [port("NHWC")] })),
    );
  });
});
