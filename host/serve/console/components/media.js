// Pictures and files of a session. They need the sign-in, so they are fetched and shown as `blob:` URLs.

import { api, sessionPath } from "../core/api.js";
import { h, outside } from "../core/dom.js";
import { bytes } from "../core/format.js";
import { icon } from "./icon.js";
import { notifyError } from "./notice.js";
import { openDialog } from "./dialog.js";

/** Types that browsers show without running any content of the file. */
const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

/** A picture or file of a session: `mediaView(session, media)`, where `media` is as in a message. */
export function mediaView(session, media) {
  const name = media.name || (PICTURES.has(media.mime_type) ? "picture" : "file");
  return PICTURES.has(media.mime_type) ? picture(session, media, name) : file(session, media, name);
}

function load(session, media) {
  return api.blob(sessionPath(session, "media", encodeURIComponent(media.digest)));
}

function picture(session, media, name) {
  const image = h("img", { alt: name, width: media.dimensions?.width, height: media.dimensions?.height, loading: "lazy" });
  const button = h("button", { class: "picture", type: "button", "aria-label": `Show the picture ${name}` }, image);
  let content = null;
  load(session, media).then((blob) => {
    content = blob;
    const url = URL.createObjectURL(blob);
    // The browser keeps the bytes of a URL until it is revoked. The picture stays.
    const revoke = () => URL.revokeObjectURL(url);
    image.addEventListener("load", revoke, { once: true });
    image.addEventListener("error", revoke, { once: true });
    image.src = url;
  }).catch((error) => button.replaceWith(h("p", { class: "callout bad" }, "The picture could not be loaded. ", error.message)));
  button.addEventListener("click", async () => {
    if (!content) return;
    const url = URL.createObjectURL(content);
    const size = media.dimensions ? `${media.dimensions.width} × ${media.dimensions.height}, ` : "";
    await openDialog({
      title: name,
      body: h("div", { class: "stack tight picture-dialog" }, h("img", { src: url, alt: name }), h("p", { class: "muted small" }, size, bytes(media.size))),
      actions: [{ label: "Close", kind: "primary" }],
    });
    URL.revokeObjectURL(url);
  });
  return button;
}

function file(session, media, name) {
  const save = async () => {
    try {
      saveBlob(await load(session, media), name);
    } catch (error) {
      notifyError(error);
    }
  };
  return h("button", { class: "button file", type: "button", title: media.mime_type, on: { click: save } },
    icon("file"), outside(name, { class: "cut" }), h("span", { class: "muted nowrap" }, bytes(media.size)));
}

/** Lets the browser save bytes as a file. */
export function saveBlob(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Returns a picture that was chosen, but not sent yet. */
export function chosenPicture(attachment) {
  return h("img", { src: attachment.url, alt: "" });
}

