type Cell = string | number | null;

const FORMULA = /^[=+@-]/;

/** Rows as text with a separator between cells, quoted where it must be (RFC 4180); null gives an empty cell. */
export function delimited(rows: readonly (readonly Cell[])[], separator: "\t" | ","): string {
  const cell = (value: Cell): string => {
    if (value === null) return "";
    if (typeof value === "number") return Number.isFinite(value) ? String(value) : "";
    const text = FORMULA.test(value) ? `'${value}` : value;
    return /["\n\r]/.test(text) || text.includes(separator) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => `${row.map(cell).join(separator)}\r\n`).join("");
}
