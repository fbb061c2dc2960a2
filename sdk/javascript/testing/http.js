// Answers the SDK's module `http` in tests, from the state of the current `TestHost`.

import { state } from "./host.js";

export async function send({ method, url, headers, body, atMost }) {
  state().requests.push({ method, url, headers: Object.fromEntries(headers), body: new TextDecoder().decode(body) });
  const answer = state().answers.get(`${method} ${url}`);
  if (answer === undefined) throw { tag: "HTTP-request-denied" };
  if (answer.error !== undefined) throw { tag: answer.error };
  if (answer.bytes.length > atMost) throw { tag: "HTTP-response-body-size", val: atMost };
  return answer;
}
