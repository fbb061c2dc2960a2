//! Tests how `web.fetch` converts pages and follows redirects.

use agent_host_sdk::http::Response;
use agent_host_sdk::prelude::*;
use agent_host_sdk::testing::Host;
use url::Url;
use web::Web;
use web::page::Page;

fn response(status: u16, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Response {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Response { headers: headers.collect(), ..Response::new(status, body) }
}

fn fetch(host: &mut Host, arguments: Value) -> Result<Value, ToolError> {
    let outcome = host.run(|| Web::tools().call("web.fetch", arguments))?;
    Ok(outcome.done().and_then(|done| done.value()).expect("JSON"))
}

fn page_text(html: &str) -> String {
    Page::of_html(html, &Url::parse("https://a.example/b/c").expect("an address")).text
}

#[test]
fn converts_html_to_readable_text() {
    let html = "<!doctype html><html><head><title>A &amp; B\n page</title><style>p{}</style></head><body>\
        <nav><a href=/>Home</a></nav><h1>Light<b>house</b></h1><!-- <p>no</p> -->\
        <p>First  lit\n in <i>1841</i>.<br>Since then&nbsp;on.</p><script>if (a</p>b) {}</script>\
        <ul><li>one<li>two</ul><table><tr><th>k<td>v<tr><td>a<td>b</table><pre>x\n  y</pre>\
        <img src=x alt=\"a > b\"><a href='d?e=1&amp;f=2#g'>next</a> 1 < 2 &unknown; &#x41;</body></html>";
    let page = Page::of_html(html, &Url::parse("https://a.example/b/c").expect("an address"));
    assert_eq!(page.title, "A & B page");
    let expected = "# Lighthouse\n\nFirst lit in 1841.\nSince then on.\n\n- one\n- two\n\nk | v\na | b\n\nx\n  y\n\n\
                    [a > b]next 1 < 2 &unknown; A";
    assert_eq!(page.text, expected);
    let links: Vec<_> = page.links.iter().map(|link| (link.text.as_str(), link.url.as_str())).collect();
    assert_eq!(links, [("next", "https://a.example/b/d?e=1&f=2")]);
}

#[test]
fn reads_invalid_html() {
    for (html, expected) in [
        ("", ""),
        ("<", "<"),
        ("<p", ""),
        ("a<b", "a"),
        ("<p>a</div><p>b", "a\n\nb"),
        ("a<script>b", "a"),
        ("a<!-- b", "a"),
        ("<a href=", ""),
        ("<a = = href='x>y", ""),
        ("<p title='>'>x", "x"),
        ("&", "&"),
        ("&#xD800;&#0;&#99999999;", "&#xD800;&#0;&#99999999;"),
        ("<é>ü", "<é>ü"),
    ] {
        assert_eq!(page_text(html), expected, "{html}");
    }
}

#[test]
fn returns_long_text_in_parts() {
    let page = response(200, &[("content-type", "text/plain")], "äbcdef");
    let host = &mut Host::new().response("https://a.example/", page);
    let first = fetch(host, json!({"url": "https://a.example", "limit": 4})).expect("a page");
    assert_eq!((&first["text"], &first["next_offset"]), (&json!("äbcd"), &json!(4)));
    let second = fetch(host, json!({"url": "https://a.example", "offset": 4, "limit": 4})).expect("a page");
    assert_eq!((&second["text"], second.get("next_offset")), (&json!("ef"), None));
}

/// P6: each redirect is a separate request, and the tool follows at most three redirects.
#[test]
fn p6_requests_each_redirect_separately() {
    let redirect_to = |location: &str| response(302, &[("location", location)], "");
    let page = || response(200, &[("content-type", "text/html")], "<a href=x>y</a>");
    let host = &mut Host::new()
        .response("https://a.example/1", redirect_to("/2"))
        .response("https://a.example/2", redirect_to("//b.example/3"))
        .response("https://b.example/3", page())
        .response("https://a.example/loop", redirect_to("/loop"))
        .response("https://a.example/inside", redirect_to("http://127.0.0.1/"));
    let fetched = fetch(host, json!({"url": "https://a.example/1", "links": true})).expect("a page");
    assert_eq!(fetched["url"], "https://b.example/3");
    assert_eq!(fetched["links"][0]["url"], "https://b.example/x");
    assert_eq!(host.requests().len(), 3);
    let endless = fetch(host, json!({"url": "https://a.example/loop"})).expect_err("no page");
    assert!(matches!(&endless, ToolError::Failed(message) if message.contains("3 redirects")), "{endless:?}");
    assert_eq!(host.requests().len(), 7);
    let denied = fetch(host, json!({"url": "https://a.example/inside"})).expect_err("no page");
    assert!(matches!(&denied, ToolError::Denied(message) if message.contains("127.0.0.1")), "{denied:?}");
}

#[test]
fn rejects_types_other_than_text() {
    let png = response(200, &[("content-type", "image/png")], vec![0_u8; 9]);
    let latin = response(200, &[("content-type", "text/html; charset=ISO-8859-1")], b"<p>f\xfcr".to_vec());
    let host = &mut Host::new().response("https://a.example/p", png).response("https://a.example/l", latin);
    let error = fetch(host, json!({"url": "https://a.example/p"})).expect_err("no page");
    assert!(matches!(&error, ToolError::Failed(message) if message.contains("image/png of 9 bytes")), "{error:?}");
    assert_eq!(fetch(host, json!({"url": "https://a.example/l"})).expect("a page")["text"], "für");
    assert!(matches!(fetch(host, json!({"url": "a.example"})), Err(ToolError::InvalidArguments(_))));
}
