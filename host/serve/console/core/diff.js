// Reads unified diffs of the API.

/** Returns the lines of a unified diff, as `difference` in rendered.js shows them. */
export function diffLines(diff) {
  const lines = [];
  let [before, after] = [0, 0];
  for (const line of diff.split("\n").slice(2)) {
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(line);
    const text = line.slice(1);
    if (hunk) {
      if (lines.length > 0 || Number(hunk[1]) > 1) lines.push({ kind: "gap" });
      [before, after] = [Number(hunk[1]), Number(hunk[2])];
    } else if (line.startsWith("+")) {
      lines.push({ kind: "added", new: after, text });
      after += 1;
    } else if (line.startsWith("-")) {
      lines.push({ kind: "removed", old: before, text });
      before += 1;
    } else if (line.startsWith(" ")) {
      lines.push({ kind: "same", old: before, new: after, text });
      before += 1;
      after += 1;
    }
  }
  return lines;
}
