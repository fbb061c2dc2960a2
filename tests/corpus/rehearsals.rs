//! Rows 39, 40 and 44: A plugin attacks the copies with which the call of another plugin is rehearsed, and a rehearsed
//! call tries to fill the disk.

use crate::files::{tree, trees};
use crate::scene::{Scene, run_exclusively, with_grants};
use crate::support::{call_reply, results, run_turn, text_reply};
use agent_core::approval::ApprovalPolicy;
use agent_core::message::CallId;
use agent_core::plugin::{Scope, TraceContext};
use agent_core::tool::ToolOutcome;
use agent_plugins::{
    Access, CallLimits, Grants, PluginSetup, Ports, ScratchQuota, ToolCallContext, ToolCallRequest, TreeGrant,
};
use agent_runtime::TurnResult;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A timeout that expires only if the host hangs.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);

fn operations(operations: &str) -> (&'static str, Value) {
    ("intruder.deeds", json!({ "deeds": operations }))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("the entry can be read").path()).collect()
}

/// Waits until the folder with the copies of a rehearsal contains this file, and returns the folder.
async fn copies_with(scratch: &Path, file: &str) -> PathBuf {
    let start = Instant::now();
    loop {
        if let Some(copies) = entries(scratch).into_iter().find(|copies| copies.join(file).exists()) {
            return copies;
        }
        assert!(start.elapsed() < HANG_TIMEOUT, "the rehearsal has made no copies");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn wait_until_empty(folder: &Path) {
    let start = Instant::now();
    while !entries(folder).is_empty() {
        assert!(start.elapsed() < HANG_TIMEOUT, "{:?} is left", entries(folder));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Rows 39 and 40: A plugin whose grant contains the folder with the copies can neither list, read, change nor replace
/// the copies while the call of another session is rehearsed. The shown difference and a canary outside are intact.
#[test]
fn row_39_row_40_no_grant_covers_the_copies_of_a_rehearsal() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let scratch = scene.folder().join("scratch");
        let attack = async |repeat: usize| {
            let (mine, outside) = (tree(&scene, &format!("mine-{repeat}")), tree(&scene, &format!("outside-{repeat}")));
            let own = mine.file_name().unwrap().to_str().unwrap();
            let link = scene.folder().join(format!("link-{repeat}"));
            std::os::unix::fs::symlink(&outside, &link).unwrap();
            let mut config = with_grants("intruder", trees(&[(&mine, Access::ReadWrite)]), CallLimits::default());
            config.approvals.tools.insert("intruder.deeds".to_owned(), ApprovalPolicy::Ask);
            let call = operations(&format!("read {own}/own.txt; write {own}/own.txt changed; sleep 300"));
            let mut session = scene.session(config, &[call_reply(&[call]), text_reply("Done.")]).await;
            let TurnResult::Suspended(suspension) = run_turn(&mut session, "Go.").await else {
                panic!("the call runs")
            };
            let call = suspension.waits[0].call.clone();
            let rehearsal = tokio::spawn(async move {
                let changes = session.rehearse(&call, None).await.expect("the session is open");
                session.close().await.expect("the session closes");
                changes
            });
            let copies = copies_with(&scratch, "0/own.txt").await;
            let name = copies.file_name().unwrap().to_str().unwrap();
            let attacks = [
                "list all/scratch".to_owned(),
                format!("list all/scratch/{name}/0"),
                format!("read all/scratch/{name}/0/own.txt"),
                format!("write all/scratch/{name}/0/own.txt forged"),
                format!("write all/scratch/{name}/0/new.txt forged"),
                format!("remove all/scratch/{name}/0/own.txt"),
                format!("rmdir all/scratch/{name}/0"),
                format!("move all/scratch/{name}/0 all/scratch/{name}/1"),
                format!("move all/link-{repeat} all/scratch/{name}/0"),
                format!("move all/scratch/{name} all/taken"),
                "move all/scratch all/taken".to_owned(),
            ];
            let all = TreeGrant { host: scene.folder().to_owned(), guest: "all".to_owned(), access: Access::ReadWrite };
            let mut attacker =
                with_grants("intruder", Grants { trees: vec![all], ..Grants::default() }, CallLimits::default());
            attacker.name = "other".to_owned();
            let replies = [call_reply(&[operations(&attacks.join("; "))]), text_reply("Done.")];
            let mut session = scene.session(attacker, &replies).await;
            let result = run_turn(&mut session, "Go.").await;
            assert!(matches!(result, TurnResult::Finished(_)), "{result:?}");
            let (_, _, text) = results(&scene.test_host, &session).await.remove(0);
            session.close().await.expect("the session closes");
            for attack in &attacks {
                // The copies may be gone already, but the folder that contains them is always protected.
                let denied = format!("{attack}: PermissionDenied");
                let is_denied = text.contains(&denied) || text.contains(&format!("{attack}: NotFound"));
                assert!(is_denied, "{attack} was not denied: {text}");
            }
            assert!(text.contains("list all/scratch: PermissionDenied"), "{text}");
            let changes = rehearsal.await.expect("the rehearsal does not panic");
            let [change] = &changes[..] else { panic!("{changes:?}") };
            assert_eq!(change.path, mine.join("own.txt"));
            assert_eq!((change.old.as_deref(), change.new.as_deref()), (Some("its own words"), Some("changed")));
            assert_eq!(entries(&outside), [outside.join("own.txt")]);
            for file in [mine.join("own.txt"), outside.join("own.txt")] {
                assert_eq!(std::fs::read_to_string(file).unwrap(), "its own words");
            }
            wait_until_empty(&scratch).await;
            std::fs::remove_file(link).unwrap();
            for folder in [mine, outside] {
                std::fs::remove_dir_all(folder).unwrap();
            }
        };
        scene.repeat("rows 39 and 40, the copies of a rehearsal", attack).await;
    });
}

/// Row 44: All scratch trees of a call share one small quota, and everything in them is removed.
#[test]
fn row_44_scratch_trees_have_a_small_quota() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let scratch_folder = scene.folder().join("scratch");
        let attack = async |repeat: usize| {
            let (one, two) = (tree(&scene, &format!("one-{repeat}")), tree(&scene, &format!("two-{repeat}")));
            let grants = trees(&[(&one, Access::ReadWrite), (&two, Access::ReadWrite)]);
            let quota = ScratchQuota::Own { bytes: 8 << 10, entries: 20 };
            let scratch = Arc::new(scene.test_host.sandbox.scratch_trees(2, quota).expect("created"));
            let granted = Grants { trees: scratch.replacing(&grants.trees), ..Grants::default() };
            let plugin = scene.generation.plugin("intruder").expect("loaded").clone();
            let setup = PluginSetup::new(plugin, granted.clone(), CallLimits::default());
            let deeds = format!(
                "fill one-{repeat}/a 6; fill two-{repeat}/b 6; folders one-{repeat} 10; folders two-{repeat} 10"
            );
            let call = |setup: PluginSetup| {
                let (sandbox, args) = (scene.test_host.sandbox.clone(), json!({"deeds": deeds}).to_string());
                async move {
                    let trace = TraceContext { traceparent: String::new(), tracestate: None };
                    let (agent, session) = ("test".to_owned(), "test/1".to_owned());
                    let scope = Scope { agent, session, delegated_by: None, user: None, turn: 1, trace };
                    let (id, time_limit) = (CallId("1.1.1".to_owned()), Duration::from_secs(20));
                    let context = ToolCallContext { id, attempt: 1, time_limit, scope };
                    let request = ToolCallRequest { name: "intruder.deeds", args, context };
                    sandbox.call_tool(&setup, request, &Ports::default()).await.result
                }
            };
            let result = call(setup.clone().with_scratch(Arc::clone(&scratch))).await;
            let Ok(Ok(ToolOutcome::Done(done))) = result else { panic!("{result:?}") };
            let text = format!("{:?}", done.content);
            assert!(text.contains(&format!("fill one-{repeat}/a 6: \\n")), "{text}");
            for refused in [format!("fill two-{repeat}/b 6: "), format!("folders two-{repeat} 10: ")] {
                assert!(!text.contains(&format!("{refused}\\n")), "{refused} was not refused: {text}");
            }
            assert_eq!(entries(&one).len() + entries(&two).len(), 2, "the granted trees are unchanged");
            // The grants alone, without the scratch trees, allow nothing.
            let result = call(setup).await;
            let text = format!("{result:?}");
            assert!(text.contains(&format!("fill one-{repeat}/a 6: PermissionDenied")), "{text}");
            drop(scratch);
            wait_until_empty(&scratch_folder).await;
            for folder in [one, two] {
                std::fs::remove_dir_all(folder).unwrap();
            }
        };
        scene.repeat("row 44, scratch trees", attack).await;
    });
}
