// Keyboard shortcuts. All of them have a modifier, so that they never fire while somebody types or dictates (WCAG 2.1.4).

const shortcuts = [];

/**
 * Adds a shortcut until the signal is aborted: `shortcut("Control+K", "Search the sessions", search, { signal })`. On a Mac,
 * `Control` is the command key.
 */
export function shortcut(keys, label, run, { signal } = {}) {
  const entry = { keys, label, run };
  shortcuts.push(entry);
  signal?.addEventListener("abort", () => shortcuts.splice(shortcuts.indexOf(entry), 1), { once: true });
}

/** Returns the shortcuts of the page that is shown, for the help. */
export function currentShortcuts() {
  return shortcuts.map(({ keys, label }) => ({ keys: shownKeys(keys), label }));
}

const isMac = /Mac|iPhone|iPad/.test(navigator.platform);

/** Returns the keys as they are written on this system. */
export function shownKeys(keys) {
  return isMac ? keys.replace("Control", "⌘").replace("Alt", "⌥").replace("Shift", "⇧") : keys.replace("Control", "Ctrl");
}

function matches(event, keys) {
  const parts = keys.split("+");
  const key = parts.at(-1);
  const command = isMac ? event.metaKey : event.ctrlKey;
  return event.key.toLowerCase() === key.toLowerCase()
    && command === parts.includes("Control")
    && event.altKey === parts.includes("Alt")
    && event.shiftKey === parts.includes("Shift");
}

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) return;
  const found = shortcuts.findLast(({ keys }) => matches(event, keys));
  if (!found) return;
  event.preventDefault();
  found.run();
});
