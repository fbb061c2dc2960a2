//! P11: servers that are busy, fail for a moment or cut connections are asked again, a few times, and it is told.

use crate::registry::TestRegistry;
use crate::{Person, component};
use agent_share::{Again, Credentials, PlainHttp, Registry};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Somebody who hears of all that is asked again.
fn listening() -> (Person, Arc<Mutex<Vec<Again>>>) {
    let told = Arc::<Mutex<Vec<Again>>>::default();
    let heard = Arc::clone(&told);
    let client = Registry::new(Credentials::default(), PlainHttp::LoopbackOnly).expect("a client");
    let client = client.telling(Arc::new(move |again: &Again| heard.lock().expect("whole").push(again.clone())));
    (Person { client, ..Person::new() }, told)
}

/// Waits that a server asks for are kept, and doubled ones where it asks for none.
#[tokio::test]
async fn busy_servers_are_asked_again() {
    let (registry, (person, told)) = (TestRegistry::start(), listening());
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    let bytes = component(1000);
    // The first request of a push is a GET; an upload is begun by a POST, which is sent again only where nothing was done.
    registry.set(|faults| faults.refuse = vec![(503, ""), (429, "1"), (502, "0")]);
    person.push(&reference, &bytes).await.expect("pushed");
    let waits: Vec<_> = told.lock().expect("whole").drain(..).map(|again| (again.wait, again.next)).collect();
    let milliseconds = Duration::from_millis;
    assert_eq!(waits, [(milliseconds(300), (2, 4)), (milliseconds(1000), (3, 4)), (milliseconds(2700), (4, 4))]);

    registry.set(|faults| faults.refuse = vec![(500, "")]);
    assert_eq!(person.fetch(&reference).await.expect("fetched").bytes, bytes);
    let again = told.lock().expect("whole").remove(0);
    assert!(again.place == reference && again.reason.contains("500"), "{again:?}");
}

/// It is not asked for ever, not after longer than anybody waits for, and not where asking again is of no use.
#[tokio::test]
async fn nobody_is_asked_for_ever() {
    let (registry, (person, told)) = (TestRegistry::start(), listening());
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    person.push(&reference, &component(1000)).await.expect("pushed");
    registry.set(|faults| faults.refuse = vec![(503, ""); 4]);
    let error = person.fetch(&reference).await.expect_err("four times").to_string();
    assert!(error.contains("503") && error.contains("not now"), "{error}");
    assert_eq!(told.lock().expect("whole").drain(..).count(), 3);
    registry.set(|faults| faults.refuse = vec![(429, "3600")]);
    let error = person.fetch(&reference).await.expect_err("too long").to_string();
    assert!(error.contains("it wants to be asked again in 3600 s"), "{error}");
    registry.set(|faults| faults.refuse = vec![(400, "1")]);
    person.fetch(&reference).await.expect_err("a bad request stays one");
    person.fetch("127.0.0.1:1/team/calc:1").await.expect_err("nobody is there");
    assert!(told.lock().expect("whole").is_empty());
}

/// Small answers that were cut come again.
#[tokio::test]
async fn what_was_cut_comes_again() {
    let (registry, (person, told)) = (TestRegistry::start(), listening());
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    let bytes = component(1000);
    person.push(&reference, &bytes).await.expect("pushed");
    registry.set(|faults| faults.cut_manifests = 2);
    assert_eq!(person.fetch(&reference).await.expect("fetched").bytes, bytes);
    assert_eq!(told.lock().expect("whole").drain(..).count(), 2);
    registry.set(|faults| faults.cut_manifests = 4);
    let error = person.fetch(&reference).await.expect_err("cut four times");
    assert!(error.is_offline() && error.to_string().contains("the connection was cut"), "{error}");
}
