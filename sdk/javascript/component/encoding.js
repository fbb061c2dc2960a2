// UTF-8 encoding, which QuickJS does not have. `encodeURIComponent` and `escape` are native and therefore fast.

/** The number of characters that are converted at once, so that the stack does not overflow. */
const PIECE = 8192;

export class TextEncoder {
  encoding = "utf-8";

  encode(text = "") {
    const binary = unescape(encodeURIComponent(String(text).toWellFormed()));
    const bytes = new Uint8Array(binary.length);
    for (let index = 0; index < binary.length; index += 1) bytes[index] = binary.charCodeAt(index);
    return bytes;
  }
}

export class TextDecoder {
  encoding = "utf-8";
  fatal;
  ignoreBOM;

  constructor(label = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
    if (!/^utf-?8$/i.test(label)) throw new RangeError(`the encoding \`${label}\` is not supported`);
    Object.assign(this, { fatal, ignoreBOM });
  }

  decode(input = new Uint8Array()) {
    const bytes = ArrayBuffer.isView(input)
      ? new Uint8Array(input.buffer, input.byteOffset, input.byteLength)
      : new Uint8Array(input);
    let binary = "";
    for (let start = 0; start < bytes.length; start += PIECE) {
      binary += String.fromCharCode.apply(null, bytes.subarray(start, start + PIECE));
    }
    const text = this.#decodeBinary(binary, bytes);
    return !this.ignoreBOM && text.startsWith("\ufeff") ? text.slice(1) : text;
  }

  #decodeBinary(binary, bytes) {
    try {
      return decodeURIComponent(escape(binary));
    } catch {
      if (this.fatal) throw new TypeError("the data is not valid UTF-8");
      return decodeLossy(bytes);
    }
  }
}

/** Decodes bytes one character at a time, and replaces invalid sequences by U+FFFD. */
function decodeLossy(bytes) {
  let text = "";
  for (let index = 0; index < bytes.length; ) {
    const { character, length } = characterAt(bytes, index);
    text += character;
    index += length;
  }
  return text;
}

/** Returns the character that begins at this index, and its number of bytes. */
function characterAt(bytes, index) {
  const first = bytes[index];
  if (first < 0x80) return { character: String.fromCharCode(first), length: 1 };
  const size = first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 1;
  let code = size === 1 ? 0 : first & (0x7f >> size);
  for (let offset = 1; offset < size; offset += 1) {
    const next = bytes[index + offset];
    // The second byte of some sequences has a smaller range, so that each character has one encoding.
    const low = offset > 1 ? 0x80 : { 0xe0: 0xa0, 0xf0: 0x90 }[first] ?? 0x80;
    const high = offset > 1 ? 0xbf : { 0xed: 0x9f, 0xf4: 0x8f }[first] ?? 0xbf;
    if (next === undefined || next < low || next > high) return { character: "\ufffd", length: offset };
    code = (code << 6) | (next & 0x3f);
  }
  return size === 1 ? { character: "\ufffd", length: 1 } : { character: String.fromCodePoint(code), length: size };
}
