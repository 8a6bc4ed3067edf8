import type { ComponentChildren } from "preact";
import { Terms } from "./terms";

/** A part of the side panel, with its heading. */
export function Section({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section>
      <h4>
        <Terms text={title} />
      </h4>
      {children}
    </section>
  );
}

/** A name and what is told of it, in a list of such. */
export function Row({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <>
      <dt title={name}>
        <Terms text={name} />
      </dt>
      <dd>{children}</dd>
    </>
  );
}
