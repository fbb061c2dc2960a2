//! I9: the next times of schedules are kept per agent and name.

use super::TestStore;
use crate::ScheduleState;

fn state(agent: &str, name: &str, due: i64) -> ScheduleState {
    let (agent, name, definition) = (agent.to_owned(), name.to_owned(), "0 7 * * * UTC".to_owned());
    ScheduleState { agent, name, definition, due, ..ScheduleState::default() }
}

pub(super) async fn schedules_are_kept_per_agent_and_name(test: TestStore) {
    let store = &test.store;
    assert_eq!(store.schedules("a").await, Ok(Vec::new()));
    for schedule in [state("a", "weekly", 3), state("a", "daily", 1), state("b", "daily", 2)] {
        store.set_schedule(schedule).await.unwrap();
    }
    assert_eq!(store.schedules("a").await, Ok(vec![state("a", "daily", 1), state("a", "weekly", 3)]));
    let ran = ScheduleState {
        last_run: Some(1),
        last_session: Some("a/1".to_owned()),
        definition: "other".to_owned(),
        ..state("a", "daily", i64::MAX)
    };
    store.set_schedule(ran.clone()).await.unwrap();
    store.remove_schedule("a", "weekly").await.unwrap();
    store.remove_schedule("a", "none").await.unwrap();
    assert_eq!(store.schedules("a").await, Ok(vec![ran.clone()]));
    assert_eq!(store.schedules("b").await, Ok(vec![state("b", "daily", 2)]));
    if let Some(second) = &test.second {
        assert_eq!(second.schedules("a").await, Ok(vec![ran]), "a second instance sees the schedules");
    }
}
