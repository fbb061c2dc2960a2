//! Entry points for the fuzz targets in `tests/fuzz`. This module is compiled only for the fuzz targets.

use crate::HttpPattern;
use crate::component::compiler::examine_bytes;
use crate::limits::HostLimits;
use url::Url;

/// Examines a component like the compiler process, which examines each component before it compiles the component.
/// Returns the report as JSON. If the component is refused, the report contains the reason.
pub fn examine(bytes: &[u8]) -> String {
    examine_bytes(bytes, HostLimits::default().structure())
}

/// Whether the grant with this pattern allows this request.
pub fn allows(pattern: &HttpPattern, method: &str, url: &Url) -> bool {
    pattern.allows(method, url)
}
