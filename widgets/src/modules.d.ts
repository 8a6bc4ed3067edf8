declare module "*.css" {
  const text: string;
  export default text;
}

declare module "plotly.js-cartesian-dist-min" {
  const plotly: unknown;
  export default plotly;
}

declare module "worker:*" {
  const source: string;
  export default source;
}
