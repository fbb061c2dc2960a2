// Measures the web console in a browser: how soon a long session is shown, how many frames are drawn while a reply streams, and
// whether the page's memory grows. Prints one JSON object for each measurement.
import { enter, launch } from "../../end_to_end/serve/console/browser.mjs";

const settings = JSON.parse(process.argv[2]);
const print = (measured) => process.stdout.write(`${JSON.stringify(measured)}\n`);
const address = (session) => `${settings.url}/console/#/chat/${encodeURIComponent(session)}`;

/** Returns the time from the beginning of the navigation until the messages are drawn, in milliseconds. */
async function firstPaint(page) {
  await page.reload({ waitUntil: "commit" });
  return page.evaluate((text) => new Promise((resolve) => {
    const look = () => {
      const messages = document.querySelectorAll(".message");
      const isShown = [...messages].some((message) => message.textContent.includes(text));
      // The frame after the next one begins when the messages are on the screen.
      if (isShown) requestAnimationFrame(() => setTimeout(() => resolve(performance.now()), 0));
      else requestAnimationFrame(look);
    };
    look();
  }), settings.last);
}

/** Returns the times between frames while a reply streams, in milliseconds. */
async function frames(page, seconds) {
  return page.evaluate((duration) => new Promise((resolve) => {
    const times = [];
    const end = performance.now() + duration;
    let last = performance.now();
    const frame = (now) => {
      times.push(now - last);
      last = now;
      if (now < end) requestAnimationFrame(frame);
      else resolve(times.slice(1));
    };
    requestAnimationFrame(frame);
  }), seconds * 1_000);
}

/** Returns the memory that the page's scripts hold, after a garbage collection. */
async function memory(page) {
  const client = await page.context().newCDPSession(page);
  await client.send("HeapProfiler.collectGarbage");
  await client.send("Performance.enable");
  const { metrics } = await client.send("Performance.getMetrics");
  const value = (name) => metrics.find((metric) => metric.name === name).value;
  await client.detach();
  return { bytes: value("JSHeapUsedSize"), nodes: value("Nodes"), listeners: value("JSEventListeners") };
}

const browser = await launch(settings);
try {
  const page = await enter(browser, settings);
  await page.goto(address(settings.long));
  await page.locator(".message.person").first().waitFor();
  const messages = await page.locator(".message:not([hidden])").count();
  for (let sample = 0; sample < settings.paints; sample += 1) print({ paint: await firstPaint(page), messages });

  await page.goto(address(settings.streaming));
  await page.getByText("token100 ", { exact: false }).first().waitFor();
  for (const time of await frames(page, settings.frame_seconds)) print({ frame: time });
  for (let minute = 0; minute <= settings.minutes; minute += 1) {
    print({ minute, ...await memory(page) });
    if (minute < settings.minutes) await page.waitForTimeout(60_000);
  }
  if (page.problems.length > 0) throw new Error(page.problems.join("\n"));
} finally {
  await browser.close();
}
