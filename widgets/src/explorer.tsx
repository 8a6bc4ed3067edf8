import type { RenderProps } from "@anywidget/types";
import { ExplorerState } from "./explorerstate";
import { mount } from "./mount";
import type { Surroundings } from "./parts";
import { learn } from "./terms";
import type { ExplorerTraits } from "./traits";
import { ExplorerView } from "./ui/explorerview";

type Props = Pick<RenderProps<ExplorerTraits>, "model" | "el"> & Surroundings;

/** The whole Explorer: choice, variants, two linked graphs, details, charts and table. */
export function render({ model, el, css, part }: Props): () => void {
  return mount(el, "explorer", css, ({ root, end }) => {
    learn(model.get("terms"));
    const explorer = new ExplorerState(model, root, end, part);
    return { view: <ExplorerView explorer={explorer} root={root} />, problem: explorer.study.problem };
  });
}
