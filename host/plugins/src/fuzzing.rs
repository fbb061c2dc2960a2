//! Entry points for the fuzz targets in `tests/fuzz`. This module is compiled only for the fuzz targets.

use crate::HttpPattern;
use crate::component::compiler::examine_bytes;
use crate::limits::HostLimits;
use url::Url;

/// Runs the same checks on a component's bytes that the compiler process runs before it compiles a component. Returns
/// the report as JSON. If the component is refused, the report contains the reason.
pub fn examine(bytes: &[u8]) -> String {
    examine_bytes(bytes, HostLimits::default().structure())
}

/// Whether the grant with this pattern allows this request.
pub fn allows(pattern: &HttpPattern, method: &str, url: &Url) -> bool {
    pattern.allows(method, url)
}
