import type { AnyModel, RenderProps } from "@anywidget/types";
import { Lab } from "./lab";
import { mount } from "./mount";
import type { ExplorerTraits } from "./traits";
import { ExplorerView } from "./ui/explorerview";

type Props = Pick<RenderProps<ExplorerTraits>, "model" | "el">;

/** The whole Explorer: choice, variants, two linked graphs, details, charts and table. */
function render({ model, el }: Props): () => void {
  return mount(el, "explorer", ({ root, end }) => {
    const lab = new Lab(model, root, end);
    watchKernel(model, end, (alive) => {
      lab.alive.value = alive;
    });
    return { view: <ExplorerView lab={lab} root={root} />, problem: lab.study.problem };
  });
}

/**
 * Tells when the kernel's side of the widget is gone, and when it is back. anywidget does not show that of the model
 * itself; its layout model shares its fate.
 */
function watchKernel(
  model: AnyModel<ExplorerTraits>,
  end: AbortSignal,
  changed: (alive: boolean) => void,
): void {
  const check = (): void => {
    const layout: { comm_live?: boolean } | undefined = (model as AnyModel).get("layout");
    changed(layout?.comm_live !== false);
  };
  // All models of a manager are told one after another.
  const later = (): void => void setTimeout(check);
  model.on("comm_live_update", later);
  end.addEventListener("abort", () => model.off("comm_live_update", later));
}

export default { render };
