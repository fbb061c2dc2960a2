//! Decodes arbitrary bytes as a reply in the format Anthropic Messages.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| decoder_fuzz::check(agent_models::Protocol::Anthropic, input));
