import { useState } from "preact/hooks";
import { ending, shorten } from "../core/format";
import { delimited } from "./csv";
import type { Column } from "./rows";
import { saveFile } from "./save";

export function cellsOf<T>(rows: readonly T[], columns: readonly Column<T>[]): (string | number | null)[][] {
  const head = columns.map(({ label, unit }) => (unit ? `${label} (${unit})` : String(label)));
  return [head, ...rows.map((row) => columns.map(({ by }) => by(row)))];
}

export function Copy({ title, text }: { title: string; text(): string }) {
  const [copied, setCopied] = useState("");
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text());
      setCopied("Copied");
    } catch {
      setCopied("No clipboard: save it");
    }
    setTimeout(() => setCopied(""), COPIED_MS);
  };
  return (
    <button type="button" class="rt-field" data-control="copy" title={title} onClick={copy}>
      {copied || "Copy"}
    </button>
  );
}

export function Export({ name, cells }: { name: string; cells(): (string | number | null)[][] }) {
  const save = (): void => {
    const text = new Blob([delimited(cells(), ",")], { type: "text/csv" });
    saveFile(`${name.replace(/[^\w.-]+/g, "_")}.csv`, text);
  };
  return (
    <>
      <Copy title="As text with tabs" text={() => delimited(cells(), "\t")} />
      <button type="button" class="rt-field" data-control="csv" title="All rows as a file" onClick={save}>
        Save as CSV
      </button>
    </>
  );
}

const COPIED_MS = 2000;

interface NameProps {
  text: string;
  label?: string;
  extra?: string;
}

export const Name = ({ text, label = text, extra = "" }: NameProps) => (
  <td class={`rt-name ${extra}`} title={shorten(text, 300)}>
    <bdi dir="ltr">{ending(label, 160)}</bdi>
  </td>
);
