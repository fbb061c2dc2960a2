//! Examines bytes as the compiler process does: the structure, the interfaces and the documentation of a component.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // Most inputs are not components. Each input is therefore examined twice: unchanged, and with the header of a
    // component in front of it, so that it reaches more code of the parser.
    agent_plugins::fuzzing::examine(bytes);
    agent_plugins::fuzzing::examine(&[b"\0asm\x0d\0\x01\0", bytes].concat());
});
