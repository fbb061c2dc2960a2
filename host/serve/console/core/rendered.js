// Shows what the server has rendered: trees of a few known elements. Only the elements and properties below are ever created.

import { append, h, outside, textNodes } from "./dom.js";
import { copyButton } from "../components/json-view.js";

const PLAIN = new Set(["p", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "ul", "ol", "li", "em", "strong", "del", "code", "br", "hr", "table", "thead", "tbody", "tr", "th", "td"]);
const HIGHLIGHTS = new Set(["keyword", "string", "number", "comment", "function", "type", "name"]);

/**
 * Returns nodes for rendered blocks. The page itself has headings of the levels 1 and 2, and no level is left out, whatever the
 * text contains. `headings` is the state after the blocks before these.
 */
export function renderedBlocks(blocks, headings = { last: 2 }) {
  return blocks.map(({ node }) => rendered(node, headings));
}

/**
 * Returns a node for a rendered tree: a text, or `{ tag, children, … }`. The outermost block decides the direction of its text, so
 * that the marks of lists and quotes are on the side where their text begins.
 */
export function rendered(node, headings = { last: 2 }, isInside = false) {
  if (typeof node === "string") {
    const texts = document.createDocumentFragment();
    texts.append(...textNodes(node));
    return texts;
  }
  const children = () => (node.children ?? []).map((child) => rendered(child, headings, true));
  const dir = isInside ? null : "auto";
  switch (node.tag) {
    case "code_block": return codeBlock(node);
    case "table": return h("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" }, h("table", null, children()));
    case "a": return link(node, children());
    case "th":
    case "td": return h(node.tag, { class: ["center", "end"].includes(node.align) ? node.align : null, dir: "auto", scope: node.tag === "th" ? "col" : null }, children());
    case "ol": return h("ol", { dir, start: Number.isInteger(node.start) ? node.start : null }, children());
    case "li": {
      if (typeof node.checked !== "boolean") return h("li", null, children());
      const box = h("input", { type: "checkbox", disabled: true, checked: node.checked, "aria-label": node.checked ? "done" : "not done" });
      return h("li", { class: "task" }, box, " ", children());
    }
    case "h1": case "h2": case "h3": case "h4": case "h5": case "h6": {
      const level = Math.min(Number(node.tag[1]) + 2, headings.last + 1, 6);
      headings.last = level;
      return h(`h${level}`, { dir }, children());
    }
    default:
      if (!PLAIN.has(node.tag)) return append(document.createDocumentFragment(), children());
      return h(node.tag, ["p", "ul", "blockquote"].includes(node.tag) ? { dir } : null, children());
  }
}

/** Returns a link. Only addresses of the web and of mail are links; the address is always visible. */
function link(node, children) {
  let address;
  try {
    address = new URL(node.href);
  } catch {
    return append(document.createDocumentFragment(), children);
  }
  if (!["http:", "https:", "mailto:"].includes(address.protocol)) return append(document.createDocumentFragment(), children);
  const element = h("a", { href: address.href, title: address.href, target: "_blank", rel: "noopener noreferrer nofollow" }, children);
  // The text of the link could be taken for another address.
  return node.host ? append(document.createDocumentFragment(), [element, " ", h("span", { class: "link-host badge warn" }, "leads to ", outside(node.host, { class: "mono" }))]) : element;
}

/** Returns a block of code: `{ tag: "code_block", language, tokens: [[kind, text], …] }`. */
export function codeBlock({ language, tokens = [] }) {
  const text = tokens.map(([, piece]) => piece).join("");
  const spans = tokens.map(([kind, piece]) => (HIGHLIGHTS.has(kind) ? h("span", { class: `hl-${kind}` }, textNodes(piece)) : textNodes(piece)));
  const label = language ? `Code: ${language}` : "Code";
  return h("div", { class: "code" },
    h("header", null, outside(language || "text"), copyButton(text, "Copy the code")),
    h("pre", { tabindex: "0", "aria-label": label, role: "region" }, h("code", { dir: "ltr" }, spans)));
}

/** Returns a difference: `[{ kind: "same" | "added" | "removed" | "gap", old, new, text }, …]`. */
export function difference(lines, label = "Difference") {
  const signs = { same: " ", added: "+", removed: "−" };
  const words = { added: "added: ", removed: "removed: " };
  const rows = lines.map((line) => (line.kind === "gap"
    ? h("tr", { class: "gap" }, h("td", { colspan: "4" }, "⋯"))
    : h("tr", { class: line.kind },
      h("td", { class: "number" }, line.old ?? ""), h("td", { class: "number" }, line.new ?? ""),
      h("td", { class: "sign" }, words[line.kind] && h("span", { class: "visually-hidden" }, words[line.kind]), h("span", { "aria-hidden": "true" }, signs[line.kind])),
      h("td", { class: "outside" }, textNodes(line.text)))));
  return h("div", { class: "difference", tabindex: "0", role: "region", "aria-label": label }, h("table", null, h("tbody", null, rows)));
}
