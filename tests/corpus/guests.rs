//! Small malicious components that no compiler would produce. They are built from WebAssembly text.

use std::fmt::Write;

/// Core code with one memory and an allocator that never frees memory.
pub(crate) const MEMORY_AND_ALLOCATOR: &str = r#"
    (memory (export "memory") 2)
    (global $free (mut i32) (i32.const 65536))
    (func (export "realloc") (param $old i32) (param $size i32) (param $align i32) (param $new i32) (result i32)
      (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
      (global.set $free (i32.add (local.get $at) (local.get $new)))
      (local.get $at))
"#;

/// Creates a component with this core code. The component exports functions that have no parameters and return
/// a number.
pub(crate) fn numbers(code: &str, functions: &[&str]) -> Vec<u8> {
    let functions: Vec<_> = functions.iter().map(|name| (*name, "(result u32)")).collect();
    guest(&format!("{MEMORY_AND_ALLOCATOR} {code}"), &functions)
}

/// Creates a component that contains this core code and exports these functions. Each exported function is implemented
/// by the core function with the same name.
pub(crate) fn guest(code: &str, functions: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!(
        r#"(core module $code {code})
           (core instance $code (instantiate $code))
           (alias core export $code "memory" (core memory $memory))
           (alias core export $code "realloc" (core func $realloc))"#
    );
    for (name, kind) in functions {
        let _ = write!(
            text,
            r#"(func (export "{name}") {kind}
                 (canon lift (core func $code "{name}") (memory (core memory $memory)) (realloc (core func $realloc))))"#
        );
    }
    component(&text)
}

/// Creates a component from this text.
pub(crate) fn component(text: &str) -> Vec<u8> {
    wat::parse_str(format!("(component {text})")).unwrap_or_else(|error| panic!("{error}"))
}

/// Creates a component with endless loops: in a function, while the function's arguments are passed, and after the
/// function has returned.
pub(crate) fn endless() -> Vec<u8> {
    let module = |name: &str, realloc: &str, after: &str| {
        format!(
            r#"(core module ${name} (memory (export "memory") 2)
                 (func (export "realloc") (param i32 i32 i32 i32) (result i32) {realloc} (i32.const 65536))
                 (func (export "run") (loop $for_ever (br $for_ever)))
                 (func (export "take") (param i32 i32))
                 (func (export "give") (result i32) (i32.const 64))
                 (func (export "after") (param i32) {after}))
               (core instance ${name} (instantiate ${name}))
               (alias core export ${name} "memory" (core memory ${name}-memory))
               (alias core export ${name} "realloc" (core func ${name}-realloc))"#
        )
    };
    let (never, loops) = ("", "(loop $for_ever (br $for_ever))");
    let text = [
        module("plain", never, never),
        module("taking", loops, never),
        module("giving", never, loops),
        r#"(func (export "computing") (canon lift (core func $plain "run")))"#.to_owned(),
        r#"(func (export "taking") (param "text" string)
             (canon lift (core func $taking "take") (memory $taking-memory) (realloc (core func $taking-realloc))))"#
            .to_owned(),
        r#"(func (export "giving") (result string)
             (canon lift (core func $giving "give") (memory $giving-memory)
               (post-return (core func $giving "after"))))"#
            .to_owned(),
    ];
    component(&text.concat())
}

/// Creates a component that runs an endless loop when it is instantiated.
pub(crate) fn endless_start() -> Vec<u8> {
    let code = format!("{MEMORY_AND_ALLOCATOR} (func $start (loop $for_ever (br $for_ever))) (start $start) {ONE}");
    guest(&code, &[("one", "(result u32)")])
}

/// Core code of a harmless function.
pub(crate) const ONE: &str = r#"(func (export "one") (result i32) (i32.const 1))"#;
