//! Which of two versions is newer, also where they are not written as semantic versions are.

use semver::Version;
use std::cmp::Ordering;

/// How a version relates to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// It is newer.
    Newer,
    /// It is the same.
    Same,
    /// It is older.
    Older,
    /// They cannot be compared.
    Unknown,
}

/// How `version` relates to `other`. `1.10` is newer than `1.9`, and `v1.2` is `1.2.0`: whatever consists of numbers has an order.
pub fn age(version: &str, other: &str) -> Age {
    let ordering = match (Version::parse(version), Version::parse(other)) {
        (Ok(version), Ok(other)) => Some(version.cmp_precedence(&other)),
        _ if version == other => Some(Ordering::Equal),
        _ => Numbered::read(version).zip(Numbered::read(other)).and_then(|(version, other)| version.compared(&other)),
    };
    match ordering {
        Some(Ordering::Greater) => Age::Newer,
        Some(Ordering::Equal) => Age::Same,
        Some(Ordering::Less) => Age::Older,
        None => Age::Unknown,
    }
}

/// Numbers with dots between them, and what stands behind a `-`.
struct Numbered<'v> {
    /// Without leading zeros, so that the longer one is the larger one.
    numbers: Vec<&'v str>,
    prerelease: &'v str,
}

impl<'v> Numbered<'v> {
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

    /// Missing numbers are zeros. Prereleases of the same numbers are compared as semantic versions are, if they can be.
    fn compared(&self, other: &Self) -> Option<Ordering> {
        let longest = self.numbers.len().max(other.numbers.len());
        let number = |numbers: &[&'v str], at: usize| numbers.get(at).map_or((0, ""), |number| (number.len(), *number));
        let ordering = (0..longest)
            .map(|at| number(&self.numbers, at).cmp(&number(&other.numbers, at)))
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

    // Rows 23 and 53: what is older is known as older, however it is written.
    #[test]
    fn versions_are_compared() {
        for (version, other, expected) in [
            ("1.10.0", "1.9.0", Age::Newer),
            ("1.0.0-rc.1", "1.0.0", Age::Older),
            ("1.0.0+a", "1.0.0+b", Age::Same),
            ("today", "today", Age::Same),
            ("1.10", "1.9", Age::Newer),
            ("1.9", "1.10", Age::Older),
            ("v1.9", "1.10.0", Age::Older),
            ("2", "1.99.99", Age::Newer),
            ("1.2", "1.2.0", Age::Same),
            ("1.2.0.1", "1.2", Age::Newer),
            ("01.010", "1.9", Age::Newer),
            ("1.99999999999999999999999999", "1.100000000000000000000000000", Age::Older),
            ("1.10-rc.2", "1.10-rc.10", Age::Older),
            ("1.10-rc.2", "1.10", Age::Older),
            ("2026.11.22", "2026.9.1", Age::Newer),
            ("today", "1.0.0", Age::Unknown),
            ("", "1.0.0", Age::Unknown),
            ("1..2", "1.0", Age::Unknown),
            ("1.x", "1.0", Age::Unknown),
        ] {
            assert_eq!(age(version, other), expected, "{version} {other}");
        }
    }
}
