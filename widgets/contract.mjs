// Fails when src/contract.ts is not what rtlab/view/contract.py writes today.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "..");
const environment = join(root, ".venv", "bin", "python");
const python = process.env.PYTHON ?? (existsSync(environment) ? environment : "python3");
const program = "import sys; from rtlab.view.contract import typescript; sys.stdout.write(typescript())";
const fresh = execFileSync(python, ["-c", program], { cwd: root, encoding: "utf8" });
if (fresh !== readFileSync(join(here, "src", "contract.ts"), "utf8")) {
  console.error("src/contract.ts is stale. Run python -m rtlab.view.contract in the repository's root.");
  process.exit(1);
}
