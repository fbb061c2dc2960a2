//! Asks the user about missing grants when a plugin is used for the first time (P6). The submodules contain the grants
//! to offer, the question, the handler that applies the answer, and the report about the effect of the answer.

mod folders;

mod offers;

mod report;

mod question;

mod handler;

mod requested_changes;

pub use handler::FirstUseHandler;
pub use offers::{GrantOffer, GrantOffers, NotOffered, OfferBounds, OfferedFolder, OfferedHosts};
pub use question::{FirstUseAnswer, FirstUsePrompt, FirstUseQuestion, Keeping};
pub use report::FirstUseReport;
pub use requested_changes::{ChangeError, Reconsidered, Revoked};
