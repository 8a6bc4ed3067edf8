import type { ComponentChildren, VNode } from "preact";

type Props = Record<string, unknown> & { children?: ComponentChildren };

/** The elements that components without hooks give, each with its properties, in the order of the page. */
export function elements(node: ComponentChildren): { tag: string; props: Props }[] {
  if (Array.isArray(node)) return node.flatMap(elements);
  if (node === null || typeof node !== "object") return [];
  const { type, props } = node as VNode<Props>;
  if (typeof type === "function") return elements((type as (props: Props) => ComponentChildren)(props));
  return [{ tag: String(type), props }, ...elements(props.children)];
}

/** All text below, as it is read. */
export function textOf(node: ComponentChildren): string {
  if (Array.isArray(node)) return node.map(textOf).join("");
  if (node === null || node === undefined || typeof node === "boolean") return "";
  if (typeof node !== "object") return String(node);
  const { type, props } = node as VNode<Props>;
  return textOf(
    typeof type === "function" ? (type as (props: Props) => ComponentChildren)(props) : props.children,
  );
}
