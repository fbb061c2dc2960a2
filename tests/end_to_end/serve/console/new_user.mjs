// A person who has never seen the program does what the page shows, without documentation.
import { check, open, until } from "./browser.mjs";

/** Time from the first look at the page to the last grant, in milliseconds. */
const MOST_TIME = 120_000;

export function newUserScenarios({ browser, settings, pages }) {
  return {
    /** An answered prompt, an allowed call and a grant. Settings: `address` is what the terminal has shown. */
    async new_user() {
      const begun = Date.now();
      const page = await open(browser, settings);
      pages.push(page);
      await page.goto("about:blank");
      await page.goto(settings.address);
      const field = page.getByLabel("Prompt", { exact: true });
      await field.waitFor();
      // The person types at once, and never clicks into a field: the field for prompts always has the focus.
      const type = async (text) => {
        await until(() => field.evaluate((element) => element === document.activeElement), "the field for prompts has the focus");
        await page.keyboard.type(text);
        await page.keyboard.press("Enter");
      };
      await type("Hello.");
      await page.locator(".messages").getByText("Good morning.").waitFor();
      await page.locator(".status .cost").waitFor();
      await type("Pay Ann 3.");
      // Each card is answered with its first button, until the agent goes on.
      const answered = [];
      const reply = page.locator(".messages").getByText("I paid Ann.");
      await until(async () => {
        const card = page.locator(".waits .decision").first();
        const [title, text] = await Promise.all([card.locator("h2").innerText({ timeout: 500 }).catch(() => null), card.innerText({ timeout: 500 }).catch(() => "")]);
        if (title && !answered.includes(title)) {
          check(/payer\.pay/.test(text), `the card says what is asked for: ${text}`);
          answered.push(title);
          await card.locator("button.primary").click();
        }
        return reply.isVisible();
      }, "the call is allowed, and has what it needs");
      check(answered.some((title) => title.startsWith("Approval")) && answered.some((title) => title.startsWith("First use")), `an approval and a grant: ${answered}`);
      check(Date.now() - begun < MOST_TIME, `it took ${Date.now() - begun} ms`);
    },
  };
}
