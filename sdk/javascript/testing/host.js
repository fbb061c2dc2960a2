// The state of the host that plugin code calls in tests.

/** What a host without grants has. */
export function emptyState() {
  return {
    config: new Map(),
    /** The answers of the network by method and address. */
    answers: new Map(),
    /** The requests that were sent, oldest first. */
    requests: [],
    /** The log lines, oldest first: `{ level, message }`. */
    log: [],
    /** The values of each bucket, or undefined if storing values is not granted. */
    buckets: undefined,
    trees: [],
    modelAnswers: [],
    questions: [],
    media: new Map(),
  };
}

let current = emptyState();

/** Returns the state of the host that runs now. */
export function state() {
  return current;
}

/** Calls the function with this state, and then restores the previous state. */
export async function withState(next, call) {
  const previous = current;
  current = next;
  try {
    return await call();
  } finally {
    current = previous;
  }
}

