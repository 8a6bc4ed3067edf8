// Stands before the parts of a report, which are all in its one file.
import { Parts } from "../core/parts";

Object.assign(globalThis, { rtlabParts: new Parts() });
