//! The common part of the plugins `files` and `text`: looks up entries of granted trees, walks through trees with the
//! rules of ignore files, and searches the files of a tree.

pub mod expression;
pub mod globs;
mod ignore_rules;
mod line_excerpt;
pub mod lookup;
pub mod search;
pub mod walk;
