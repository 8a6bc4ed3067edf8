import type { ComponentChildren } from "preact";
import { Terms } from "./terms";

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
