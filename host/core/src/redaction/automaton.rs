//! A suffix automaton. It reads a text symbol by symbol and always knows the longest suffix of that text that occurs
//! in one of its strings. One step takes constant time on average, however many strings there are.

const ROOT: u32 = 0;
const NONE: u32 = u32::MAX;

/// How much of a string must occur in a text before it counts as a match.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thresholds {
    /// Number of symbols of a part. A string that is not longer only counts as a whole.
    pub(super) part: usize,
    /// Number of symbols of a part at the very beginning or end of a text, where the text may have been cut.
    pub(super) at_edge: usize,
}

/// All substrings of a set of strings.
#[derive(Debug)]
pub(super) struct SubstringAutomaton {
    pub(super) thresholds: Thresholds,
    /// Column of each symbol in `next`, or [`NO_COLUMN`] for symbols that no string has.
    columns: Box<[u16; 256]>,
    width: usize,
    /// Transitions: one row of `width` states for each state.
    next: Vec<u32>,
    link: Vec<u32>,
    /// For each state, the length of its longest substring.
    length: Vec<u32>,
    /// For each state, the length of the longest short string that is a suffix of the state's longest substring.
    whole: Vec<u32>,
    /// For each state, the length of the longest prefix of a string that is a suffix of the state's longest
    /// substring.
    beginning: Vec<u32>,
}

/// A shorter match that is not the prefix of a string is not held back, because it occurs in any text.
const WAITED_FOR: usize = 4;

const NO_COLUMN: u16 = u16::MAX;

/// A position in the automaton: the longest suffix of the text so far that occurs in a string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Matched {
    state: u32,
    /// Length in symbols.
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
        let (next, link, length) = (vec![NONE; width], vec![NONE], vec![0]);
        let (whole, beginning) = (Vec::new(), Vec::new());
        let mut automaton = Self { thresholds, columns, width, next, link, length, whole, beginning };
        let (mut ends, mut beginnings) = (Vec::new(), Vec::new());
        for string in strings {
            let mut last = ROOT;
            for symbol in string {
                last = automaton.extend(last, usize::from(automaton.columns[usize::from(*symbol)]));
                beginnings.push(last);
            }
            if string.len() <= thresholds.part {
                ends.push(last);
            }
        }
        automaton.whole = automaton.longest_of(&ends);
        automaton.beginning = automaton.longest_of(&beginnings);
        automaton
    }

    /// Returns the longest match after one more symbol.
    pub(super) fn step(&self, mut matched: Matched, symbol: u8) -> Matched {
        let column = self.columns[usize::from(symbol)];
        if column == NO_COLUMN {
            return Matched::default();
        }
        loop {
            let to = self.next[matched.state as usize * self.width + usize::from(column)];
            if to != NONE {
                return Matched { state: to, length: matched.length + 1 };
            }
            let link = self.link[matched.state as usize];
            if link == NONE {
                return Matched::default();
            }
            matched = Matched { state: link, length: self.length[link as usize] as usize };
        }
    }

    /// Number of last symbols that must not be shown.
    pub(super) fn found(&self, matched: Matched) -> usize {
        if matched.length >= self.thresholds.part { matched.length } else { self.look_up(&self.whole, matched) }
    }

    /// Number of last symbols that may turn out to be part of a secret, depending on what follows.
    pub(super) fn uncertain(&self, matched: Matched) -> usize {
        match matched.length {
            length if length >= self.thresholds.part => 0,
            length if length >= WAITED_FOR => length,
            _ => self.look_up(&self.beginning, matched),
        }
    }

    fn look_up(&self, lengths: &[u32], matched: Matched) -> usize {
        let state = matched.state as usize;
        let is_longest = matched.length == self.length[state] as usize;
        let of = if is_longest { state } else { self.link[state] as usize };
        lengths.get(of).copied().unwrap_or_default() as usize
    }

    fn extend(&mut self, last: u32, column: usize) -> u32 {
        let there = self.next[last as usize * self.width + column];
        if there != NONE {
            return self.longest_after(last, column, there);
        }
        let new = self.push_state(self.length[last as usize] + 1, None);
        let mut at = last;
        while at != NONE && self.next[at as usize * self.width + column] == NONE {
            self.next[at as usize * self.width + column] = new;
            at = self.link[at as usize];
        }
        self.link[new as usize] = match at {
            NONE => ROOT,
            at => self.longest_after(at, column, self.next[at as usize * self.width + column]),
        };
        new
    }

    /// Returns the state whose longest substring is the longest one of `from` with one more symbol: `to`, or a state
    /// that is split off it.
    fn longest_after(&mut self, from: u32, column: usize, to: u32) -> u32 {
        let length = self.length[from as usize] + 1;
        if self.length[to as usize] == length {
            return to;
        }
        let split = self.push_state(length, Some(to));
        self.link[split as usize] = self.link[to as usize];
        self.link[to as usize] = split;
        let mut at = from;
        while at != NONE && self.next[at as usize * self.width + column] == to {
            self.next[at as usize * self.width + column] = split;
            at = self.link[at as usize];
        }
        split
    }

    fn push_state(&mut self, length: u32, like: Option<u32>) -> u32 {
        let new = self.length.len() as u32;
        match like {
            Some(state) => {
                let row = state as usize * self.width;
                self.next.extend_from_within(row..row + self.width);
            }
            None => self.next.resize(self.next.len() + self.width, NONE),
        }
        self.link.push(NONE);
        self.length.push(length);
        new
    }

    /// For each state, the longest of the given states' longest substrings that is a suffix of its own.
    fn longest_of(&self, ends: &[u32]) -> Vec<u32> {
        let mut lengths = vec![0; self.length.len()];
        for end in ends {
            lengths[*end as usize] = self.length[*end as usize];
        }
        // A state's link has a shorter substring than the state.
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

    /// The longest suffix of `text` that occurs in one of the strings, found by brute force.
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
                let beginning = (0..=end).rev().find(|length| begins(&text[end - length..end])).unwrap_or(0);
                let uncertain = if length >= 5 { 0 } else if length >= WAITED_FOR { length } else { beginning };
                prop_assert_eq!(automaton.uncertain(matched), uncertain);
            }
        }
    }
}
