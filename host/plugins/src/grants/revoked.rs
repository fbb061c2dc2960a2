//! Finds the grants that were revoked from a plugin, so that the user is asked only whether to restore these grants
//! (P10, row 48).

use super::{Grants, http_pattern, intersect_trees};

impl Grants {
    /// Returns all grants of `self` that belong to a revoked kind. A kind of grants is revoked if `now` grants less of
    /// that kind than `self`.
    #[must_use]
    pub fn revoked_by(&self, now: &Grants) -> Grants {
        let keeps_trees = intersect_trees(&self.trees, &now.trees) == self.trees;
        let keeps_http = self.http.iter().all(|pattern| pattern.is_covered_by(&now.http));
        let keeps_env = self.env.keys().all(|name| now.env.contains_key(name));
        let keeps_config = self.config.keys().all(|key| now.config.contains_key(key));
        let all_if = |is_lost: bool, lost: Option<u64>| if is_lost { lost } else { None };
        Grants {
            trees: if keeps_trees { Vec::new() } else { self.trees.clone() },
            http: if keeps_http { Vec::new() } else { self.http.clone() },
            env: if keeps_env { Default::default() } else { self.env.clone() },
            config: if keeps_config { Default::default() } else { self.config.clone() },
            key_value: all_if(now.key_value < self.key_value, self.key_value),
            model_tokens: all_if(now.model_tokens < self.model_tokens, self.model_tokens),
            events: if self.events.is_subset(&now.events) { Default::default() } else { self.events.clone() },
            media: self.media && !now.media,
            ..Grants::default()
        }
    }

    /// Returns `self` without the kinds of grants that occur in `others`.
    #[must_use]
    pub fn without_kinds_of(self, others: &Grants) -> Grants {
        let mut remaining = self;
        if !others.trees.is_empty() {
            remaining.trees.clear();
        }
        if !others.http.is_empty() {
            remaining.http.clear();
        }
        if !others.env.is_empty() {
            remaining.env.clear();
        }
        if !others.config.is_empty() {
            remaining.config.clear();
        }
        if !others.events.is_empty() {
            remaining.events.clear();
        }
        remaining.media &= !others.media;
        remaining.key_value = remaining.key_value.filter(|_| others.key_value.is_none());
        remaining.model_tokens = remaining.model_tokens.filter(|_| others.model_tokens.is_none());
        remaining
    }
}

impl http_pattern::HttpPattern {
    /// Returns the parts of this pattern that are granted by the patterns in `patterns`.
    pub fn narrowed_to(&self, patterns: &[http_pattern::HttpPattern]) -> Vec<http_pattern::HttpPattern> {
        http_pattern::within(patterns, std::slice::from_ref(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::TreeGrant;
    use crate::grants::manifest::Access;

    // Row 48: all grants of a revoked kind are returned, and grants of other kinds are not returned.
    #[test]
    fn row_48_revoked_grants_are_found_by_kind() {
        let tree = |access| TreeGrant { host: "/srv/docs".into(), guest: "docs".to_owned(), access };
        let http = |text: &str| vec![text.parse().expect("a pattern")];
        let before = Grants {
            trees: vec![tree(Access::ReadWrite)],
            http: http("https://a.example"),
            key_value: Some(10),
            ..Grants::default()
        };
        assert_eq!(before.revoked_by(&before), Grants::default());
        let less = Grants { trees: vec![tree(Access::Read)], ..before.clone() };
        assert_eq!(before.revoked_by(&less), Grants { trees: before.trees.clone(), ..Grants::default() });
        let none = before.revoked_by(&Grants::default());
        assert_eq!(none, before);
        assert_eq!(
            before.clone().without_kinds_of(&Grants { key_value: Some(1), ..Grants::default() }).key_value,
            None
        );
        let asked: http_pattern::HttpPattern = "https://*".parse().expect("a pattern");
        let narrowed: Vec<String> = asked.narrowed_to(&before.http).iter().map(ToString::to_string).collect();
        assert_eq!(narrowed, ["https://a.example"]);
    }
}
