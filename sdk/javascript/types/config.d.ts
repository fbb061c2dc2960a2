// Settings that the agent grants to the plugin. The manifest must request each key: `[asks] config = ["KEY"]`.

/** Returns the value of a setting, or undefined if it has no value or is not granted. */
export function get(key: string): string | undefined;
/** Returns all granted settings. */
export function getAll(): { [key: string]: string };
