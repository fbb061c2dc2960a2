//! Rows 3 to 6, 8 and 9: Attacks that use up the host's memory or read what other calls left in it.

use crate::guests::{MEMORY_AND_ALLOCATOR, ONE, component, guest, numbers};
use crate::scene::{Scene, run_exclusively, with_short_calls};
use agent_plugins::{CallLimits, Grants, LoadError};
use agent_runtime::AgentConfig;
use serde_json::json;
use std::fmt::Write;

/// Row 3: The host stops a guest that repeatedly copies or fills many megabytes, and a guest that recurses deeply
/// through direct calls or through a function table.
#[test]
fn row_3_stops_giant_copies_and_deep_recursion() {
    let code = r#"
        (table $table 1 funcref)
        (elem (i32.const 0) $indirect)
        (type $step (func (param i64) (result i64)))
        (func (export "copying") (result i32)
          (drop (memory.grow (i32.const 900)))
          (loop $again
            (memory.copy (i32.const 0) (i32.const 29000000) (i32.const 29000000))
            (memory.fill (i32.const 0) (i32.const 7) (i32.const 58000000))
            (br $again))
          (i32.const 0))
        (func (export "beyond") (result i32)
          (memory.copy (i32.const 0) (i32.const 8) (i32.const -16)) (i32.const 0))
        (func $direct (type $step)
          (i64.add (call $direct (i64.add (local.get 0) (i64.const 1))) (local.get 0)))
        (func $indirect (type $step)
          (i64.add
            (call_indirect (type $step) (i64.add (local.get 0) (i64.const 1)) (i32.const 0)) (local.get 0)))
        (func (export "recursing") (result i32) (i32.wrap_i64 (call $direct (i64.const 0))))
        (func (export "roundabout") (result i32) (i32.wrap_i64 (call $indirect (i64.const 0))))"#;
    let functions = ["copying", "beyond", "recursing", "roundabout"];
    run_exclusively(async {
        let scene = Scene::with_components(&[], &[("heavy", numbers(code, &functions))]).await;
        for (name, limit) in [
            ("copying", "wall time of 300ms"),
            ("beyond", "out of bounds"),
            ("recursing", "stack of 512 KiB"),
            ("roundabout", "stack of 512 KiB"),
        ] {
            let attack = async |_| {
                scene
                    .check_stopped(with_short_calls("heavy", Grants::default()), ("heavy", name, json!({})), limit)
                    .await;
            };
            scene.repeat(&format!("row 3, {name}"), attack).await;
        }
    });
}

/// Row 4: The host stops a guest that fills memories, tables or the engine's garbage-collected heap up to a limit.
#[test]
fn row_4_stops_guests_that_fill_memory() {
    let mut code = r#"
        (table $table 1 funcref)
        (func (export "growing") (result i32)
          (loop $more
            (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable))
            (br $more))
          (i32.const 0))
        (func (export "widening") (result i32)
          (loop $more
            (if (i32.eq (table.grow $table (ref.null func) (i32.const 1000)) (i32.const -1)) (then unreachable))
            (br $more))
          (i32.const 0))
        (func (export "coping") (result i32)
          (drop (memory.grow (i32.const 60000)))
          (drop (table.grow $table (ref.null func) (i32.const 100000000)))
          ;; The guest continues, so the trap below is not caused by the limit.
          (drop (memory.grow (i32.const 1)))
          unreachable)
        (func (export "failing") (result i32)
          (drop (memory.grow (i32.const 60000)))
          (drop (memory.grow (i32.const 60000)))
          (drop (table.grow $table (ref.null func) (i32.const 100000000)))
          ;; Half of the memory still fits.
          (i32.ne (memory.grow (i32.const 500)) (i32.const -1)))"#
        .to_owned();
    let mut growing_memories = String::from(r#"(func (export "many") (result i32) (loop $more "#);
    for number in 1..16 {
        let _ = write!(code, "(memory $m{number} 1)");
        let _ = write!(
            growing_memories,
            "(if (i32.eq (memory.grow $m{number} (i32.const 16)) (i32.const -1)) (then unreachable))"
        );
    }
    let code = format!("{code} {growing_memories} (br $more)) (i32.const 0))");
    run_exclusively(async {
        let bombs = numbers(&code, &["growing", "widening", "coping", "failing", "many"]);
        // The component declares a maximum size for its memory. Requests to grow the memory beyond the declared
        // maximum do not count towards the host's limit.
        let bounded = numbers(
            r#"(memory $own 1 10)
               (func (export "again") (result i32)
                 (local $times i32)
                 (loop $again
                   (drop (memory.grow $own (i32.const 900)))
                   (drop (memory.grow $own (i32.const 65536)))
                   (local.set $times (i32.add (local.get $times) (i32.const 1)))
                   (br_if $again (i32.lt_u (local.get $times) (i32.const 1000))))
                 (i32.and
                   (i32.ne (memory.grow $own (i32.const 9)) (i32.const -1))
                   (i32.ne (memory.grow (i32.const 900)) (i32.const -1))))"#,
            &["again"],
        );
        let guests = [("bombs", bombs), ("bounded", bounded), ("heap", heap_bombs())];
        let scene = Scene::with_components(&[], &guests).await;
        for (plugin, name, limit) in [
            ("bombs", "growing", "memory of 64 MiB"),
            ("bombs", "many", "memory of 64 MiB"),
            ("bombs", "widening", "table size of 10000 elements"),
            ("bombs", "coping", "unreachable"),
            ("heap", "listing", "memory of 64 MiB"),
            ("heap", "doubling", "memory of 64 MiB"),
        ] {
            let attack = async |_| {
                scene.check_stopped(with_enough_time(plugin), (plugin, name, json!({})), limit).await;
            };
            scene.repeat(&format!("row 4, {name}"), attack).await;
        }
        let attack = async |_| {
            let (is_error, text) = scene.call(with_short_calls("bombs", Grants::default()), "failing", json!({})).await;
            assert!(!is_error && text == "1", "failed growth is not counted: {text}");
            let (is_error, text) = scene.call(with_short_calls("bounded", Grants::default()), "again", json!({})).await;
            assert!(!is_error && text == "1", "growth beyond its own maximum is not counted: {text}");
        };
        scene.repeat("row 4, failing", attack).await;
    });
}

/// Row 44, P5: The limit applies to the total size of all media items that a call stores, including the items that the
/// call no longer uses.
#[test]
fn row_44_limits_the_total_media_of_a_call() {
    run_exclusively(async {
        let scene = Scene::new(&["intruder"]).await;
        let attack = async |_| {
            let arguments = json!({"deeds": "media 1000000 100"});
            let (_, text) = scene.call(with_enough_time("intruder"), "intruder.deeds", arguments).await;
            assert!(text.contains("32 MiB in total"), "{text}");
        };
        scene.repeat("row 44, media", attack).await;
    });
}

/// Like `with_short_calls`, but the time limit is so long that a call reaches another limit first, even on a
/// busy machine.
fn with_enough_time(plugin: &str) -> AgentConfig {
    crate::scene::with_grants(plugin, Grants::default(), CallLimits::default())
}

/// Creates a component that fills the engine's heap with reachable objects: a growing list, and arrays that double in
/// size.
fn heap_bombs() -> Vec<u8> {
    let code = format!(
        r#"(type $bytes (array (mut i8)))
           (type $node (struct (field (ref null $node)) (field (ref $bytes))))
           {MEMORY_AND_ALLOCATOR}
           (func (export "listing") (result i32)
             (local $last (ref null $node))
             (loop $more
               (local.set $last
                 (struct.new $node (local.get $last) (array.new_default $bytes (i32.const 100000))))
               (br $more))
             (i32.const 0))
           (func (export "doubling") (result i32)
             (local $size i32)
             (local $last (ref null $bytes))
             (local.set $size (i32.const 65536))
             (loop $more
               (local.set $last (array.new_default $bytes (local.get $size)))
               (local.set $size (i32.shl (local.get $size) (i32.const 1)))
               (br_if $more (i32.gt_u (local.get $size) (i32.const 0))))
             (i32.const 0))"#
    );
    guest(&code, &[("listing", "(result u32)"), ("doubling", "(result u32)")])
}

/// Row 4: If a component declares that it needs too much of a resource, it is refused when it is loaded or called, and
/// the error names the resource.
#[test]
fn row_4_refuses_components_that_declare_too_large_sizes() {
    let module = |rest: &str| guest(&format!("{MEMORY_AND_ALLOCATOR} {ONE} {rest}"), &[("one", "(result u32)")]);
    let memories = (0..17).map(|_| "(memory 1)").collect::<String>();
    let guest_with = |name: &str, rest: &str| {
        guest(
            &format!(r#"{MEMORY_AND_ALLOCATOR} (func (export "{name}") (result i32) (i32.const 1)) {rest}"#),
            &[(name, "(result u32)")],
        )
    };
    let instances = |name: &str, count: usize| {
        let modules = format!("(core module $small (func)) (core module $code {MEMORY_AND_ALLOCATOR} {ONE})");
        let instances: String =
            (0..count).map(|number| format!("(core instance $i{number} (instantiate $small))")).collect();
        component(&format!(
            r#"{modules} {instances} (core instance $code (instantiate $code))
               (func (export "{name}") (result u32) (canon lift (core func $code "one")))"#
        ))
    };
    let tables = (0..65).map(|_| "(table 1 funcref)").collect::<String>();
    // If no configuration can allow a size, the host refuses the component when it is loaded. If another configuration
    // could allow the size, the host refuses the component when it is called.
    let bombs = [
        ("a large memory", module("(memory 4097)"), "memory"),
        ("a huge memory", module("(memory 65536)"), "memory"),
        ("17 memories", module(&memories), "memories"),
        ("a wide table", module("(table 1000000 funcref)"), "table"),
        ("65 tables", module(&tables), "tables"),
        ("257 instances", instances("one", 257), "instances"),
    ];
    let large = [
        ("large-memory", guest_with("large-memory", "(memory 1025)"), "memory of 64 MiB"),
        ("wide-table", guest_with("wide-table", "(table 20000 funcref)"), "table size of 10000 elements"),
        ("many-instances", instances("many-instances", 65), "64 core instances"),
    ];
    run_exclusively(async {
        let guests: Vec<_> = large.iter().map(|(name, bytes, _)| (*name, bytes.clone())).collect();
        let scene = Scene::with_components(&[], &guests).await;
        let allowed = scene.test_host.sandbox.load_bytes("many", instances("one", 60)).await;
        assert!(allowed.is_ok(), "60 instances are not too many: {allowed:?}");
        for (description, bytes, reason) in &bombs {
            let attack = async |_| {
                let refused = scene.test_host.sandbox.load_bytes("bomb", bytes.clone()).await;
                let Err(refused @ (LoadError::Start(_) | LoadError::Compile { .. } | LoadError::Link { .. })) = refused
                else {
                    panic!("{description}: {refused:?}")
                };
                assert!(refused.to_string().contains(reason), "{description}: {refused}");
            };
            scene.repeat(&format!("row 4, {description}"), attack).await;
        }
        for (name, _, limit) in &large {
            let attack = async |_| {
                scene.check_stopped(with_short_calls(name, Grants::default()), (name, name, json!({})), limit).await;
                let higher_limits = CallLimits {
                    memory: 128 << 20,
                    table_elements: 20_000,
                    core_instances: 100,
                    ..CallLimits::default()
                };
                let config = crate::scene::with_grants(name, Grants::default(), higher_limits);
                let (is_error, text) = scene.call(config, name, json!({})).await;
                assert!(!is_error && text == "1", "{name} can use all granted memory: {text}");
            };
            scene.repeat(&format!("row 4, {name}"), attack).await;
        }
    });
}

/// Row 5: A call may have at most 1,000 open handles.
#[test]
fn row_5_limits_handles() {
    let code = r#"
        (import "host" "new" (func $new (param i32) (result i32)))
        (func (export "own") (result i32)
          (loop $more (drop (call $new (i32.const 1))) (br $more)) (i32.const 0))"#;
    let things = component(&format!(
        r#"(type $thing (resource (rep i32)))
           (core func $new (canon resource.new $thing))
           (core module $code {code})
           (core instance $code (instantiate $code (with "host" (instance (export "new" (func $new))))))
           (func (export "own") (result u32) (canon lift (core func $code "own")))"#
    ));
    run_exclusively(async {
        let scene = Scene::with_components(&["intruder"], &[("things", things)]).await;
        let folder = crate::files::tree(&scene, "flood");
        let grants = || crate::files::trees(&[(&folder, agent_plugins::Access::Read)]);
        let limit = "1000 resource handles";
        let attack = async |_| {
            scene
                .check_stopped(with_short_calls("things", Grants::default()), ("things", "own", json!({})), limit)
                .await;
        };
        scene.repeat("row 5, guest resources", attack).await;
        for kind in ["waits", "headers", "requests", "files", "streams"] {
            let attack = async |_| {
                let call = ("intruder", "intruder.flood", json!({"what": kind}));
                scene
                    .check_stopped(crate::scene::with_grants("intruder", grants(), Default::default()), call, limit)
                    .await;
            };
            scene.repeat(&format!("row 5, {kind}"), attack).await;
        }
        let attack = async |_| {
            let config = with_short_calls("intruder", Grants::default());
            scene.check_stopped(config, ("intruder", "intruder.fields", json!({})), "32 KiB of headers").await;
            let config = with_short_calls("intruder", Grants::default());
            let call = ("intruder", "intruder.random", json!({}));
            scene.check_stopped(config, call, "64 KiB of random numbers").await;
        };
        scene.repeat("row 5, headers and random numbers", attack).await;
    });
}

/// Row 6: The host refuses results that claim a size of 200 MB, that point outside the guest's memory, or that contain
/// the same megabyte a thousand times.
#[test]
fn row_6_refuses_giant_results() {
    let code = format!(
        r#"{MEMORY_AND_ALLOCATOR}
           (func $answer (param $at i32) (param $length i32) (result i32)
             (i32.store (i32.const 64) (local.get $at)) (i32.store (i32.const 68) (local.get $length)) (i32.const 64))
           (func (export "claims") (result i32) (call $answer (i32.const 1024) (i32.const 200000000)))
           (func (export "outside") (result i32) (call $answer (i32.const -8) (i32.const 64)))
           (func (export "unaligned") (result i32) (call $answer (i32.const 1025) (i32.const 4)))
           (func (export "overlaps") (result i32)
             (local $at i32)
             (drop (memory.grow (i32.const 20)))
             (local.set $at (i32.const 1024))
             (loop $next
               (i32.store (local.get $at) (i32.const 65536))
               (i32.store offset=4 (local.get $at) (i32.const 1048576))
               (local.set $at (i32.add (local.get $at) (i32.const 8)))
               (br_if $next (i32.lt_u (local.get $at) (i32.const 9024))))
             (call $answer (i32.const 1024) (i32.const 1000)))
           (func (export "bytes") (result i32)
             (drop (memory.grow (i32.const 900)))
             (call $answer (i32.const 65536) (i32.const 58000000)))"#
    );
    let kinds = [
        ("claims", "(result string)"),
        ("outside", "(result string)"),
        ("unaligned", "(result (list u32))"),
        ("overlaps", "(result (list string))"),
        ("bytes", "(result (list u8))"),
    ];
    run_exclusively(async {
        let scene = Scene::with_components(&["probe"], &[("giants", guest(&code, &kinds))]).await;
        for (plugin, name, arguments, limit) in [
            ("giants", "claims", json!({}), "out of bounds"),
            ("giants", "outside", json!({}), "out of bounds"),
            ("giants", "unaligned", json!({}), "aligned"),
            ("giants", "overlaps", json!({}), "passed to the host at once"),
            ("giants", "bytes", json!({}), "passed to the host at once"),
            ("probe", "probe.bytes", json!({"bytes": 2 << 20}), "1 MiB of text and JSON"),
            ("probe", "probe.bytes", json!({"bytes": 32 << 20}), "passed to the host at once"),
            ("probe", "probe.image", json!({"bytes": 5 << 20}), "4 MiB for a media item"),
        ] {
            let attack = async |_| {
                let config = crate::scene::with_grants(plugin, Grants::default(), Default::default());
                scene.check_stopped(config, (plugin, name, arguments.clone()), limit).await;
            };
            scene.repeat(&format!("row 6, {name} {arguments}"), attack).await;
        }
    });
}

/// Row 8: A call that logs thousands of lines succeeds, and afterwards the host uses no resources for these lines.
#[test]
fn row_8_cuts_floods_of_logs() {
    run_exclusively(async {
        let scene = Scene::new(&["probe"]).await;
        let attack = async |_| {
            let config = crate::scene::with_grants("probe", Grants::default(), Default::default());
            let (is_error, text) = scene.call(config, "probe.log", json!({"lines": 3_000, "length": 1_000})).await;
            assert!(!is_error && text == "3000 lines", "{text}");
        };
        scene.repeat("row 8, lines", attack).await;
    });
}

/// Row 9: If a call traps, a later call finds nothing that the earlier call left in memories, tables and globals.
#[test]
fn row_9_a_call_leaves_nothing_for_the_next_call() {
    let code = r#"
        (table $table 1000 funcref)
        (global $seen (mut i32) (i32.const 0))
        (elem declare func $soil)
        (func $soil (export "soil") (result i32)
          (local $entry i32)
          (drop (memory.grow (i32.const 500)))
          (memory.fill (i32.const 0) (i32.const 170) (i32.mul (memory.size) (i32.const 65536)))
          (global.set $seen (i32.const 1))
          (table.fill $table (i32.const 0) (ref.func $soil) (i32.const 1000))
          unreachable)
        (func (export "look") (result i32)
          (local $at i32) (local $found i32)
          (drop (memory.grow (i32.const 500)))
          (loop $next
            (local.set $found (i32.or (local.get $found) (i32.load (local.get $at))))
            (local.set $at (i32.add (local.get $at) (i32.const 4)))
            (br_if $next (i32.lt_u (local.get $at) (i32.mul (memory.size) (i32.const 65536)))))
          (local.set $at (i32.const 0))
          (loop $next
            (if (i32.eqz (ref.is_null (table.get $table (local.get $at)))) (then (local.set $found (i32.const 2))))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (br_if $next (i32.lt_u (local.get $at) (i32.const 1000))))
          (i32.or (local.get $found) (global.get $seen)))"#;
    run_exclusively(async {
        let scene = Scene::with_components(&[], &[("slot", numbers(code, &["soil", "look"]))]).await;
        let config = || crate::scene::with_grants("slot", Grants::default(), Default::default());
        let attack = async |_| {
            scene.check_stopped(config(), ("slot", "soil", json!({})), "unreachable").await;
            let looked = scene.calls(config(), &[("look", json!({})), ("look", json!({})), ("look", json!({}))]).await;
            assert!(looked.iter().all(|(is_error, text)| !is_error && text == "0"), "{looked:?}");
        };
        scene.repeat("row 9", attack).await;
    });
}
