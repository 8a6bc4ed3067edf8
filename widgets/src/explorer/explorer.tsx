import type { RenderProps } from "@anywidget/types";
import type { ExplorerTraits } from "../core/channel";
import { setGlossary } from "../core/glossary";
import { mount } from "../core/mount";
import type { Surroundings } from "../core/parts";
import { ExplorerState } from "./explorer_state";
import { ExplorerView } from "./explorer_view";

type Props = Pick<RenderProps<ExplorerTraits>, "model" | "el"> & Surroundings;

/** The whole Explorer: choice, variants, two linked graphs, details, charts and table. */
export function render({ model, el, css, part }: Props): () => void {
  return mount(el, "explorer", css, ({ root, end }) => {
    setGlossary(model.get("terms"));
    const explorer = new ExplorerState(model, root, end, part);
    return { view: <ExplorerView explorer={explorer} root={root} />, problem: explorer.study.problem };
  });
}
