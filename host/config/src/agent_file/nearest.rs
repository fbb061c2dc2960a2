//! Finds the known word that is most similar to a misspelled word, for suggestions in error messages.

/// Returns the word in `words` that is most similar to `misspelled`, or None if no word is similar enough.
pub fn nearest<'w>(misspelled: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let normalize = |text: &str| text.to_lowercase().replace('-', "_");
    let misspelled = normalize(misspelled);
    let max_distance = misspelled.chars().count().div_ceil(3).min(3);
    let measured = words.into_iter().map(|word| (distance(&misspelled, &normalize(word)), word));
    measured
        .filter(|(distance, _)| *distance <= max_distance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
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
        let words = ["model", "validators", "max_interactions", "at_limit", "name"];
        let cases = [
            ("modle", Some("model")),
            ("Model", Some("model")),
            ("max-interactions", Some("max_interactions")),
            ("max_interaction", Some("max_interactions")),
            ("validator", Some("validators")),
            ("temperature", None),
            ("", None),
            ("x", None),
        ];
        for (misspelled, expected) in cases {
            assert_eq!(nearest(misspelled, words), expected, "{misspelled}");
        }
    }
}
