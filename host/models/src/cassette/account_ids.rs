//! Removes the ids of accounts from recorded bodies.

/// Beginnings of ids that identify an account, an organization, a project or a user at a provider.
const PREFIXES: [&str; 6] = ["org-", "org_", "proj_", "user-", "acct_", "account-"];

/// Minimum number of characters after the prefix of an id. Shorter words, such as `user-name`, are not ids.
const MIN_LENGTH: usize = 12;

/// Replaces the ids of accounts, such as `org-AbCdEf0123456789`, by `org-(removed)`.
pub(super) fn remove(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((position, prefix)) = next_prefix(rest) {
        let after = position + prefix.len();
        let is_id = |character: char| character.is_ascii_alphanumeric();
        let length = rest[after..].find(|character| !is_id(character)).unwrap_or(rest.len() - after);
        let begins_word = !rest[..position].ends_with(is_id);
        let id = &rest[after..after + length];
        cleaned.push_str(&rest[..after]);
        if begins_word && length >= MIN_LENGTH && id.bytes().any(|byte| byte.is_ascii_digit()) {
            cleaned.push_str("(removed)");
        } else {
            cleaned.push_str(id);
        }
        rest = &rest[after + length..];
    }
    cleaned.push_str(rest);
    cleaned
}

fn next_prefix(text: &str) -> Option<(usize, &'static str)> {
    PREFIXES.into_iter().filter_map(|prefix| Some((text.find(prefix)?, prefix))).min()
}

#[cfg(test)]
mod tests {
    use super::remove;

    /// M4, row 16: ids of accounts are removed, and other words stay.
    #[test]
    fn m4_account_ids_are_removed() {
        let cases = [
            ("{\"organization\":\"org-AbCdEf0123456789\"}", "{\"organization\":\"org-(removed)\"}"),
            ("proj_0123456789abc and user-9f8e7d6c5b4a3", "proj_(removed) and user-(removed)"),
            ("a user-friendly org-chart of proj_management", "a user-friendly org-chart of proj_management"),
            ("cyborg-AbCdEf0123456789", "cyborg-AbCdEf0123456789"),
            ("org-", "org-"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(remove(text), expected);
        }
    }
}
