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
