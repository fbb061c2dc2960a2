//! Finds the known word that a misspelled word was probably meant to be.

/// The word that is most similar to `given`. None if no word is similar enough.
pub fn nearest<'w>(given: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let given = plain(given);
    let max_distance = given.chars().count().div_ceil(3).min(3);
    let measured = words.into_iter().map(|word| (distance(&given, &plain(word)), word));
    measured
        .filter(|(distance, _)| *distance <= max_distance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// Edit distance: the number of letters that are added, removed, changed or swapped with their neighbour.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().take(64).collect(), other.chars().take(64).collect());
    let mut rows = vec![(0..=other.len()).collect::<Vec<_>>()];
    for (i, letter) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, against) in other.iter().enumerate() {
            let changed = rows[i][j] + usize::from(letter != against);
            let mut best = changed.min(row[j] + 1).min(rows[i][j + 1] + 1);
            if i > 0 && j > 0 && *letter == other[j - 1] && one[i - 1] == *against {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
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
        for (given, meant) in cases {
            assert_eq!(nearest(given, words), meant, "{given}");
        }
    }
}
