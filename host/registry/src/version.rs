//! Compares versions, including versions that are not semantic versions.

use semver::Version;
use std::cmp::Ordering;

/// Result of comparing a version with another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionOrder {
    /// The version is newer than the other version.
    Newer,
    /// The versions are equal.
    Same,
    /// The version is older than the other version.
    Older,
    /// The versions cannot be compared.
    Unknown,
}

/// Compares `version` with `other`. Versions that consist of numbers can always be compared: `1.10` is newer than `1.9`, and `v1.2`
/// equals `1.2.0`.
pub fn compare_versions(version: &str, other: &str) -> VersionOrder {
    let ordering = match (Version::parse(version), Version::parse(other)) {
        (Ok(version), Ok(other)) => Some(version.cmp_precedence(&other)),
        _ if version == other => Some(Ordering::Equal),
        _ => NumericVersion::read(version)
            .zip(NumericVersion::read(other))
            .and_then(|(version, other)| version.compare(&other)),
    };
    match ordering {
        Some(Ordering::Greater) => VersionOrder::Newer,
        Some(Ordering::Equal) => VersionOrder::Same,
        Some(Ordering::Less) => VersionOrder::Older,
        None => VersionOrder::Unknown,
    }
}

/// A version that consists of numbers separated by dots, and an optional prerelease after a `-`.
struct NumericVersion<'v> {
    /// The digits of each number, without leading zeros, so that a number with more digits is always the larger one.
    numbers: Vec<&'v str>,
    prerelease: &'v str,
}

impl<'v> NumericVersion<'v> {
    fn read(version: &'v str) -> Option<Self> {
        let version = version.trim();
        let version = version.strip_prefix(['v', 'V']).unwrap_or(version);
        let version = version.split_once('+').map_or(version, |(version, _)| version);
        let (numbers, prerelease) = version.split_once('-').unwrap_or((version, ""));
        let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let parts: Vec<_> = numbers.split('.').collect();
        let numbers = parts.iter().all(is_number).then(|| parts.into_iter().map(|part| part.trim_start_matches('0')));
        Some(Self { numbers: numbers?.collect(), prerelease })
    }

    /// Compares this version with `other`. If one of the versions has fewer numbers, the missing numbers count as zero.
    /// If the numbers are equal, the prereleases are compared as in semantic versions. Returns `None` if the
    /// prereleases cannot be compared.
    fn compare(&self, other: &Self) -> Option<Ordering> {
        let count = self.numbers.len().max(other.numbers.len());
        let number = |numbers: &[&'v str], position: usize| {
            numbers.get(position).map_or((0, ""), |number| (number.len(), *number))
        };
        let ordering = (0..count)
            .map(|position| number(&self.numbers, position).cmp(&number(&other.numbers, position)))
            .find(|ordering| ordering.is_ne());
        match ordering {
            Some(ordering) => Some(ordering),
            None if self.prerelease == other.prerelease => Some(Ordering::Equal),
            None => {
                let version = |numbered: &Self| {
                    let suffix = if numbered.prerelease.is_empty() {
                        String::new()
                    } else {
                        format!("-{}", numbered.prerelease)
                    };
                    Version::parse(&format!("0.0.0{suffix}")).ok()
                };
                Some(version(self)?.cmp_precedence(&version(other)?))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rows 23 and 53: an older version is recognised in every supported notation.
    #[test]
    fn versions_are_compared() {
        for (version, other, expected) in [
            ("1.10.0", "1.9.0", VersionOrder::Newer),
            ("1.0.0-rc.1", "1.0.0", VersionOrder::Older),
            ("1.0.0+a", "1.0.0+b", VersionOrder::Same),
            ("today", "today", VersionOrder::Same),
            ("1.10", "1.9", VersionOrder::Newer),
            ("1.9", "1.10", VersionOrder::Older),
            ("v1.9", "1.10.0", VersionOrder::Older),
            ("2", "1.99.99", VersionOrder::Newer),
            ("1.2", "1.2.0", VersionOrder::Same),
            ("1.2.0.1", "1.2", VersionOrder::Newer),
            ("01.010", "1.9", VersionOrder::Newer),
            ("1.99999999999999999999999999", "1.100000000000000000000000000", VersionOrder::Older),
            ("1.10-rc.2", "1.10-rc.10", VersionOrder::Older),
            ("1.10-rc.2", "1.10", VersionOrder::Older),
            ("2026.11.22", "2026.9.1", VersionOrder::Newer),
            ("today", "1.0.0", VersionOrder::Unknown),
            ("", "1.0.0", VersionOrder::Unknown),
            ("1..2", "1.0", VersionOrder::Unknown),
            ("1.x", "1.0", VersionOrder::Unknown),
        ] {
            assert_eq!(compare_versions(version, other), expected, "{version} {other}");
        }
    }
}
