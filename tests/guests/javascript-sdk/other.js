// Another module of the plugin, with syntax that the build rewrites.

class Counter {
  #count = 0;

  async *numbers() {
    while (this.#count < 3) yield (this.#count += 1);
  }
}

/** Returns what promises, async generators and `Array.fromAsync` result in. */
export async function asyncResults() {
  const numbers = [];
  for await (const number of new Counter().numbers()) numbers.push(number);
  const any = await Promise.any([Promise.reject(new Error("no")), Promise.resolve(5)]);
  const settled = await Promise.allSettled([Promise.reject(1), 2]);
  const race = await Promise.race([new Promise(() => {}), 3]);
  return { numbers, any, settled: settled.map(({ status }) => status), race, list: await Array.fromAsync([1, Promise.resolve(2)]) };
}

/** Throws an exception after some calls. */
export async function fail(depth) {
  await null;
  if (depth > 0) return await fail(depth - 1);
  throw new RangeError("too deep");
}
