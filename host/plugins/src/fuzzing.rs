//! What the fuzz targets in `tests/fuzz` call; it is not part of any other build.

use crate::HttpPattern;
use crate::compiler::examine_bytes;
use crate::limits::HostLimits;
use url::Url;

/// Reads a component as the examining child does before it compiles: its report as JSON, or why it is refused.
pub fn examine(bytes: &[u8]) -> String {
    examine_bytes(bytes, HostLimits::default().structure())
}

/// Whether a grant allows this request.
pub fn allows(pattern: &HttpPattern, method: &str, url: &Url) -> bool {
    pattern.allows(method, url)
}
