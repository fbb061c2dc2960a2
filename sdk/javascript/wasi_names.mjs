// Names of standard interfaces while a component is built.
//
// To evaluate the source, jco links the component to a WASI of its own and to placeholders for all other interfaces. The
// streams of `wasi:http` would be placeholders then, but those of `wasi:io` would not, so the component could not be
// linked. These interfaces therefore have another namespace until the component is complete. Both namespaces have the same
// length, so that renaming does not move any bytes.

const PACKAGES = "(?:http|io|clocks|filesystem)";
const NAMESPACE = "wasi";
const PLACEHOLDER = "host";

/** The id of a component's section with imports. */
const IMPORT_SECTION = 10;
/** The length of a component's preamble in bytes. */
const PREAMBLE = 8;

/** Replaces the names of the interfaces in a text by their names during the build. */
export function toPlaceholders(text) {
  return text.replace(new RegExp(`\\b${NAMESPACE}:(${PACKAGES}[/@])`, "g"), `${PLACEHOLDER}:$1`);
}

/** Restores the names of the interfaces in the imports of a component. Changes the bytes of the component. */
export function restoreNames(component) {
  for (let offset = PREAMBLE; offset < component.length; ) {
    const id = component[offset];
    const { value: size, end } = unsigned(component, offset + 1);
    if (id === IMPORT_SECTION) {
      const section = component.subarray(end, end + size);
      const text = section.toString("latin1");
      for (const { index } of text.matchAll(new RegExp(`\\b${PLACEHOLDER}:${PACKAGES}/`, "g"))) {
        section.write(NAMESPACE, index, "latin1");
      }
    }
    offset = end + size;
  }
  return component;
}

/** Decodes a number in LEB128. Returns the number, and the offset of the byte behind it. */
function unsigned(bytes, offset) {
  let value = 0;
  for (let shift = 0, end = offset; ; shift += 7, end += 1) {
    value += (bytes[end] & 0x7f) * 2 ** shift;
    if (bytes[end] < 0x80) return { value, end: end + 1 };
  }
}
