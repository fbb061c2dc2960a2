//! Creates the events for plugins whose version is not the same as in the previous turn (P10).

use super::turn::PinnedPlugin;
use crate::event::EventKind;

/// Compares the plugins of two turns. Returns one event for each plugin that was added, removed or changed. The events
/// are sorted by the plugins' names.
pub(super) fn between(before: &[PinnedPlugin], now: &[PinnedPlugin]) -> Vec<EventKind> {
    let find = |pins: &[PinnedPlugin], name: &str| pins.iter().find(|pin| pin.name == name).cloned();
    let removed = before.iter().filter(|pin| find(now, &pin.name).is_none()).map(|pin| EventKind::PluginSwapped {
        plugin: pin.name.clone(),
        from: Some(pin.digest.clone()),
        to: None,
    });
    let changed_or_added = now.iter().filter_map(|pin| changed(find(before, &pin.name), pin));
    let mut events: Vec<_> = removed.chain(changed_or_added).collect();
    events.sort_by(|left, right| name_of(left).cmp(name_of(right)));
    events
}

fn changed(before: Option<PinnedPlugin>, now: &PinnedPlugin) -> Option<EventKind> {
    if before.as_ref() == Some(now) {
        return None;
    }
    let (plugin, to) = (now.name.clone(), now.digest.clone());
    match &now.instead_of {
        Some(from) => Some(EventKind::PluginRolledBack { plugin, from: from.clone(), to }),
        // A rollback has ended because the plugin's file now contains the version that already ran in the previous
        // turn. The turn runs the same code as the previous turn, so no event is needed.
        None if before.as_ref().is_some_and(|before| before.digest == to) => None,
        None => Some(EventKind::PluginSwapped { plugin, from: before.map(|before| before.digest), to: Some(to) }),
    }
}

fn name_of(event: &EventKind) -> &str {
    match event {
        EventKind::PluginSwapped { plugin, .. } | EventKind::PluginRolledBack { plugin, .. } => plugin,
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Digest;

    fn digest(byte: u8) -> Digest {
        Digest::from_sha256([byte; 32])
    }

    fn pin(name: &str, byte: u8) -> PinnedPlugin {
        PinnedPlugin::new(name, digest(byte))
    }

    fn swapped(plugin: &str, from: Option<u8>, to: Option<u8>) -> EventKind {
        EventKind::PluginSwapped { plugin: plugin.into(), from: from.map(digest), to: to.map(digest) }
    }

    /// P10, L30: each plugin that was added, removed or changed is reported by one event.
    #[test]
    fn p10_each_changed_plugin_is_reported_by_one_event() {
        let before = [pin("calc", 1), pin("gone", 2), pin("text", 3)];
        let now = [pin("added", 4), pin("calc", 1), pin("text", 5)];
        let expected =
            [swapped("added", None, Some(4)), swapped("gone", Some(2), None), swapped("text", Some(3), Some(5))];
        assert_eq!(between(&before, &now), expected);
        assert_eq!(between(&now, &now), []);
    }

    /// P10: a rollback is reported once, even in a session that never used the rolled-back version.
    #[test]
    fn p10_a_rollback_is_reported_once() {
        let (good, bad) = (pin("text", 1), pin("text", 2));
        let rolled_back = PinnedPlugin { instead_of: Some(digest(2)), ..good.clone() };
        let rollback = [EventKind::PluginRolledBack { plugin: "text".into(), from: digest(2), to: digest(1) }];
        assert_eq!(between(std::slice::from_ref(&bad), std::slice::from_ref(&rolled_back)), rollback);
        assert_eq!(between(std::slice::from_ref(&good), std::slice::from_ref(&rolled_back)), rollback);
        assert_eq!(between(std::slice::from_ref(&rolled_back), std::slice::from_ref(&rolled_back)), []);
        assert_eq!(
            between(std::slice::from_ref(&rolled_back), std::slice::from_ref(&good)),
            [],
            "the code is the same"
        );
        assert_eq!(between(&[rolled_back], &[pin("text", 3)]), [swapped("text", Some(1), Some(3))]);
    }
}
