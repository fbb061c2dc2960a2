// What the scenarios share: a browser, a signed-in page, and checks. A page that reports an error, or that the policy of the
// server stops, fails its scenario.
import { createRequire } from "node:module";

const require = createRequire(`${process.cwd()}/`);
const { chromium } = require("playwright-core");

export const ARGUMENTS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

/** Time that a scenario waits for something that must happen, in milliseconds. */
export const PATIENCE = 60_000;

export async function launch({ chromium: executablePath, libraries }) {
  const env = { ...process.env, LD_LIBRARY_PATH: libraries };
  return chromium.launch({ executablePath, args: ARGUMENTS, env });
}

/** Opens a page of the console. `problems` collects errors of the page and of its scripts. */
export async function open(browser, { url, width = 1440, height = 900, theme = "light" }) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, reducedMotion: "reduce" });
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(`error: ${error.stack ?? error}`));
  page.on("console", (message) => {
    // The browser reports each answer with an error status; the page shows them itself.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) page.problems.push(message.text());
  });
  page.on("request", (request) => {
    const { protocol, origin } = new URL(request.url());
    if (["http:", "https:"].includes(protocol) && origin !== new URL(url).origin) page.problems.push(`a request to ${request.url()}`);
  });
  page.on("response", (response) => {
    if (new URL(response.url()).pathname.startsWith("/console/") && response.status() >= 400) page.problems.push(`no file ${response.url()}`);
  });
  await page.goto(`${url}/console/`);
  return page;
}

export async function signIn(page, token) {
  await page.getByLabel("Token", { exact: true }).fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("navigation", { name: "Pages" }).waitFor();
}

/** Opens a page and signs in. */
export async function enter(browser, settings, options = {}) {
  const page = await open(browser, { url: settings.url, ...options });
  await signIn(page, options.token ?? settings.token);
  return page;
}

/** The agent whose scripted replies belong to a prompt. */
const AGENTS = {
  "Show me everything.": "everything", "Pay ann.": "payer", "Ask me.": "asker", "Count slowly.": "slow", "What is this?": "seer",
  "Look at this.": "victim", "Fail.": "failer", "Talk.": "talker",
  "Chat with me.": "chatter", "Write a novel.": "novelist", "Write long words.": "writer", "Count the lines.": "counter",
};

/** Chooses the agent for a prompt in the form for a new session. */
export async function choose(page, prompt) {
  await page.getByLabel("Agent", { exact: true }).selectOption(AGENTS[prompt]);
}

/** Begins a session with a prompt, and waits until its page is shown. */
export async function begin(page, prompt) {
  await page.goto(`${page.url().split("#")[0]}#/chat/new`);
  await choose(page, prompt);
  await page.getByLabel("Prompt", { exact: true }).fill(prompt);
  await page.getByRole("button", { name: "Send" }).click();
  await page.waitForURL(/#\/chat\/.+%2F.+/);
  return decodeURIComponent(page.url().split("#/chat/")[1]);
}

/** Waits until the turn has ended. */
export async function ended(page) {
  await page.locator(".status .cost, .status .callout").first().waitFor();
}

export function check(condition, text) {
  if (!condition) throw new Error(text);
}

/** Checks again and again until a function returns something. */
export async function until(ask, text) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const found = await ask();
    if (found) return found;
    if (Date.now() > end) throw new Error(`this did not happen: ${text}`);
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}
