//! The real binary, used as README says.
