// Files in the granted trees: directories that the agent grants to the plugin. The manifest must request them:
// `[asks] files = "read"` or `"read-write"`.

import * as host from "#host/files";
import { ToolError } from "./errors.js";

/** The maximum size of a file that is read, in bytes, unless the call sets another. */
const DEFAULT_LIMIT = 4 * 1024 * 1024;

const encoder = new TextEncoder();

/** Returns the paths of the granted trees, as they are written in the grant, for example `.` or `/home/me/docs`. */
export function trees() {
  return host.trees();
}

/** Reads a complete file of at most `atMost` bytes. */
export function read(path, { atMost = DEFAULT_LIMIT } = {}) {
  const bytes = access(path, (tree, inside) => host.read(tree, inside, atMost));
  if (bytes === undefined) throw ToolError.failed(`\`${path}\` has more than ${atMost} bytes`);
  return bytes;
}

/** Reads a complete UTF-8 text of at most `atMost` bytes. */
export function readText(path, options) {
  const bytes = read(path, options);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    const position = validLength(bytes);
    throw ToolError.failed(`\`${path}\` is not UTF-8 text: byte ${position} (from 0) is not part of a character`);
  }
}

/** Returns the number of bytes at the beginning that are complete UTF-8 characters. */
function validLength(bytes) {
  const smallest = [0, 0x80, 0x800, 0x10000];
  for (let at = 0; at < bytes.length; ) {
    const first = bytes[at];
    const more = first < 0x80 ? 0 : first < 0xc2 ? -1 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : first < 0xf5 ? 3 : -1;
    const rest = bytes.subarray(at + 1, at + 1 + more);
    if (more < 0 || rest.length < more || rest.some((byte) => (byte & 0xc0) !== 0x80)) return at;
    const code = rest.reduce((code, byte) => (code << 6) | (byte & 0x3f), more === 0 ? first : first & (0x3f >> more));
    if (code < smallest[more] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return at;
    at += more + 1;
  }
  return bytes.length;
}

/** Writes a file, and replaces it if it exists. `content` is a text or bytes. */
export function write(path, content) {
  const bytes = typeof content === "string" ? encoder.encode(content) : content;
  access(path, (tree, inside) => host.write(tree, inside, bytes));
}

/** Returns the entries of a folder, sorted by name: `{ name, isFolder }`. */
export function list(path) {
  const entries = access(path, (tree, inside) => host.list(tree, inside));
  return entries.sort((one, other) => (one.name < other.name ? -1 : 1));
}

/** Creates a folder. */
export function createFolder(path) {
  access(path, (tree, inside) => host.createFolder(tree, inside));
}

/** Removes a file or an empty folder. */
export function remove(path) {
  access(path, (tree, inside) => host.remove(tree, inside));
}

/** Calls the function with the tree that contains the path, and with the path inside this tree. */
function access(path, call) {
  const requested = normalised(path);
  const candidates = trees().map((tree) => ({ tree, parts: normalised(tree) }));
  // Without the first check, `.` would contain all absolute paths.
  const contains = ({ tree, parts }) =>
    tree.startsWith("/") === path.startsWith("/") &&
    requested !== undefined &&
    parts !== undefined &&
    parts.every((part, index) => requested[index] === part);
  // If one tree is inside another, the inner tree is used, because it may have other permissions.
  const [found] = candidates.filter(contains).sort((one, other) => other.parts.length - one.parts.length);
  if (found === undefined) {
    const names = trees().map((tree) => `\`${tree}\``).join(", ") || "no file tree is granted";
    throw ToolError.denied(`\`${path}\` is outside of the granted trees: ${names}`);
  }
  try {
    return call(found.tree, requested.slice(found.parts.length).join("/") || ".");
  } catch (thrown) {
    throw fileError(path, thrown?.payload ?? thrown) ?? thrown;
  }
}

/** Returns the parts of a path without `.` and `..`. The first part of an absolute path is empty. */
function normalised(path) {
  const parts = path.startsWith("/") ? [""] : [];
  for (const part of path.split("/")) {
    if (part === "" || part === ".") continue;
    if (part !== "..") parts.push(part);
    else if (parts.length === 0 || parts.at(-1) === "") return undefined;
    else parts.pop();
  }
  return parts;
}

function fileError(path, code) {
  switch (code) {
    case "no-entry":
      return ToolError.notFound(`there is no \`${path}\``);
    case "not-directory":
      return ToolError.notFound(`part of \`${path}\` is not a directory`);
    case "access":
    case "not-permitted":
    case "read-only":
      return ToolError.denied(
        `access to \`${path}\` was refused: it is outside its tree, or its tree is granted for reading only`,
      );
    default:
      return typeof code === "string" ? ToolError.failed(`\`${path}\`: ${code.replaceAll("-", " ")}`) : undefined;
  }
}
