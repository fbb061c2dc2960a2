// The results of tools.

/** A finished result: content for the model, and optionally a machine-readable result. */
export class Done {
  #content = [];
  #structured;

  /** A result without content. */
  static nothing() {
    return new Done();
  }

  /** A text for the model. */
  static text(text) {
    return new Done().andText(text);
  }

  /** A JSON value for the model. */
  static json(value) {
    return new Done().andJson(value);
  }

  /** A machine-readable result, and a text for the model. */
  static structured(value, text) {
    const done = text === undefined ? new Done() : Done.text(text);
    done.#structured = serialize(value);
    return done;
  }

  /** A new media item of at most 4 MiB. For a larger item, use `media.create` and `Done.stored`. */
  static media(bytes, mimeType, name) {
    return new Done().andMedia(bytes, mimeType, name);
  }

  /** A media item that this session has already stored, by its digest. */
  static stored(digest) {
    return new Done().andStored(digest);
  }

  /** Adds a text for the model. */
  andText(text) {
    return this.#and({ tag: "text", val: String(text) });
  }

  /** Adds a JSON value for the model. */
  andJson(value) {
    return this.#and({ tag: "json", val: serialize(value) });
  }

  /** Adds a new media item. */
  andMedia(bytes, mimeType, name) {
    return this.#and({ tag: "new-media", val: { mimeType, data: bytes, name } });
  }

  /** Adds a media item that this session has already stored. */
  andStored(digest) {
    return this.#and({ tag: "stored-media", val: digest });
  }

  /** All texts and JSON texts of the content, joined with line breaks. */
  get texts() {
    return this.#content
      .filter(({ tag }) => tag === "text" || tag === "json")
      .map(({ val }) => val)
      .join("\n");
  }

  /** The machine-readable result, or the content if it is a single JSON value, or undefined. */
  get value() {
    const [first, ...others] = this.#content;
    const json = this.#structured ?? (first?.tag === "json" && others.length === 0 ? first.val : undefined);
    return json === undefined ? undefined : JSON.parse(json);
  }

  /** The media items of the content, each with `mimeType`, `data` and `name`, or with `digest`. */
  get media() {
    return this.#content.flatMap(({ tag, val }) => {
      if (tag === "new-media") return [val];
      return tag === "stored-media" ? [{ digest: val }] : [];
    });
  }

  /** Returns the result as the contract defines it. */
  toWit({ hasSchema } = {}) {
    // If the result is only JSON and the tool has a result schema, the JSON is the machine-readable result.
    const [first, ...others] = this.#content;
    if (hasSchema && this.#structured === undefined && first?.tag === "json" && others.length === 0) {
      return { tag: "done", val: { content: [], structured: first.val } };
    }
    return { tag: "done", val: { content: this.#content, structured: this.#structured } };
  }

  #and(content) {
    this.#content.push(content);
    return this;
  }
}

/** A request to an external service. The turn waits for the answer, which becomes the result of the call. */
export class ServiceRequest {
  constructor(eventType, data, { domain, answer, within } = {}) {
    Object.assign(this, { eventType, data, domain, answer, within });
  }

  toWit() {
    const { eventType, data, domain, answer, within } = this;
    const answerSchema = answer === undefined ? undefined : JSON.stringify(answer);
    return { tag: "pending", val: { eventType, data: serialize(data), domain, answerSchema, answerWithin: within } };
  }
}

/**
 * Requests work from an external service. `eventType` is the type of the CloudEvent, which the manifest must request.
 * The options are `domain`, which selects one of several services, `answer`, a schema of the answer, and `within`, the
 * time limit for the answer in milliseconds.
 */
export function pending(eventType, data, options) {
  return new ServiceRequest(eventType, data, options);
}

/** Converts a value that a tool has returned to a result. */
export function toOutcome(value) {
  if (value instanceof Done || value instanceof ServiceRequest) return value;
  if (value === undefined) return Done.nothing();
  return typeof value === "string" ? Done.text(value) : Done.json(value);
}

function serialize(value) {
  const text = JSON.stringify(value);
  if (text === undefined) throw new TypeError(`a ${typeof value} cannot be written as JSON`);
  return text;
}
