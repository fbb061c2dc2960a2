//! "Stream decoding": Decodes the bytes of a Chat Completions stream, including its JSON, into deltas. The bytes come
//! in reads of 64 KiB, and the measurement uses one core.

use crate::samples::Samples;
use crate::table::{Table, reached};
use agent_core::model::Delta;
use agent_models::chat_stream::ChatStream;
use std::time::{Duration, Instant};
use wasmtime::bail;

const WARM_UP: usize = 5;
const ROUNDS: usize = 60;
const BYTES_PER_READ: usize = 64 * 1024;
/// The target in bytes per second.
const TARGET: f64 = 200e6;
/// The number of chunks in the stream of small events. The stream has about 8 MB.
const CHUNKS: usize = 25_000;
/// The number of bytes per read while the benchmark decodes replies that consist of large events. One event needs many
/// reads, so a decoder that scans its bytes again at each read would be slow.
const SMALL_READ: usize = 4 * 1024;
/// The number of bytes of text in the smaller of the two large events. The larger event has four times as many bytes.
const LARGE_EVENT_BYTES: usize = 1024 * 1024;
/// The maximum ratio of two times: the time to decode a text in the larger events, and the time to decode the same text
/// in the smaller events. If the decoder needed quadratic time, the ratio would be four.
const MAX_RATIO: f64 = 2.0;

const WORDS: [&str; 8] = [" the", " answer", " is", ",", " forty", "-two", "\\n\\n", " because"];

/// Measures how fast replies are decoded. Some replies consist of small chunks, as providers stream them, and some
/// replies consist of large events in two sizes.
pub(crate) fn measure(table: &mut Table) -> wasmtime::Result<()> {
    let text = stream((0..CHUNKS).map(|chunk| chunk_of("content", WORDS[chunk % WORDS.len()])));
    let thinking = stream((0..CHUNKS).map(|chunk| chunk_of("reasoning_content", WORDS[chunk % WORDS.len()])));
    let large = "word ".repeat(LARGE_EVENT_BYTES / 5);
    let in_events = |events: usize| stream(std::iter::repeat_n(chunk_of("content", &large.repeat(8 / events)), events));
    let (large, larger) = (in_events(8), in_events(2));

    let title = format!("stream decoding: bytes to deltas, reads of {} KiB, {ROUNDS} samples", BYTES_PER_READ / 1024);
    table.title(title);
    for (what, body) in [("text in small chunks", &text), ("thinking in small chunks", &thinking)] {
        let samples = decode(body, BYTES_PER_READ)?;
        let rate = body.len() as f64 / samples.median().as_secs_f64();
        let size = body.len() as f64 / 1e6;
        let verdict = format!("{size:.1} MB, {:.0} MB/s; target 200 MB/s: {}", rate / 1e6, reached(rate >= TARGET));
        table.line(what, samples, verdict);
    }
    let (smaller_events, larger_events) = (decode(&large, SMALL_READ)?, decode(&larger, SMALL_READ)?);
    let ratio = larger_events.median().as_secs_f64() / smaller_events.median().as_secs_f64();
    table.line("8 MiB of text in events of 1 MiB", smaller_events, format!("reads of {} KiB", SMALL_READ / 1024));
    let verdict = format!("{ratio:.2} × the time; target linear: {}", reached(ratio <= MAX_RATIO));
    table.line("8 MiB of text in events of 4 MiB", larger_events, verdict);
    Ok(())
}

/// Returns a stream chunk that has all fields of the chunks that OpenAI sends.
fn chunk_of(field: &str, json_text: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-0123456789abcdefghijklmnopqrs\",\"object\":\"chat.completion.chunk\",\
         \"created\":1741570283,\"model\":\"gpt-4o-mini-2024-07-18\",\"service_tier\":\"default\",\
         \"system_fingerprint\":\"fp_0123456789\",\"choices\":[{{\"index\":0,\"delta\":{{\"{field}\":\"{json_text}\"}},\
         \"logprobs\":null,\"finish_reason\":null}}],\"obfuscation\":\"aBcDeFgH\"}}\n\n"
    )
}

fn stream(chunks: impl Iterator<Item = String>) -> Vec<u8> {
    let end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    chunks.chain([end.to_owned()]).collect::<String>().into_bytes()
}

/// Measures the time to decode the whole body as one reply, by reading `read` bytes at a time.
fn decode(body: &[u8], read: usize) -> wasmtime::Result<Samples> {
    let mut samples = Samples::default();
    let mut deltas: Vec<Delta> = Vec::new();
    for round in 0..WARM_UP + ROUNDS {
        let start = Instant::now();
        let mut stream = ChatStream::new("bench", "bench/model");
        for read in body.chunks(read) {
            // The list is emptied after each read, because the host's reader of a connection also forwards its deltas
            // after each read.
            deltas.clear();
            if let Err(error) = stream.push(read, &mut deltas) {
                bail!("the stream was not decoded: {error}");
            }
        }
        let decoded = stream.finish(&mut deltas);
        let elapsed: Duration = start.elapsed();
        if let Err(error) = decoded {
            bail!("the stream was not decoded: {error}");
        }
        if round >= WARM_UP {
            samples.push(elapsed);
        }
    }
    Ok(samples)
}
