//! P11: servers that are busy, fail for a moment or cut connections are asked again, a few times, and it is told.

use crate::registry::{Arrived, TestRegistry};
use crate::{Person, component};
use agent_registry::{Again, Credentials, PlainHttp, Registry};
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

/// An upload of which nobody knows how far it came begins anew in a session of its own, and not where all has arrived.
#[tokio::test]
async fn failed_uploads_begin_anew() {
    let (registry, (person, told)) = (TestRegistry::start(), listening());
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    let bytes = component(1000);
    registry.set(|faults| faults.fail_uploads = vec![(502, Arrived::Nothing), (500, Arrived::Whole)]);
    person.push(&reference, &bytes).await.expect("pushed");
    let reasons: Vec<_> = told.lock().expect("whole").drain(..).map(|again| again.reason).collect();
    assert_eq!(reasons, ["it answers 502 Bad Gateway", "it answers 500 Internal Server Error"]);
    let requests = registry.requests();
    let (begun, sent): (Vec<_>, Vec<_>) = requests
        .iter()
        .filter(|request| request.contains("/blobs/uploads/"))
        .partition(|request| request.starts_with("POST"));
    // The component three times less the one that had arrived, and the configuration once.
    assert_eq!((begun.len(), sent.len()), (3, 3), "{requests:?}");
    assert_eq!(person.fetch(&reference).await.expect("fetched").bytes, bytes);

    let other = component(2000);
    registry.set(|faults| faults.fail_uploads = vec![(504, Arrived::Nothing); 4]);
    let error = person.push(&reference.replace("calc", "other"), &other).await.expect_err("four times").to_string();
    assert!(error.contains("504"), "{error}");
    assert_eq!(told.lock().expect("whole").drain(..).count(), 3);
    registry.set(|faults| faults.fail_uploads = vec![(400, Arrived::Nothing)]);
    person.push(&reference.replace("calc", "other"), &other).await.expect_err("a bad request stays one");
    assert!(told.lock().expect("whole").is_empty());
}

/// A server that says until when it is busy is asked again then.
#[tokio::test]
async fn a_date_is_waited_for() {
    let (registry, (person, told)) = (TestRegistry::start(), listening());
    let reference = format!("{}/team/calc:1.0.0", registry.host());
    registry.set(|faults| faults.refuse = vec![(503, "Fri, 20 Nov 2099 12:00:00 GMT")]);
    let error = person.fetch(&reference).await.expect_err("too long").to_string();
    assert!(error.contains("it wants to be asked again in "), "{error}");
    registry.set(|faults| faults.refuse = vec![(503, "Fri, 20 Nov 2009 12:00:00 GMT")]);
    person.fetch(&reference).await.expect_err("there is nothing");
    let waits: Vec<_> = told.lock().expect("whole").drain(..).map(|again| again.wait).collect();
    assert_eq!(waits, [Duration::from_millis(300)]);
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
