// Stands before the parts of a report, which are all in its one file.
import { Parts } from "./parts";

Object.assign(globalThis, { rtlabParts: new Parts() });
