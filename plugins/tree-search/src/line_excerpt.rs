//! Shortens a long line so that the match in the line stays visible.

/// Returns the line, or at most `limit` bytes of it. A long line is cut so that the excerpt contains the byte offset
/// `position`, which must be the start of a character. `…` marks each end that was cut, and is not counted.
pub(crate) fn excerpt(line: &str, position: usize, limit: usize) -> String {
    if line.len() <= limit {
        return line.to_owned();
    }
    let start = match position < limit * 3 / 4 {
        true => 0,
        false => line.ceil_char_boundary((position - limit / 4).min(line.len() - limit)),
    };
    let end = line.floor_char_boundary((start + limit).min(line.len()));
    let (before, after) = (if start > 0 { "…" } else { "" }, if end < line.len() { "…" } else { "" });
    format!("{before}{}{after}", &line[start..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_match_in_the_excerpt() {
        assert_eq!(excerpt("short", 3, 5), "short");
        assert_eq!(excerpt("0123456789", 2, 8), "01234567…");
        assert_eq!(excerpt("0123456789", 8, 8), "…23456789");
        assert_eq!(excerpt("0123456789abcdefgh", 10, 4), "…9abc…");
        for limit in 1..12 {
            for (position, _) in "äöüßéñ€漢字".char_indices() {
                let cut = excerpt("äöüßéñ€漢字", position, limit);
                assert!(cut.replace('…', "").len() <= limit, "{limit} {position} {cut}");
            }
        }
    }
}
