// Fails when a file that rtlab/web/page/contract.py writes is not what it writes today.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "..");
const environment = join(root, ".venv", "bin", "python");
const python = process.env.PYTHON ?? (existsSync(environment) ? environment : "python3");
const program =
  "import json, sys; from rtlab.web.page.contract import WRITTEN; json.dump({n: made() for n, made in WRITTEN.items()}, sys.stdout)";
const fresh = JSON.parse(execFileSync(python, ["-c", program], { cwd: root, encoding: "utf8" }));
for (const [name, text] of Object.entries(fresh))
  if (text !== readFileSync(join(here, name), "utf8")) {
    console.error(`${name} is stale. Run python -m rtlab.web.page.contract in the repository's root.`);
    process.exit(1);
  }
