import type { ComponentChildren } from "preact";

const icon = (children: ComponentChildren) => (
  <svg class="rt-icon" viewBox="0 0 16 16" aria-hidden="true">
    {children}
  </svg>
);

export const Search = () =>
  icon(
    <>
      <circle cx="7" cy="7" r="4" />
      <path d="m10 10 3.5 3.5" />
    </>,
  );
export const Fit = () => icon(<path d="M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10" />);
export const Plus = () => icon(<path d="M8 3v10M3 8h10" />);
export const Minus = () => icon(<path d="M3 8h10" />);
export const Up = () => icon(<path d="m4 10 4-4 4 4" />);
export const Down = () => icon(<path d="m4 6 4 4 4-4" />);
export const Close = () => icon(<path d="m4 4 8 8M12 4l-8 8" />);
export const More = () =>
  icon(
    <g class="rt-solid">
      <circle cx="3.5" cy="8" r="1.2" />
      <circle cx="8" cy="8" r="1.2" />
      <circle cx="12.5" cy="8" r="1.2" />
    </g>,
  );
export const Pin = () => icon(<path d="M6 2.5h4M6.8 2.5v4L4.5 9h7L9.2 6.5v-4M8 9v4.5" />);
export const Play = () =>
  icon(
    <g class="rt-solid">
      <path d="M5 3.2v9.6L13 8z" />
    </g>,
  );
export const Outside = () => icon(<path d="M6.5 3.5h-3v9h9v-3M9 3h4v4M13 3 7.5 8.5" />);
export const Warning = () => icon(<path d="M8 2.5 14 13H2zM8 6.5v3M8 11v.4" />);
export const Swap = () => icon(<path d="M3 5.5h9.5M10 3l2.5 2.5L10 8M13 10.5H3.5M6 8l-2.5 2.5L6 13" />);
export const Beside = () => icon(<path d="M2.5 3h11v10h-11zM8 3v10" />);
export const Stacked = () => icon(<path d="M2.5 3h11v10h-11zM2.5 8h11" />);
export const Link = () =>
  icon(
    <path d="M6.5 9.5l3-3M7.5 4.8l1.3-1.3a2.6 2.6 0 0 1 3.7 3.7l-1.3 1.3M8.5 11.2l-1.3 1.3a2.6 2.6 0 0 1-3.7-3.7l1.3-1.3" />,
  );
export const FoldLayers = () =>
  icon(<path d="M2.5 3.5h3v3h-3zM2.5 9.5h3v3h-3zM10.5 5h3v6h-3zM7 8h2M8 7l1 1-1 1" />);
export const Filter = () => icon(<path d="M2.5 3.5h11L9.5 8.5v4l-3-1.5V8.5z" />);
export const Upstream = () =>
  icon(
    <path d="M8 10.5V8.5L4.5 5M8 8.5 11.5 5M8 10.5a1.6 1.6 0 1 0 .01 0zM4 2a1.5 1.5 0 1 0 .01 0zM12 2a1.5 1.5 0 1 0 .01 0z" />,
  );
export const Downstream = () =>
  icon(
    <path d="M8 5.5v2L4.5 11M8 7.5l3.5 3.5M8 2.3a1.6 1.6 0 1 0 .01 0zM4 11a1.5 1.5 0 1 0 .01 0zM12 11a1.5 1.5 0 1 0 .01 0z" />,
  );
export const Path = () =>
  icon(<path d="M4 2.5a1.5 1.5 0 1 0 .01 0zM12 10.5a1.5 1.5 0 1 0 .01 0zM4 5.5v2.5a2 2 0 0 0 2 2h4" />);
export const Zoom = () =>
  icon(<path d="M2.5 5V2.5H5M11 2.5h2.5V5M13.5 11v2.5H11M5 13.5H2.5V11M5.5 6h5v4h-5z" />);
export const Save = () => icon(<path d="M8 2.5v7M5 7l3 3 3-3M3 12.5v1h10v-1" />);
export const Present = () => icon(<path d="M2 3h12v8H2zM8 11v2.5M5 13.5h6" />);
export const Fullscreen = () => icon(<path d="M9.5 2.5h4v4M13.5 2.5 9 7M6.5 13.5h-4v-4M2.5 13.5 7 9" />);
export const First = () => icon(<path d="M4 3.5v9M12 3.5 6.5 8l5.5 4.5" />);
export const Previous = () => icon(<path d="M10.5 3.5 5 8l5.5 4.5" />);
export const Next = () => icon(<path d="M5.5 3.5 11 8l-5.5 4.5" />);
export const Last = () => icon(<path d="M12 3.5v9M4 3.5 9.5 8 4 12.5" />);
