// What the bundles carry of others, and the notices that their licences ask for: at the head of every bundle, and whole
// in ../rtlab/static/NOTICES.txt, which goes into the wheel.
import { readdir, readFile } from "node:fs/promises";
import { join, sep } from "node:path";

const COPYRIGHT = /^copyright .*$/gim;
const TITLE = /^(the )?mit license( \(mit\))?$/gim;
/** Licences that a notice satisfies; another one is a decision for a person. */
const ALLOWED = new Set(["MIT", "ISC", "BSD-2-Clause", "BSD-3-Clause", "0BSD"]);

/** Folders of the packages that files come from: what follows the last node_modules, and a scope with its package. */
export function packagesOf(files) {
  const found = new Set();
  for (const file of files) {
    const parts = file.split(/[\\/]/);
    const at = parts.lastIndexOf("node_modules");
    if (at < 0) continue;
    found.add(parts.slice(0, at + (parts[at + 1].startsWith("@") ? 3 : 2)).join(sep));
  }
  return [...found].sort();
}

/** Name, version, licence, lines of copyright and text of a package; an error where it tells no licence that fits. */
export async function licensed(folder) {
  const { name, version, license } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  if (!ALLOWED.has(license))
    throw new Error(`${name} ${version} is under "${license}": see whether rtlab may carry it.`);
  const file = (await readdir(folder)).find((f) => /^licen[cs]e(\.|$)/i.test(f));
  if (!file) throw new Error(`${name} ${version} has no licence file: see what its notice must say.`);
  const text = (await readFile(join(folder, file), "utf8")).replaceAll("\r", "").trim();
  const rights = text.match(COPYRIGHT) ?? [];
  const terms = text.replace(COPYRIGHT, "").replace(TITLE, "").replaceAll(/\s+/g, " ").trim();
  return { name, version, license, rights, text, terms };
}

/** The notice at the head of a bundle: each set of terms once, below all that it holds for. */
export function banner(packages) {
  const terms = new Map();
  for (const each of packages) terms.set(each.terms, [...(terms.get(each.terms) ?? []), each]);
  const told = [...terms].map(([text, held]) => {
    const each = held.map((p) => `${p.name} ${p.version} (${p.license}), ${p.rights.join(", ")}`);
    return `${each.join("\n")}\n${text}`;
  });
  return `/*! Parts of this file:\n${told.join("\n\n").replaceAll("*/", "* /")}\n*/\n`;
}

/**
 * Scripts with their notices, and the text of NOTICES.txt.
 * @param {{name: string, text: string, files: string[]}[]} scripts each with the files that it was made from, by their
 * path below `root`
 */
export async function noticed(scripts, root) {
  const carried = new Map();
  const made = [];
  for (const { name, text, files } of scripts) {
    const packages = await Promise.all(packagesOf(files).map((folder) => licensed(join(root, folder))));
    for (const each of packages) carried.set(each.name, each);
    made.push({ name, files, text: packages.length > 0 ? banner(packages) + text : text });
  }
  const whole = [...carried.values()].map((p) => `${p.name} ${p.version}\n\n${p.text}\n`);
  const notices = ["The front end of rtlab carries these packages.\n", ...whole].join(
    `\n${"-".repeat(80)}\n\n`,
  );
  return { made, notices };
}
