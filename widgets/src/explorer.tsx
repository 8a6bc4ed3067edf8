import type { RenderProps } from "@anywidget/types";
import { Lab } from "./lab";
import { mount } from "./mount";
import type { ExplorerTraits } from "./traits";
import { ExplorerView } from "./ui/explorerview";

type Props = Pick<RenderProps<ExplorerTraits>, "model" | "el">;

/** The whole Explorer: choice, variants, two linked graphs, details, charts and table. */
function render({ model, el }: Props): () => void {
  return mount(el, "explorer", ({ root, end }) => {
    const lab = new Lab(model, root, end);
    return { view: <ExplorerView lab={lab} root={root} />, problem: lab.study.problem };
  });
}

export default { render };
