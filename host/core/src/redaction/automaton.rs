//! A suffix automaton over a set of strings. The automaton reads a text symbol by symbol. After each symbol, the
//! automaton's state represents the longest suffix of the text so far that occurs in one of the strings. Reading one
//! symbol takes constant time on average, regardless of the number of strings.

const ROOT: u32 = 0;
const NO_STATE: u32 = u32::MAX;

/// The number of consecutive symbols of a string that must occur in a text to count as a match.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thresholds {
    /// Minimum number of matching symbols for a match that may be anywhere in a text. A string that has at most this
    /// number of symbols matches only as a whole.
    pub(super) part: usize,
    /// Minimum number of matching symbols if they occur at the beginning or end of a text that may have been truncated.
    pub(super) at_edge: usize,
}

/// A suffix automaton, which recognizes all substrings of a set of strings.
#[derive(Debug)]
pub(super) struct SubstringAutomaton {
    pub(super) thresholds: Thresholds,
    /// Column of each symbol in `next`, or [`NO_COLUMN`] for a symbol that occurs in no string.
    columns: Box<[u16; 256]>,
    /// Number of columns in `next`.
    width: usize,
    /// The transition table. Each state has a row with the next state for each of the `width` columns.
    next: Vec<u32>,
    /// The suffix link of each state. The substrings that a state represents have common suffixes, and some of these
    /// suffixes belong to other states. The link leads to the state that represents the longest of these suffixes.
    link: Vec<u32>,
    /// For each state, the length of the longest substring that the state represents.
    length: Vec<u32>,
    /// For each state, the length of the longest whole string that is a suffix of the state's longest substring.
    /// Strings with more than `thresholds.part` symbols are ignored.
    whole_lengths: Vec<u32>,
    /// For each state, the length of the longest suffix of the state's longest substring that is also a prefix of one
    /// of the strings.
    prefix_lengths: Vec<u32>,
}

/// A match that does not start at the beginning of a string is held back only if it has at least this many symbols,
/// because shorter matches are frequent in any text.
const MIN_HELD_BACK: usize = 4;

const NO_COLUMN: u16 = u16::MAX;

/// A position in the automaton. The position represents the longest suffix of the text read so far that is a substring
/// of one of the strings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Matched {
    state: u32,
    /// Length of the suffix in symbols.
    pub(super) length: usize,
}

impl SubstringAutomaton {
    pub(super) fn new(strings: &[Vec<u8>], thresholds: Thresholds) -> Self {
        let mut columns = Box::new([NO_COLUMN; 256]);
        let mut width = 0;
        for symbol in strings.iter().flatten() {
            let column = &mut columns[usize::from(*symbol)];
            if *column == NO_COLUMN {
                *column = width;
                width += 1;
            }
        }
        let width = usize::from(width);
        let (next, link, length) = (vec![NO_STATE; width], vec![NO_STATE], vec![0]);
        let (whole_lengths, prefix_lengths) = (Vec::new(), Vec::new());
        let mut automaton = Self { thresholds, columns, width, next, link, length, whole_lengths, prefix_lengths };
        let (mut string_states, mut prefix_states) = (Vec::new(), Vec::new());
        for string in strings {
            let mut last = ROOT;
            for symbol in string {
                last = automaton.extend(last, usize::from(automaton.columns[usize::from(*symbol)]));
                prefix_states.push(last);
            }
            if string.len() <= thresholds.part {
                string_states.push(last);
            }
        }
        automaton.whole_lengths = automaton.longest_suffixes(&string_states);
        automaton.prefix_lengths = automaton.longest_suffixes(&prefix_states);
        automaton
    }

    /// Returns the position after one more symbol.
    pub(super) fn step(&self, mut matched: Matched, symbol: u8) -> Matched {
        let column = self.columns[usize::from(symbol)];
        if column == NO_COLUMN {
            return Matched::default();
        }
        loop {
            let next = self.next[matched.state as usize * self.width + usize::from(column)];
            if next != NO_STATE {
                return Matched { state: next, length: matched.length + 1 };
            }
            let link = self.link[matched.state as usize];
            if link == NO_STATE {
                return Matched::default();
            }
            matched = Matched { state: link, length: self.length[link as usize] as usize };
        }
    }

    /// Returns how many symbols directly before the current position are certainly part of a secret.
    pub(super) fn found(&self, matched: Matched) -> usize {
        if matched.length >= self.thresholds.part { matched.length } else { self.look_up(&self.whole_lengths, matched) }
    }

    /// Returns how many symbols directly before the current position will be part of a secret if the rest of the
    /// secret follows.
    pub(super) fn uncertain(&self, matched: Matched) -> usize {
        match matched.length {
            length if length >= self.thresholds.part => 0,
            length if length >= MIN_HELD_BACK => length,
            _ => self.look_up(&self.prefix_lengths, matched),
        }
    }

    fn look_up(&self, lengths: &[u32], matched: Matched) -> usize {
        let state = matched.state as usize;
        let is_longest = matched.length == self.length[state] as usize;
        let state = if is_longest { state } else { self.link[state] as usize };
        lengths.get(state).copied().unwrap_or_default() as usize
    }

    /// Appends a symbol to the string whose last state is `last`, and returns the string's new last state.
    fn extend(&mut self, last: u32, column: usize) -> u32 {
        let existing = self.next[last as usize * self.width + column];
        if existing != NO_STATE {
            return self.longest_after(last, column, existing);
        }
        let new = self.push_state(self.length[last as usize] + 1, None);
        let mut at = last;
        while at != NO_STATE && self.next[at as usize * self.width + column] == NO_STATE {
            self.next[at as usize * self.width + column] = new;
            at = self.link[at as usize];
        }
        self.link[new as usize] = match at {
            NO_STATE => ROOT,
            at => self.longest_after(at, column, self.next[at as usize * self.width + column]),
        };
        new
    }

    /// Returns the state whose longest substring is the longest substring of `from`, followed by one symbol. The
    /// returned state is `to` or a new state that is split off from `to`.
    fn longest_after(&mut self, from: u32, column: usize, to: u32) -> u32 {
        let length = self.length[from as usize] + 1;
        if self.length[to as usize] == length {
            return to;
        }
        let split = self.push_state(length, Some(to));
        self.link[split as usize] = self.link[to as usize];
        self.link[to as usize] = split;
        let mut at = from;
        while at != NO_STATE && self.next[at as usize * self.width + column] == to {
            self.next[at as usize * self.width + column] = split;
            at = self.link[at as usize];
        }
        split
    }

    /// Adds a state. If `copied_from` is set, the new state gets a copy of the transitions of the state `copied_from`.
    fn push_state(&mut self, length: u32, copied_from: Option<u32>) -> u32 {
        let new = self.length.len() as u32;
        match copied_from {
            Some(state) => {
                let row = state as usize * self.width;
                self.next.extend_from_within(row..row + self.width);
            }
            None => self.next.resize(self.next.len() + self.width, NO_STATE),
        }
        self.link.push(NO_STATE);
        self.length.push(length);
        new
    }

    /// A state represents several substrings, one of which is the longest. For each state, this function returns the
    /// length of the longest suffix of its longest substring that is also the longest substring of a state in
    /// `suffix_states`, or 0 if there is no such suffix.
    fn longest_suffixes(&self, suffix_states: &[u32]) -> Vec<u32> {
        let mut lengths = vec![0; self.length.len()];
        for state in suffix_states {
            lengths[*state as usize] = self.length[*state as usize];
        }
        // The link of a state leads to a state with shorter substrings. The states are sorted by the length of their
        // longest substring, so that the loop handles the link of a state before the state itself.
        let mut by_length: Vec<usize> = (1..self.length.len()).collect();
        by_length.sort_unstable_by_key(|state| self.length[*state]);
        for state in by_length {
            if lengths[state] == 0 {
                lengths[state] = lengths[self.link[state] as usize];
            }
        }
        lengths
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Tries all suffixes of `text`, and returns the length of the longest suffix that occurs in one of the strings.
    fn longest(strings: &[Vec<u8>], text: &[u8]) -> usize {
        let occurs = |part: &[u8]| strings.iter().any(|string| string.windows(part.len()).any(|window| window == part));
        (1..=text.len()).rev().find(|length| occurs(&text[text.len() - length..])).unwrap_or(0)
    }

    fn words() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(97_u8..100, 1..12)
    }

    proptest! {
        /// Row 41: the automaton agrees with a search through all substrings.
        #[test]
        fn row_41_the_automaton_finds_the_longest_match(strings in proptest::collection::vec(words(), 1..4), text in words()) {
            let automaton = SubstringAutomaton::new(&strings, Thresholds { part: 5, at_edge: 3 });
            let mut matched = Matched::default();
            for end in 1..=text.len() {
                matched = automaton.step(matched, text[end - 1]);
                let length = longest(&strings, &text[..end]);
                prop_assert_eq!(matched.length, length);
                let short = strings.iter().filter(|string| string.len() <= 5 && text[..end].ends_with(string));
                let whole = short.map(Vec::len).max().unwrap_or(0);
                let found = if length >= 5 { length } else { whole };
                prop_assert_eq!(automaton.found(matched), found);
                let begins = |part: &[u8]| strings.iter().any(|string| string.starts_with(part));
                let prefix = (0..=end).rev().find(|length| begins(&text[end - length..end])).unwrap_or(0);
                let uncertain = if length >= 5 { 0 } else if length >= MIN_HELD_BACK { length } else { prefix };
                prop_assert_eq!(automaton.uncertain(matched), uncertain);
            }
        }
    }
}
