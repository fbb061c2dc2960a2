//! Selects the tools that the host offers to a model if an agent has many tools (L25). The selected tools are those
//! nearest to a query, either by common words or by the similarity of embeddings.

use crate::nearest::Index;

/// Returns the indices of the `count` tools nearest to the query by BM25 over the words of their names and
/// descriptions, nearest first. Tools that share no word with the query follow in their original order.
pub fn nearest_by_words(tools: &Index, query: &str, count: usize) -> Vec<usize> {
    let nearest = tools.nearest(query, count);
    filled_up(nearest.into_iter().map(|(index, _)| index).collect(), tools.len(), count)
}

/// Returns the indices of the `count` tools nearest to the query by the cosine similarity of embeddings, nearest first.
/// A tool comes last if its embedding is invalid or does not have as many dimensions as the query's embedding.
pub fn nearest_by_meaning(tools: &[Vec<f32>], query: &[f32], count: usize) -> Vec<usize> {
    let mut scores: Vec<(usize, f32)> = tools.iter().map(|tool| cosine(tool, query)).enumerate().collect();
    scores.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
    scores.into_iter().map(|(index, _)| index).take(count).collect()
}

/// Returns the cosine similarity of two vectors, from -1 to 1. Returns -1 if the similarity is undefined.
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

/// Appends the indices below `tool_count` that are not in the list, in order, until the list contains `count` indices.
fn filled_up(mut nearest: Vec<usize>, tool_count: usize, count: usize) -> Vec<usize> {
    let others: Vec<usize> = (0..tool_count).filter(|index| !nearest.contains(index)).collect();
    nearest.extend(others);
    nearest.truncate(count);
    nearest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L25: the nearest tools come first, and further tools follow until the list has the requested length.
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

    /// L25: tools are ranked by the angle between the vectors, not by the length of the vectors.
    #[test]
    fn l25_tools_are_selected_by_meaning() {
        let tools = [vec![9.0, 9.0], vec![0.0, 0.1], vec![1.0, 0.2], vec![0.0, 0.0], vec![1.0], vec![f32::NAN, 1.0]];
        assert_eq!(nearest_by_meaning(&tools, &[0.0, 5.0], 3), [1, 0, 2]);
        assert_eq!(nearest_by_meaning(&tools, &[0.0, 5.0], 6), [1, 0, 2, 3, 4, 5]);
        assert!((cosine(&[1.0, 1.0], &[2.0, 2.0]) - 1.0).abs() < 1e-6 && cosine(&[1.0, 0.0], &[-1.0, 0.0]) == -1.0);
        assert_eq!(cosine(&[f32::MAX, f32::MAX], &[f32::MAX, f32::MAX]).round(), 1.0);
    }
}
