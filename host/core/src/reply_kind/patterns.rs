//! The English patterns by which replies are classified (L23). [`super::words`] defines the pattern syntax.
//! Contractions in a reply are expanded before the reply is matched, so the pattern `i will` matches *I'll*.

/// A kind of sentence. A sentence is of this kind if one of the patterns matches the sentence and the sentence contains
/// none of the words in `unless`.
pub(super) struct SentenceKind {
    /// The sentence must match at least one of these patterns.
    pub(super) patterns: &'static [&'static str],
    /// Words that must not occur in the sentence.
    pub(super) unless: &'static [&'static str],
}

/// The sentence states that everything is done. This kind overrides all other kinds.
pub(super) const COMPLETE: SentenceKind = SentenceKind {
    patterns: &[
        "all ** have|has been",
        "all ** were|was successfully",
        "all ** are|is now",
        "all ** are|is done|complete|completed|finished|renamed|processed",
        "everything ** has|have been",
        "everything is|was done|complete|completed|finished",
        "all done",
        "task|job|work is|was * done|complete|completed|finished",
        "task|job|work has * been done|completed|finished",
        "i have * completed|finished|processed|renamed|handled all|everything",
    ],
    unless: &[
        "not", "once", "until", "till", "when", "after", "before", "if", "unless", "nearly", "almost", "will",
        "should", "except", "but",
    ],
};

/// The sentence states that work is left to do. This kind of sentence is ignored if the user asked what work is left.
pub(super) const WORK_LEFT: SentenceKind = SentenceKind {
    patterns: &[
        "# ~ remaining",
        "# ~ remain|remains",
        "# ~ left to|for",
        "# ~ left $",
        "# ~ still to",
        "# ~ more to",
        "# ~ to go $",
        "# ~ not yet",
        "# ~ pending $",
        "# ~ still need|needs|have|has",
        "remaining * still need|needs|have|has",
        "rest * still need|needs|have|has",
        "remaining * need|needs to be",
        "remaining * have|has not been",
        "not all ** have|has been",
        "not all ** are done|complete|completed|processed|renamed",
    ],
    unless: &[
        // A sentence with one of the following units is about a remaining resource and not about remaining work.
        "second",
        "seconds",
        "minute",
        "minutes",
        "hour",
        "hours",
        "day",
        "days",
        "week",
        "weeks",
        "month",
        "months",
        "year",
        "years",
        "percent",
        "credit",
        "credits",
        "token",
        "tokens",
        "dollar",
        "dollars",
        "euro",
        "euros",
        "point",
        "points",
        "seat",
        "seats",
        "budget",
        "balance",
        "battery",
        "bytes",
        "kb",
        "mb",
        "gb",
        // These words describe work that remained earlier, or that would remain under a condition.
        "was",
        "were",
        "had",
        "would",
        "if",
        "unless",
        "once",
        "until",
        // These words describe items that are intentionally left unchanged.
        "unchanged",
        "untouched",
        "asked",
        "requested",
        "intentionally",
        "deliberately",
        "skipped",
        "excluded",
    ],
};

/// The sentence announces the next action instead of performing it.
pub(super) const ANNOUNCED: SentenceKind = SentenceKind {
    patterns: &[
        "i will * continue|proceed|resume",
        "i will * go|carry|move|press on with|to",
        "let me * continue|proceed|resume",
        "let me * go|carry|move|press on with|to",
        "i am * going to continue|proceed|resume",
        "i am * going|moving|carrying on with|to",
        "i am now * continuing|proceeding|processing",
        "i will * the rest|remaining|next|others",
        "^ continuing with",
        "^ proceeding to|with",
        "^ moving on to",
        "^ next i will",
        "^ now i will",
        "^ next let me",
        "^ now let me",
        "to be continued",
        "more to come",
        "will continue in the next",
    ],
    unless: &[
        "if",
        "once",
        "unless",
        "until",
        "when",
        "whenever",
        "after",
        "leave",
        "skip",
        "ignore",
        "unchanged",
        "untouched",
        "not",
        "know",
        "summarize",
        "summarise",
        "explain",
        "show",
        "answer",
    ],
};

/// The sentence refuses the task. A sentence of this kind is considered only at the beginning of a reply.
pub(super) const REFUSED: SentenceKind = SentenceKind {
    patterns: &[
        "i do not * have * access",
        "i have no * access",
        "i can not * access",
        "i can not do that|this|it|so",
        "i can not * help|assist with|you",
        "i can not directly",
        "i can not * perform|execute|complete|carry|run|open|read|view|browse|modify|interact",
        "i am * unable to",
        "i am not * able to",
        "i do not * have * ability|abilities|capability|capabilities",
        "i do not * have * permission|permissions",
        "i do not * have * tool|tools|way",
        "i have no * way|ability|tool|tools",
        "i lack * ability|access|tools|permission|permissions",
        "^ as an ai",
        "^ as a * language model",
        "i am * an|a ai|language|text|virtual",
        "beyond|outside * my capabilities|abilities|scope|reach",
        "not something i can|am",
        "it is not possible for me",
        "i will not be able to",
    ],
    unless: &["wait", "enough", "longer", "hear"],
};

/// The sentence asks the user a question or tells the user to do the work. A sentence of this kind is considered only
/// at the end of a reply.
pub(super) const HANDED_BACK: SentenceKind = SentenceKind {
    patterns: &[
        "would you like me to",
        "do you want me to",
        "^ want me to",
        "shall i",
        "should i * continue|proceed|go|start|begin",
        "please provide|share|upload|paste|supply",
        "please confirm|clarify|specify",
        "could|can|would you * provide|share|upload|paste|clarify|specify|confirm",
        "let me know if|whether|when * you would|want",
        "let me know if|whether|how|when|what * i should",
        "let me know how|when|what to",
        "i need|require * more information|details|context|clarification",
        "before i * continue|proceed|start|begin",
        "you * need|have to * manually|yourself",
        "you * can|could|should|must * do * manually|yourself",
        "if you would like|prefer * i can|could|will",
        "if you want * i can|could|will",
        "tell me which|what|how|whether|where",
    ],
    unless: &["else", "anything", "further", "questions", "question", "also", "additional"],
};

/// The sentence contains words of refusal in the first person. A sentence of this kind is considered only in a short
/// reply of a turn without tool calls.
pub(super) const REFUSAL_WORDS: SentenceKind = SentenceKind {
    patterns: &[
        "i can not",
        "i could not",
        "i do not * have",
        "i will not",
        "i am * unable|afraid|sorry",
        "i am not * able|allowed|permitted",
        "unfortunately * i",
        "i must * decline",
        "i have to * decline",
        "i apologize|apologise",
    ],
    unless: &["wait", "enough", "hear", "thank", "stress", "imagine", "complain", "deny"],
};

/// Words that `#` matches, in addition to numbers in digits.
pub(super) const NUMBERS: &[&str] = &[
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "several",
    "some", "few", "many",
];

/// Words that `~` never matches.
pub(super) const BARRIERS: &[&str] =
    &["no", "none", "nothing", "zero", "the", "and", "but", "or", "with", "while", "than", "not"];

/// Words that occur in a question about the work that is left.
pub(super) const WORDS_FOR_REMAINING_WORK: &[&str] = &[
    "remain",
    "remains",
    "remaining",
    "left",
    "pending",
    "outstanding",
    "todo",
    "todos",
    "open",
    "missing",
    "unfinished",
    "incomplete",
];

/// First words of sentences that are questions or requests for information, even without a question mark.
pub(super) const QUESTION_STARTS: &[&str] =
    &["what", "which", "how", "list", "show", "tell", "count", "report", "find", "are", "is", "who", "where"];
