declare module "*.css" {
  const text: string;
  export default text;
}

declare module "worker:*" {
  const source: string;
  export default source;
}
