// The part of plotly that a report brings along: a notebook's kernel sends all of it.
export { default } from "plotly.js-cartesian-dist-min";
