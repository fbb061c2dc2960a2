//! The first use of a plugin that lacks grants (P6): what can be granted, the question to the user, and the effect of the
//! answer.

mod offers;

mod report;

mod question;

mod handler;

pub use handler::FirstUseHandler;
pub use offers::{GrantOffer, GrantOffers, NotOffered, OfferBounds, OfferedFolder, OfferedHosts, host_patterns};
pub use question::{FirstUseAnswer, FirstUsePrompt, FirstUseQuestion, Keeping};
pub use report::FirstUseReport;
