//! Finds the known word that is most similar to a misspelled word, for suggestions in error messages.

/// Returns the word in `words` that is most similar to `misspelled`, or None if no word is similar enough. If no word has a
/// similar spelling, returns the only word that `misspelled` abbreviates, such as `plugin_directory` for `plugins_dir`.
pub fn nearest<'w>(misspelled: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let normalize = |text: &str| text.to_lowercase().replace('-', "_");
    let misspelled = normalize(misspelled);
    let max_distance = misspelled.chars().count().div_ceil(3).min(3);
    let words: Vec<&str> = words.into_iter().collect();
    // A word with a length that is too different is not compared, because the comparison takes long.
    let length = misspelled.chars().count();
    let comparable = words.iter().filter(|word| word.chars().count().abs_diff(length) <= max_distance);
    let measured = comparable.map(|word| (distance(&misspelled, &normalize(word)), *word));
    let similar = measured.filter(|(distance, _)| *distance <= max_distance).min_by_key(|(distance, _)| *distance);
    similar.map(|(_, word)| word).or_else(|| {
        let mut abbreviated = words.iter().filter(|word| is_abbreviation(&misspelled, &normalize(word)));
        abbreviated.next().copied().filter(|_| abbreviated.next().is_none())
    })
}

/// Returns whether each part of `short` is the beginning of the corresponding part of `long`, or continues it with an `s`.
fn is_abbreviation(short: &str, long: &str) -> bool {
    let (short, long): (Vec<&str>, Vec<&str>) = (short.split('_').collect(), long.split('_').collect());
    let singular = |part: &str| part.strip_suffix('s').unwrap_or(part).to_owned();
    let begins = |(short, long): (&&str, &&str)| singular(short).len() >= 3 && long.starts_with(&singular(short));
    short.len() == long.len() && short.iter().zip(&long).all(begins)
}

/// Returns the edit distance: the number of letters to add, remove, change or swap with their neighbour.
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().take(64).collect(), right.chars().take(64).collect());
    let mut rows = vec![(0..=right.len()).collect::<Vec<_>>()];
    for (i, left_letter) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, right_letter) in right.iter().enumerate() {
            let changed = rows[i][j] + usize::from(left_letter != right_letter);
            let mut best = changed.min(row[j] + 1).min(rows[i][j + 1] + 1);
            if i > 0 && j > 0 && *left_letter == right[j - 1] && left[i - 1] == *right_letter {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_similar_words_only() {
        let words = ["model", "validators", "max_interactions", "at_limit", "name", "plugin_directory"];
        let cases = [
            ("modle", Some("model")),
            ("Model", Some("model")),
            ("max-interactions", Some("max_interactions")),
            ("max_interaction", Some("max_interactions")),
            ("validator", Some("validators")),
            ("plugins_dir", Some("plugin_directory")),
            ("plug_dir", Some("plugin_directory")),
            ("pl_directory", None),
            ("temperature", None),
            ("", None),
            ("x", None),
        ];
        for (misspelled, expected) in cases {
            assert_eq!(nearest(misspelled, words), expected, "{misspelled}");
        }
    }
}
