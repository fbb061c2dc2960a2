// Promises that a plugin's component can run to their end.
//
// The host calls the functions of a plugin synchronously, and QuickJS runs the jobs of native promises only after such a
// function has returned. The build therefore rewrites async functions so that they use the global `Promise`, and this
// file replaces that global. `run` executes the jobs of these promises until the result of an async function is known.

/** Jobs that are ready to run, oldest first. */
const jobs = [];
/** Events of the host that promises wait for: `{ source, resolve }`. */
let waiting = [];
/** Waits until at least one event has occurred and returns the indices of these events. Set by `waitFor`. */
let block;

const nativeQueueMicrotask = globalThis.queueMicrotask;
let isDraining = false;

/** Runs a function after the current job, as the global function of the same name does. */
export function queueMicrotask(job) {
  jobs.push(job);
  // Code at the top level of a module may wait for a promise while the component is built. `run` is not active then,
  // but the engine runs its own jobs.
  if (jobs.length === 1 && !isDraining) nativeQueueMicrotask(drain);
}

function drain() {
  if (isDraining) return;
  isDraining = true;
  try {
    while (jobs.length > 0) jobs.shift()();
  } finally {
    isDraining = false;
  }
}

/**
 * Returns a promise that is resolved when the event of the host has occurred. `blockFunction` receives a list of event
 * sources, waits until at least one event has occurred, and returns the indices of these sources.
 */
export function waitFor(source, blockFunction) {
  block = blockFunction;
  return new Promise((resolve) => waiting.push({ source, resolve }));
}

/** Runs jobs until the promise is settled. Returns its value, or throws the reason of its rejection. */
export function run(promise) {
  let settled;
  Promise.resolve(promise).then(
    (value) => (settled = { value }),
    (reason) => (settled = { reason }),
  );
  for (;;) {
    drain();
    if (settled !== undefined) break;
    if (waiting.length === 0) {
      throw new Error("the function waits for a promise that nothing resolves");
    }
    const ready = new Set(block(waiting.map(({ source }) => source)));
    const events = waiting;
    waiting = events.filter((_, index) => !ready.has(index));
    events.filter((_, index) => ready.has(index)).forEach(({ resolve }) => resolve());
  }
  if ("reason" in settled) throw settled.reason;
  return settled.value;
}

const PENDING = 0;
const FULFILLED = 1;
const REJECTED = 2;

/** A promise as ECMAScript defines it, whose jobs `run` executes. */
export class Promise {
  #state = PENDING;
  #value;
  #reactions = [];

  constructor(executor) {
    if (typeof executor !== "function") throw new TypeError("Promise resolver is not a function");
    const { resolve, reject } = this.#resolvers();
    try {
      executor(resolve, reject);
    } catch (error) {
      reject(error);
    }
  }

  /** Returns the functions that settle this promise. Only the first call of one of them has an effect. */
  #resolvers() {
    let isResolved = false;
    const once = (settle) => (value) => {
      if (isResolved) return;
      isResolved = true;
      settle(value);
    };
    return { resolve: once((value) => this.#resolve(value)), reject: once((reason) => this.#settle(REJECTED, reason)) };
  }

  #resolve(value) {
    if (value === this) return this.#settle(REJECTED, new TypeError("a promise cannot be resolved with itself"));
    if (value === null || (typeof value !== "object" && typeof value !== "function")) {
      return this.#settle(FULFILLED, value);
    }
    let then;
    try {
      then = value.then;
    } catch (error) {
      return this.#settle(REJECTED, error);
    }
    if (typeof then !== "function") return this.#settle(FULFILLED, value);
    queueMicrotask(() => {
      const { resolve, reject } = this.#resolvers();
      try {
        then.call(value, resolve, reject);
      } catch (error) {
        reject(error);
      }
    });
  }

  #settle(state, value) {
    this.#state = state;
    this.#value = value;
    const reactions = this.#reactions;
    this.#reactions = [];
    reactions.forEach((reaction) => queueMicrotask(reaction));
  }

  then(onFulfilled, onRejected) {
    return new Promise((resolve, reject) => {
      const reaction = () => {
        const handler = this.#state === FULFILLED ? onFulfilled : onRejected;
        if (typeof handler !== "function") {
          return this.#state === FULFILLED ? resolve(this.#value) : reject(this.#value);
        }
        try {
          resolve(handler(this.#value));
        } catch (error) {
          reject(error);
        }
      };
      if (this.#state === PENDING) this.#reactions.push(reaction);
      else queueMicrotask(reaction);
    });
  }

  catch(onRejected) {
    return this.then(undefined, onRejected);
  }

  finally(onFinally) {
    if (typeof onFinally !== "function") return this.then(onFinally, onFinally);
    return this.then(
      (value) => Promise.resolve(onFinally()).then(() => value),
      (reason) =>
        Promise.resolve(onFinally()).then(() => {
          throw reason;
        }),
    );
  }

  get [Symbol.toStringTag]() {
    return "Promise";
  }

  static resolve(value) {
    return value instanceof Promise ? value : new Promise((resolve) => resolve(value));
  }

  static reject(reason) {
    return new Promise((_, reject) => reject(reason));
  }

  static withResolvers() {
    const parts = {};
    parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }));
    return parts;
  }

  static try(callback, ...args) {
    return new Promise((resolve) => resolve(callback(...args)));
  }

  static all(values) {
    return collect(values, (promise, settle, reject) => promise.then(settle, reject));
  }

  static allSettled(values) {
    const settled = (promise, settle) =>
      promise.then(
        (value) => settle({ status: "fulfilled", value }),
        (reason) => settle({ status: "rejected", reason }),
      );
    return collect(values, settled);
  }

  static any(values) {
    return new Promise((resolve, reject) => {
      const rejections = collect(values, (promise, settle) => promise.then(resolve, settle));
      rejections.then((errors) => reject(new AggregateError(errors, "All promises were rejected")), reject);
    });
  }

  static race(values) {
    return new Promise((resolve, reject) => {
      for (const value of values) Promise.resolve(value).then(resolve, reject);
    });
  }
}

/** Returns a promise for the list of the values that `watch` reports for each promise, in the order of the promises. */
function collect(values, watch) {
  return new Promise((resolve, reject) => {
    const promises = Array.from(values, (value) => Promise.resolve(value));
    const results = new Array(promises.length);
    let open = promises.length;
    if (open === 0) resolve(results);
    promises.forEach((promise, index) => {
      const settle = (value) => {
        results[index] = value;
        open -= 1;
        if (open === 0) resolve(results);
      };
      watch(promise, settle, reject);
    });
  });
}

/** Collects the values of an iterable, which may contain promises, or of an async iterable. */
async function fromAsync(items, map = (item) => item) {
  const list = [];
  for await (const item of items) list.push(await map(item, list.length));
  return list;
}

// Async functions, which the build rewrites, use these globals.
Object.assign(globalThis, { Promise, queueMicrotask });
Object.defineProperty(Array, "fromAsync", { value: fromAsync, writable: true, configurable: true });
