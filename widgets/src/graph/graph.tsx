import type { RenderProps } from "@anywidget/types";
import { follower, type GraphTraits } from "../core/channel";
import { mount } from "../core/mount";
import type { Surroundings } from "../core/parts";
import { Study } from "../core/state";
import { GraphView } from "./graph_view";
import { PaneSet } from "./paneset";

type Props = Pick<RenderProps<GraphTraits>, "model" | "el"> & Pick<Surroundings, "css">;

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
