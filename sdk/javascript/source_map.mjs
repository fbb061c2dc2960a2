// Positions in the source files for the stacks of exceptions.

import path from "node:path";

/** The digits of the numbers in a source map. */
const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/**
 * Returns code for the end of a bundle. It replaces positions in the bundle by positions in the source files, and leaves
 * out the functions that only run promises.
 */
export function lineTable({ code, map }, { build, bundle, sdk }) {
  const sources = map.sources.map((source) => sourceName(source, build, sdk));
  const lines = firstPositions(map.mappings).slice(0, code.split("\n").length);
  const table = lines.map((position) => (position === undefined ? 0 : [position.source, position.line + 1]));
  return `
globalThis.__agentHostPositions = ((sources, lines) => (stack) => stack.split("\\n").flatMap((frame) => {
	if (/ \\(native\\)$/.test(frame)) return [];
	const [place, line] = /\\/${bundle.replace(".", "\\.")}:(\\d+)(?::\\d+)?/.exec(frame) ?? [];
	if (place === undefined) return [frame];
	const [source, sourceLine] = lines[line - 1] || [];
	return sources[source] ? [frame.replace(place, \`\${sources[source]}:\${sourceLine}\`)] : [];
}).join("\\n"))(${JSON.stringify(sources)}, ${JSON.stringify(table)});
`;
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
