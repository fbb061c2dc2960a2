//! Tests of Chat Completions against a real server on loopback. The tests cover the requests on the wire, all forms of
//! replies, and all faults of row 31.

#[path = "support/client.rs"]
mod client;
#[path = "support/embeddings.rs"]
mod embeddings;
#[path = "support/errors.rs"]
mod errors;
#[path = "support/faults.rs"]
mod faults;
#[path = "support/replies.rs"]
mod replies;
#[path = "support/requests.rs"]
mod requests;
#[path = "support/server.rs"]
mod server;
#[path = "support/unreachable.rs"]
mod unreachable;
