import type { RenderProps } from "@anywidget/types";
import { Lab } from "./lab";
import { mount } from "./mount";
import type { ExplorerTraits } from "./traits";
import { ExplorerView } from "./ui/explorerview";

/** The whole Explorer: choice, variants, two linked graphs, details, charts and table. */
function render({ model, el, host }: RenderProps<ExplorerTraits>): () => void {
  return mount(el, "explorer", ({ root, end }) => {
    const lab = new Lab(model, host, root, end);
    // The manager marks the view when the kernel's side is gone.
    const check = (): void => {
      lab.alive.value = !el.classList.contains("jupyter-widgets-disconnected");
    };
    model.on("comm_live_update", check);
    end.addEventListener("abort", () => model.off("comm_live_update", check));
    return { view: <ExplorerView lab={lab} root={root} />, problem: lab.study.problem };
  });
}

export default { render };
