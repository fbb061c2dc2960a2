import { Page, emptyView } from "../components/page.js";

class NextPage extends Page {
  render() { this.append(emptyView("chat", "Not here yet", "This page is being written.")); }
}
customElements.define("ah-chat", NextPage);
