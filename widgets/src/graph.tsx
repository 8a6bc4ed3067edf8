import type { RenderProps } from "@anywidget/types";
import { Bench } from "./bench";
import { mount } from "./mount";
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
    const bench = new Bench(study, root, end);
    return {
      view: <GraphView bench={bench} height={follower(model, end, (error) => study.fail(error))("height")} />,
      problem: study.problem,
    };
  });
}
