// Files in the granted trees. The manifest must request them: `[asks] files = "read"` or `"read-write"`.

/** Returns the paths of the granted trees, as they are written in the grant. */
export function trees(): string[];
/** Reads a complete file of at most `atMost` bytes (by default 4 MiB). */
export function read(path: string, options?: { atMost?: number }): Uint8Array;
/** Reads a complete UTF-8 text of at most `atMost` bytes (by default 4 MiB). */
export function readText(path: string, options?: { atMost?: number }): string;
/** Writes a file, and replaces it if it exists. */
export function write(path: string, content: string | Uint8Array): void;
/** Returns the entries of a folder, sorted by name. */
export function list(path: string): { name: string; isFolder: boolean }[];
/** Creates a folder. */
export function createFolder(path: string): void;
/** Removes a file or an empty folder. */
export function remove(path: string): void;
