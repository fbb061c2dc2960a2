// Answers the SDK's module `files` in tests, from the state of the current `TestHost`.

import fs from "node:fs";
import path from "node:path";
import { state } from "./host.js";

/** The names that `wasi:filesystem` gives to the errors of the operating system. */
const CODES = { ENOENT: "no-entry", ENOTDIR: "not-directory", EISDIR: "is-directory", EACCES: "access", EEXIST: "exist" };

export const trees = () => state().trees;

export function read(tree, inside, atMost) {
  const bytes = attempt(() => fs.readFileSync(path.join(tree, inside)));
  return bytes.length > atMost ? undefined : new Uint8Array(bytes);
}

export function write(tree, inside, bytes) {
  attempt(() => fs.writeFileSync(path.join(tree, inside), bytes));
}

export function list(tree, inside) {
  const entries = attempt(() => fs.readdirSync(path.join(tree, inside), { withFileTypes: true }));
  return entries.map((entry) => ({ name: entry.name, isFolder: entry.isDirectory() }));
}

export function createFolder(tree, inside) {
  attempt(() => fs.mkdirSync(path.join(tree, inside)));
}

export function remove(tree, inside) {
  const target = path.join(tree, inside);
  attempt(() => (fs.statSync(target).isDirectory() ? fs.rmdirSync(target) : fs.unlinkSync(target)));
}

function attempt(call) {
  try {
    return call();
  } catch (error) {
    throw CODES[error.code] ?? error;
  }
}
