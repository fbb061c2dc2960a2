// Positions in the source files for the stacks of exceptions.

import path from "node:path";

/** The digits of the numbers in a source map. */
const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/**
 * Returns the source files of a bundle, and for each line of the bundle the index of its source file and its line there.
 * `folders` contains the folder of the bundle and the folder of the SDK.
 */
export function lineTable({ code, map }, { build, sdk }) {
  const sources = map.sources.map((source) => sourceName(source, build, sdk));
  const lines = firstPositions(map.mappings).slice(0, code.split("\n").length);
  return { sources, lines: lines.map((position) => (position === undefined ? 0 : [position.source, position.line + 1])) };
}

/** Returns code for the end of a bundle. With this code, the SDK replaces positions in stacks. */
export function positionsCode(table) {
  // The table is a text until a stack is logged, because a text needs less memory.
  const json = JSON.stringify(JSON.stringify(table));
  return `\nglobalThis.__agentHostPositions = (text) => (${replacePositions})(text, JSON.parse(${json}));\n`;
}

/**
 * Replaces positions in the bundle `plugin.js` by positions in the source files. Leaves out the frames of functions that
 * only run promises. The bundle contains this function, so it uses nothing outside of itself.
 */
export function replacePositions(text, { sources, lines }) {
  const replaced = text.split("\n").flatMap((frame) => {
    if (/ \(native\)$/.test(frame)) return [];
    const [place, line] = /\/plugin\.js:(\d+)(?::\d+)?/.exec(frame) ?? [];
    if (place === undefined) return [frame];
    const [source, sourceLine] = lines[line - 1] || [];
    return sources[source] ? [frame.replace(place, `${sources[source]}:${sourceLine}`)] : [];
  });
  return replaced.join("\n");
}

/** Returns the name of a source for stacks, or null if its frames are left out. */
function sourceName(source, build, sdk) {
  if (source.includes("\0") || source.includes("@oxc-project")) return null;
  const file = path.resolve(build, source);
  const inSdk = path.relative(sdk, file);
  if (inSdk.startsWith("..")) return path.relative(process.cwd(), file);
  return inSdk.endsWith("promise.js") ? null : `agent-host-sdk/${inSdk.replaceAll(path.sep, "/")}`;
}

/** Decodes a source map. Returns the first position of each line of the bundle, or undefined for lines without one. */
function firstPositions(mappings) {
  const position = { source: 0, line: 0 };
  return mappings.split(";").map((segments) => {
    let first;
    for (const segment of segments.split(",").filter((text) => text !== "")) {
      const [, source, line] = numbers(segment);
      if (source === undefined) continue;
      position.source += source;
      position.line += line;
      first ??= { ...position };
    }
    return first;
  });
}

/** Decodes the numbers of a segment. Each has groups of five bits, lowest first, and its lowest bit is the sign. */
function numbers(segment) {
  const found = [];
  let value = 0;
  let shift = 0;
  for (const character of segment) {
    const digit = DIGITS.indexOf(character);
    value |= (digit & 31) << shift;
    shift += 5;
    if (digit < 32) {
      found.push(value & 1 ? -(value >> 1) : value >> 1);
      value = shift = 0;
    }
  }
  return found;
}
