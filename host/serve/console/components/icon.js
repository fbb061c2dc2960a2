// Icons: lines on a grid of 24 by 24. They are decoration; the text beside them or `aria-label` says what they mean.

const PATHS = {
  chat: "M4 5.5h16v11H11l-4.5 3.5v-3.5H4z",
  inbox: "M4 13l2.5-8h11L20 13v6H4zM4 13h5l1.5 2.5h3L15 13h5",
  turn: "M5 6h9M5 12h14M5 18h6M4 3v18",
  plugins: "M9 4v4M15 4v4M6 8h12v4a6 6 0 0 1-12 0zM12 18v3",
  agents: "M8 9h8M8 13h5M5 4h14v16H5z",
  about: "M12 11v5M12 8v.01M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z",
  user: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4.5 20.5a7.5 7.5 0 0 1 15 0",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  attach: "M19 11.5l-7.5 7.5a4.6 4.6 0 0 1-6.5-6.5L13 4.6a3 3 0 0 1 4.3 4.3l-7.8 7.8a1.5 1.5 0 0 1-2.1-2.1l7-7",
  copy: "M9 9h10v11H9zM15 9V4H5v11h4",
  check: "M5 12.5l4.5 4.5L19 7.5",
  cross: "M6 6l12 12M18 6L6 18",
  more: "M12 5.5v.01M12 12v.01M12 18.5v.01",
  retry: "M19 8a8 8 0 1 0 1 5M20 4v4.5h-4.5",
  undo: "M9 5L4.5 9.5 9 14M5 9.5h9a5.5 5.5 0 0 1 0 11h-3",
  fork: "M7 8.5v7M7 8.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM7 19.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM17 8.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM17 8.5c0 4-10 2.5-10 7",
  export: "M12 15V4M7.5 8.5L12 4l4.5 4.5M5 14v6h14v-6",
  search: "M11 4.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM16 16l4.5 4.5",
  plus: "M12 5v14M5 12h14",
  leave: "M10 4.5H5v15h5M10 12h10M16 7.5l4.5 4.5-4.5 4.5",
  back: "M14.5 5.5L8 12l6.5 6.5",
  chevron: "M9 5.5l6.5 6.5L9 18.5",
  down: "M5.5 9l6.5 6.5L18.5 9",
  tool: "M14.5 6.5a4 4 0 0 1 5-1l-2.8 2.8 1.5 1.5L21 7a4 4 0 0 1-5.5 5L8 19.5 4.5 16l7.5-7.5a4 4 0 0 1 2.5-2z",
  warning: "M12 4l9 16H3zM12 10v4.5M12 17v.01",
  clock: "M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17zM12 7.5V12l3 2",
  question: "M9 9a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.2-1.5 2.4M12 17v.01M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z",
  shield: "M12 3.5l7.5 3v5c0 5-3.5 8-7.5 9.5-4-1.5-7.5-4.5-7.5-9.5v-5z",
  delete: "M5 7h14M10 7V4.5h4V7M7 7l1 13h8l1-13",
  thought: "M12 4a7 7 0 0 0-4 12.7V19h8v-2.3A7 7 0 0 0 12 4zM9.5 21.5h5",
  file: "M6.5 3.5h7l4 4v13h-11zM13 3.5V8h4.5",
  edit: "M4.5 19.5l1-4L16 5l3.5 3.5L9 19z",
};

const SVG = "http://www.w3.org/2000/svg";

/** Returns an icon, such as `icon("send")`. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  for (const [key, value] of Object.entries({
    class: "icon", viewBox: "0 0 24 24", fill: "none", stroke: "currentColor",
    "stroke-width": name === "more" ? "2.6" : "1.7", "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": "true",
  })) svg.setAttribute(key, value);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name] ?? PATHS.about);
  svg.append(path);
  return svg;
}
