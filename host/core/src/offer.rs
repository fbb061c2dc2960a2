//! Selects the tools that a model is offered when there are many: those nearest to a query, by words or by meaning
//! (L25).

use crate::nearest::Index;

/// Indices of the `count` tools whose names and descriptions are nearest to the query by words, nearest first. Tools
/// that share no word with the query follow in their order.
pub fn nearest_by_words(tools: &Index, query: &str, count: usize) -> Vec<usize> {
    let nearest = tools.nearest(query, count);
    filled(nearest.into_iter().map(|(index, _)| index).collect(), tools.len(), count)
}

/// Indices of the `count` tools nearest to the query by the cosine similarity of embeddings, nearest first. Tools
/// whose embedding has other dimensions or is not usable come last.
pub fn nearest_by_meaning(tools: &[Vec<f32>], query: &[f32], count: usize) -> Vec<usize> {
    let mut scores: Vec<(usize, f32)> = tools.iter().map(|tool| cosine(tool, query)).enumerate().collect();
    scores.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
    scores.into_iter().map(|(index, _)| index).take(count).collect()
}

/// Cosine similarity, from -1 to 1. It is -1 if it is not defined.
pub fn cosine(left: &[f32], right: &[f32]) -> f32 {
    if left.len() != right.len() {
        return -1.0;
    }
    let dot = |left: &[f32], right: &[f32]| -> f64 {
        left.iter().zip(right).map(|(left, right)| f64::from(*left) * f64::from(*right)).sum()
    };
    let similarity = dot(left, right) / (dot(left, left).sqrt() * dot(right, right).sqrt());
    if similarity.is_finite() { similarity as f32 } else { -1.0 }
}

fn filled(mut nearest: Vec<usize>, all: usize, count: usize) -> Vec<usize> {
    let rest: Vec<usize> = (0..all).filter(|index| !nearest.contains(index)).collect();
    nearest.extend(rest);
    nearest.truncate(count);
    nearest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L25: the result has exactly the requested number, nearest first.
    #[test]
    fn l25_tools_are_selected_by_words() {
        let tools = [("files.read", "Reads a file."), ("text.count", "Counts words."), ("calc", "Evaluates.")];
        let tools = Index::new(tools);
        assert_eq!(nearest_by_words(&tools, "count the words", 2), [1, 0]);
        assert_eq!(nearest_by_words(&tools, "evaluate and count", 9).len(), 3);
        assert_eq!(nearest_by_words(&tools, "fly to the moon", 2), [0, 1]);
        assert!(
            nearest_by_words(&tools, "count", 0).is_empty()
                && nearest_by_words(&Index::default(), "count", 3).is_empty()
        );
    }

    /// L25: the cosine decides, not the length of the vectors.
    #[test]
    fn l25_tools_are_selected_by_meaning() {
        let tools = [vec![9.0, 9.0], vec![0.0, 0.1], vec![1.0, 0.2], vec![0.0, 0.0], vec![1.0], vec![f32::NAN, 1.0]];
        assert_eq!(nearest_by_meaning(&tools, &[0.0, 5.0], 3), [1, 0, 2]);
        assert_eq!(nearest_by_meaning(&tools, &[0.0, 5.0], 6), [1, 0, 2, 3, 4, 5]);
        assert!((cosine(&[1.0, 1.0], &[2.0, 2.0]) - 1.0).abs() < 1e-6 && cosine(&[1.0, 0.0], &[-1.0, 0.0]) == -1.0);
        assert_eq!(cosine(&[f32::MAX, f32::MAX], &[f32::MAX, f32::MAX]).round(), 1.0);
    }
}
