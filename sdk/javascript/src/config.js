// Settings that the agent grants to the plugin. The manifest must request each key: `[asks] config = ["KEY"]`.

import * as host from "#host/config";

/** Returns the value of a setting, or undefined if it has no value or is not granted. */
export function get(key) {
  return host.get(key) ?? undefined;
}

/** Returns all granted settings. */
export function getAll() {
  return Object.fromEntries(host.getAll());
}
