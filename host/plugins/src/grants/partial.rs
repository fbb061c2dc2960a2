//! Finds the needs of a manifest that the grants cover only in part (P6).

use super::manifest::{Access, Manifest};
use super::{GrantAdvice, Grants, Need, files_advice, http_denied, http_pattern, model_denied};

/// A need that the grants cover only in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialGrant {
    /// The need as it is written in the manifest.
    pub need: Need,
    /// Description for users, for example `reading and writing files`.
    pub thing: String,
    /// Description of the granted part for users, for example `reading`.
    pub part: String,
    /// Advice on how to grant the whole need.
    pub advice: GrantAdvice,
}

/// The needs of a manifest that are granted only in part. Only three kinds of needs can be granted in part: files,
/// requests and model tokens.
pub(crate) fn partial_grants(manifest: Option<&Manifest>, grants: &Grants) -> Vec<PartialGrant> {
    let Some(manifest) = manifest else { return Vec::new() };
    let (plugin, asks) = (manifest.name.as_str(), &manifest.asks);
    let reads = grants.trees.iter().any(|tree| tree.access == Access::Read);
    let writes = grants.trees.iter().any(|tree| tree.access == Access::ReadWrite);
    let files = asks.files.filter(|asked| *asked == Access::ReadWrite && reads && !writes).map(|asked| {
        let unmet = files_advice(plugin, asked);
        PartialGrant { need: unmet.need, thing: unmet.thing, part: "reading".to_owned(), advice: unmet.advice }
    });
    let requests = asks.http.iter().filter_map(|text| {
        let asked = text.parse().ok()?;
        let granted = http_pattern::within(&grants.http, std::slice::from_ref(&asked));
        if granted.is_empty() || asked.is_covered_by(&granted) {
            return None;
        }
        let (thing, advice) = http_denied(plugin, text, text);
        let part: Vec<_> = granted.iter().map(ToString::to_string).collect();
        Some(PartialGrant { need: Need::Http(text.clone()), thing, part: part.join(" and "), advice })
    });
    let model = asks.model_tokens.zip(grants.model_tokens).filter(|(asked, granted)| granted < asked);
    let model = model.map(|(asked, granted)| {
        let (thing, advice) = model_denied(plugin, Some(asked));
        let thing = format!("{thing}, {asked} tokens a turn");
        PartialGrant { need: Need::Model(asked), thing, part: format!("{granted} tokens"), advice }
    });
    files.into_iter().chain(requests).chain(model).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::TreeGrant;
    use crate::grants::manifest::Asks;

    fn parts(asks: Asks, grants: &Grants) -> Vec<String> {
        let manifest = Manifest { name: "web".to_owned(), asks, ..Manifest::default() };
        partial_grants(Some(&manifest), grants)
            .into_iter()
            .map(|partial| format!("{}: {}", partial.thing, partial.part))
            .collect()
    }

    fn requests(asked: &str, granted: &[&str]) -> Vec<String> {
        let http = granted.iter().map(|text| text.parse().expect(text)).collect();
        parts(Asks { http: vec![asked.to_owned()], ..Asks::default() }, &Grants { http, ..Grants::default() })
    }

    // P6: a grant that covers only a part of a need does not count as granting the whole need.
    #[test]
    fn p6_partial_grants_exclude_needs_met_in_full_or_not_at_all() {
        let nothing = Vec::<String>::new();
        assert_eq!(requests("GET https://*.a.example", &[]), nothing, "the whole need is denied");
        assert_eq!(
            requests("GET https://*.a.example", &["GET https://b.example"]),
            nothing,
            "the whole need is denied"
        );
        for whole in
            ["GET https://*.a.example", "https://*.a.example", "https://*:*", "private GET https://*.a.example"]
        {
            assert_eq!(requests("GET https://*.a.example", &[whole]), nothing, "{whole} grants the whole need");
        }
        assert_eq!(requests("GET,POST https://a.example", &["GET https://a.example", "POST https://*"]), nothing);
        for part in ["GET https://x.a.example", "GET https://*.x.a.example", "GET https://*.a.example/v1/"] {
            assert_eq!(
                requests("GET https://*.a.example", &[part]),
                [format!("the request GET https://*.a.example: {part}")]
            );
        }
        assert_eq!(requests("https://a.example:*", &["https://a.example"]).len(), 1, "another port is not granted");
        assert_eq!(requests("https://a.example", &["GET https://a.example"]).len(), 1, "another method is not granted");
        let tree = |access| vec![TreeGrant { host: "/srv".into(), guest: ".".to_owned(), access }];
        let files = |access| {
            let asks = Asks { files: Some(Access::ReadWrite), ..Asks::default() };
            parts(asks, &Grants { trees: tree(access), ..Grants::default() })
        };
        assert_eq!(files(Access::Read), ["reading and writing files: reading"]);
        assert_eq!(files(Access::ReadWrite), nothing);
        let tokens = |granted| {
            let asks = Asks { model_tokens: Some(500), ..Asks::default() };
            parts(asks, &Grants { model_tokens: granted, ..Grants::default() })
        };
        assert_eq!((tokens(None), tokens(Some(500))), (nothing.clone(), nothing));
        assert_eq!(tokens(Some(20)), ["asking the agent's model, 500 tokens a turn: 20 tokens"]);
    }
}
