//! Removes the ids of accounts from recorded bodies.

use memchr::memchr2_iter;

/// Beginnings of ids that identify an account, an organization, a project or a user at a provider.
const PREFIXES: [&str; 6] = ["org-", "org_", "proj_", "user-", "acct_", "account-"];

/// Minimum number of characters after the prefix of an id. Shorter words, such as `user-name`, are not ids.
const MIN_LENGTH: usize = 12;

/// Replaces the ids of accounts, such as `org-AbCdEf0123456789`, by `org-(removed)`. Every byte is read once.
pub(super) fn remove(text: &str) -> String {
    let is_id = |character: char| character.is_ascii_alphanumeric();
    let mut cleaned = String::with_capacity(text.len());
    let mut copied = 0;
    for separator in memchr2_iter(b'-', b'_', text.as_bytes()) {
        let (before, after) = (&text[..=separator], separator + 1);
        let Some(prefix) = PREFIXES.into_iter().find(|prefix| before.ends_with(prefix)) else { continue };
        // Ignore a prefix inside an id that was already removed, and a prefix that is the end of a longer word.
        if after < copied || before[..before.len() - prefix.len()].ends_with(is_id) {
            continue;
        }
        let length = text[after..].bytes().take_while(u8::is_ascii_alphanumeric).count();
        let id = &text[after..after + length];
        if length >= MIN_LENGTH && id.bytes().any(|byte| byte.is_ascii_digit()) {
            cleaned.push_str(&text[copied..after]);
            cleaned.push_str("(removed)");
            copied = after + length;
        }
    }
    cleaned.push_str(&text[copied..]);
    cleaned
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
