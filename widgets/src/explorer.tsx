import type { RenderProps } from "@anywidget/types";
import { Lab } from "./lab";
import { mount } from "./mount";
import type { Surroundings } from "./parts";
import type { ExplorerTraits } from "./traits";
import { ExplorerView } from "./ui/explorerview";

type Props = Pick<RenderProps<ExplorerTraits>, "model" | "el"> & Surroundings;

/** The whole Explorer: choice, variants, two linked graphs, details, charts and table. */
export function render({ model, el, css, part }: Props): () => void {
  return mount(el, "explorer", css, ({ root, end }) => {
    const lab = new Lab(model, root, end, part);
    return { view: <ExplorerView lab={lab} root={root} />, problem: lab.study.problem };
  });
}
