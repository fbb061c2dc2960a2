//! The conformance suite of the Model Context Protocol and its inspector, against the real binary (I4).
