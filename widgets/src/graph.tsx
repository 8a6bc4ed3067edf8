import type { RenderProps } from "@anywidget/types";
import { mount } from "./mount";
import { PaneSet } from "./paneset";
import type { Surroundings } from "./parts";
import { Study } from "./state";
import { follower, type GraphTraits } from "./traits";
import { GraphView } from "./ui/graphview";

type Props = Pick<RenderProps<GraphTraits>, "model" | "el"> & Pick<Surroundings, "css">;

/** The two linked graphs alone. */
export function render({ model, el, css }: Props): () => void {
  return mount(el, "graph", css, ({ root, end }) => {
    const study = new Study(model, end);
    const titles = follower(model, end, (error) => study.fail(error))("titles");
    study.titles.value = titles.value ?? {};
    const paneSet = new PaneSet(study, root, end);
    return {
      view: (
        <GraphView paneSet={paneSet} height={follower(model, end, (error) => study.fail(error))("height")} />
      ),
      problem: study.problem,
    };
  });
}
