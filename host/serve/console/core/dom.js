// Creates elements. Strings always become text, never markup.

/**
 * Creates an element: `h("button", { class: "button", type: "button", on: { click } }, "Send")`. A property that is `null`,
 * `undefined` or `false` is left out, and `true` is an empty attribute. Children are nodes, texts, lists, or nothing.
 */
export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (name === "value") {
      element.value = value;
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  append(element, children);
  return element;
}

/** Appends nodes and texts to an element. */
export function append(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** Replaces the content of an element. */
export function fill(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

// Controls, format characters and separators, except line breaks, tabs, and the joiners and selectors that scripts and emoji need.
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u115f\u1160\u2800\u3164\uffa0]/gu;
const KEPT = new Set(["\n", "\t", "\u200c", "\u200d"]);

/**
 * Returns nodes for a text from outside. Characters that are invisible, or that change the order of the text around them, are
 * shown as their numbers, so that a text cannot look like another one.
 */
export function textNodes(text) {
  const source = String(text).replaceAll("\r\n", "\n");
  const nodes = [];
  let from = 0;
  for (const match of source.matchAll(INVISIBLE)) {
    if (KEPT.has(match[0])) continue;
    if (match.index > from) nodes.push(document.createTextNode(source.slice(from, match.index)));
    const code = `U+${match[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
    nodes.push(h("span", { class: "invisible", title: "An invisible character" }, code));
    from = match.index + match[0].length;
  }
  if (from < source.length) nodes.push(document.createTextNode(source.slice(from)));
  return nodes;
}

/** Appends a piece of a text from outside. Many pieces become one node. */
export function appendText(element, piece) {
  const nodes = textNodes(piece);
  const last = element.lastChild;
  if (last instanceof Text && nodes[0] instanceof Text) last.appendData(nodes.shift().data);
  element.append(...nodes);
}

/** Returns an element with a text from outside. */
export function outside(text, properties = {}, tag = "span") {
  const { class: names = "", ...others } = properties;
  return h(tag, { class: `outside ${names}`.trim(), dir: "auto", ...others }, textNodes(text));
}

/** Shortens a text to one line of at most `length` characters. */
export function shorten(text, length) {
  const line = String(text).slice(0, length * 4).replace(/\s+/g, " ").trim();
  const characters = [...line];
  return characters.length > length ? `${characters.slice(0, length - 1).join("")}…` : line;
}

let lastId = 0;

/** Returns an id that no other element has. */
export function uniqueId(prefix) {
  lastId += 1;
  return `${prefix}-${lastId}`;
}

/** Tells something to people who use a screen reader. */
export function announce(text) {
  const region = document.getElementById("announcements");
  if (!region) return;
  region.textContent = "";
  // A region that is filled in the same moment as it is emptied is not read again.
  setTimeout(() => { region.textContent = text; }, 50);
}
