// Reads and writes files through `wasi:filesystem`. All handles are dropped, also after an error.

import { getDirectories } from "wasi:filesystem/preopens@0.2.0";

/** The size of a piece that is read or written at once. */
const PIECE = 64 * 1024;

const FOLLOW = { symlinkFollow: true };

export function trees() {
  return getDirectories().map(([descriptor, name]) => {
    drop(descriptor);
    return name;
  });
}

/** Returns the bytes of the file, or undefined if there are more than `atMost`. */
export function read(tree, path, atMost) {
  return withFile(tree, path, { open: {}, access: { read: true } }, (file) => {
    const chunks = [];
    let length = 0;
    for (let isEnd = false; !isEnd; ) {
      const [chunk, end] = file.read(PIECE, length);
      length += chunk.length;
      if (length > atMost) return undefined;
      chunks.push(chunk);
      isEnd = end || chunk.length === 0;
    }
    const bytes = new Uint8Array(length);
    chunks.reduce((offset, chunk) => (bytes.set(chunk, offset), offset + chunk.length), 0);
    return bytes;
  });
}

export function write(tree, path, bytes) {
  withFile(tree, path, { open: { create: true, truncate: true }, access: { write: true } }, (file) => {
    for (let offset = 0; offset < bytes.length; ) {
      offset += Number(file.write(bytes.subarray(offset, offset + PIECE), offset));
    }
  });
}

export function list(tree, path) {
  return withFile(tree, path, { open: { directory: true }, access: { read: true } }, (folder) => {
    const stream = folder.readDirectory();
    try {
      const entries = [];
      for (let entry = stream.readDirectoryEntry(); entry !== null; entry = stream.readDirectoryEntry()) {
        entries.push({ name: entry.name, isFolder: entry.type === "directory" });
      }
      return entries;
    } finally {
      drop(stream);
    }
  });
}

export function createFolder(tree, path) {
  withTree(tree, (folder) => folder.createDirectoryAt(path));
}

export function remove(tree, path) {
  withTree(tree, (folder) => {
    try {
      folder.unlinkFileAt(path);
    } catch (thrown) {
      if ((thrown?.payload ?? thrown) !== "is-directory") throw thrown;
      folder.removeDirectoryAt(path);
    }
  });
}

function withTree(tree, call) {
  const directories = getDirectories();
  try {
    return call(directories.find(([, name]) => name === tree)[0]);
  } finally {
    directories.forEach(([descriptor]) => drop(descriptor));
  }
}

function withFile(tree, path, { open, access }, call) {
  return withTree(tree, (folder) => {
    const file = folder.openAt(FOLLOW, path, open, access);
    try {
      return call(file);
    } finally {
      drop(file);
    }
  });
}

function drop(resource) {
  resource[Symbol.dispose]?.();
}
