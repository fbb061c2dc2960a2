import { Page, emptyView } from "../components/page.js";

class NextPage extends Page {
  render() { this.append(emptyView("inbox", "Not here yet", "This page is being written.")); }
}
customElements.define("ah-inbox", NextPage);
