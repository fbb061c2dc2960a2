//! "Stream decoding": Decodes the bytes of streams in each wire format, including their JSON, into deltas. The bytes
//! come in reads of 64 KiB, and the measurement uses one core.

use crate::samples::Samples;
use crate::table::{Table, reached};
use agent_core::model::Delta;
use agent_models::Protocol;
use agent_models::decode::ReplyStream;
use agent_models::sse::Decoder;
use futures::StreamExt;
use sse_stream::SseStream;
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

/// The events of a stream in one wire format.
struct Wire {
    protocol: Protocol,
    /// Events before the text and thinking.
    begin: &'static str,
    /// Event with a piece of the text, as JSON text.
    text: fn(&str) -> String,
    /// Event with a piece of the thinking, as JSON text.
    thinking: fn(&str) -> String,
    /// Events after the text and thinking.
    end: &'static str,
}

const WIRES: [Wire; 4] = [
    Wire {
        protocol: Protocol::ChatCompletions,
        begin: "",
        text: |piece| chat_event("content", piece),
        thinking: |piece| chat_event("reasoning_content", piece),
        end: "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
    },
    Wire {
        protocol: Protocol::Responses,
        begin: "",
        text: |piece| responses_event("output_text", 1, piece),
        thinking: |piece| responses_event("reasoning_summary_text", 0, piece),
        end: "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"}}\n\n",
    },
    Wire {
        protocol: Protocol::Anthropic,
        begin: "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":\
                {\"type\":\"thinking\",\"thinking\":\"\"}}\n\nevent: content_block_start\ndata: {\"type\":\
                \"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
        text: |piece| anthropic_event(1, "text", piece),
        thinking: |piece| anthropic_event(0, "thinking", piece),
        end: "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    },
    Wire {
        protocol: Protocol::Gemini,
        begin: "",
        text: |piece| gemini_event("", piece),
        thinking: |piece| gemini_event(",\"thought\":true", piece),
        end: "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n",
    },
];

/// Measures how fast replies are decoded. Some replies consist of small chunks, as providers stream them, and some
/// replies consist of large events in two sizes.
pub(crate) fn measure(table: &mut Table) -> wasmtime::Result<()> {
    let title = format!("stream decoding: bytes to deltas, reads of {} KiB, {ROUNDS} samples", BYTES_PER_READ / 1024);
    table.title(title);
    for wire in &WIRES {
        for (what, event) in [("text", wire.text), ("thinking", wire.thinking)] {
            let body = wire.stream((0..CHUNKS).map(|chunk| event(WORDS[chunk % WORDS.len()])));
            let samples = decode(wire.protocol, &body, BYTES_PER_READ)?;
            let rate = body.len() as f64 / samples.median().as_secs_f64();
            let size = body.len() as f64 / 1e6;
            let verdict = format!("{size:.1} MB, {:.0} MB/s; target 200 MB/s: {}", rate / 1e6, reached(rate >= TARGET));
            table.line(&format!("{}: {what} in small chunks", wire.protocol), samples, verdict);
        }
    }
    for wire in &WIRES {
        let large = "word ".repeat(LARGE_EVENT_BYTES / 5);
        let in_events =
            |events: usize| wire.stream(std::iter::repeat_n((wire.text)(&large.repeat(8 / events)), events));
        let smaller_events = decode(wire.protocol, &in_events(8), SMALL_READ)?;
        let larger_events = decode(wire.protocol, &in_events(2), SMALL_READ)?;
        let ratio = larger_events.median().as_secs_f64() / smaller_events.median().as_secs_f64();
        let name = |size| format!("{}: 8 MiB of text in events of {size} MiB", wire.protocol);
        table.line(&name(1), smaller_events, format!("reads of {} KiB", SMALL_READ / 1024));
        let verdict = format!("{ratio:.2} × the time; target linear: {}", reached(ratio <= MAX_RATIO));
        table.line(&name(4), larger_events, verdict);
    }
    compare_framing(table)
}

/// Compares how fast the decoder and the crate `sse-stream` separate a body into events. The JSON of the events is not
/// parsed.
fn compare_framing(table: &mut Table) -> wasmtime::Result<()> {
    let wire = &WIRES[0];
    let body = wire.stream((0..CHUNKS).map(|chunk| (wire.text)(WORDS[chunk % WORDS.len()])));
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for round in 0..WARM_UP + ROUNDS {
        let start = Instant::now();
        let (mut decoder, mut events) = (Decoder::default(), 0);
        for mut read in body.chunks(BYTES_PER_READ) {
            while decoder.next(&mut read).is_ok_and(|event| event.is_some()) {
                events += 1;
            }
        }
        let elapsed = start.elapsed();
        // The bytes that arrive on a connection are already in buffers of the type `Bytes`.
        let reads: Vec<bytes::Bytes> = body.chunks(BYTES_PER_READ).map(bytes::Bytes::copy_from_slice).collect();
        let start = Instant::now();
        let reads = futures::stream::iter(reads.into_iter().map(Ok::<_, std::convert::Infallible>));
        let counted = futures::executor::block_on(SseStream::from_bytes_stream(reads).count());
        let their_elapsed = start.elapsed();
        if events != counted {
            bail!("the decoders found {events} and {counted} events");
        }
        if round >= WARM_UP {
            ours.push(elapsed);
            theirs.push(their_elapsed);
        }
    }
    let ratio = ours.median().as_secs_f64() / theirs.median().as_secs_f64();
    table.line("events alone, without their JSON", ours, format!("{ratio:.2} × `sse-stream`"));
    table.line("the same with the crate `sse-stream`", theirs, String::new());
    Ok(())
}

impl Wire {
    fn stream(&self, events: impl Iterator<Item = String>) -> Vec<u8> {
        std::iter::once(self.begin.to_owned())
            .chain(events)
            .chain([self.end.to_owned()])
            .collect::<String>()
            .into_bytes()
    }
}

/// Returns a stream chunk that has all fields of the chunks that OpenAI sends.
fn chat_event(field: &str, json_text: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-0123456789abcdefghijklmnopqrs\",\"object\":\"chat.completion.chunk\",\
         \"created\":1741570283,\"model\":\"gpt-4o-mini-2024-07-18\",\"service_tier\":\"default\",\
         \"system_fingerprint\":\"fp_0123456789\",\"choices\":[{{\"index\":0,\"delta\":{{\"{field}\":\"{json_text}\"}},\
         \"logprobs\":null,\"finish_reason\":null}}],\"obfuscation\":\"aBcDeFgH\"}}\n\n"
    )
}

/// Returns an event with the same fields as the events of OpenAI.
fn responses_event(kind: &str, index: u32, json_text: &str) -> String {
    format!(
        "event: response.{kind}.delta\ndata: {{\"type\":\"response.{kind}.delta\",\"sequence_number\":1234,\"item_id\":\
         \"msg_0123456789abcdef0123456789abcdef\",\"output_index\":{index},\"content_index\":0,\"delta\":\"{json_text}\",\
         \"logprobs\":[],\"obfuscation\":\"aBcDeFgH\"}}\n\n"
    )
}

/// Returns an event that has all fields of the events that Anthropic sends.
fn anthropic_event(index: u32, kind: &str, json_text: &str) -> String {
    format!(
        "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":{index},\"delta\":{{\"type\":\
         \"{kind}_delta\",\"{kind}\":\"{json_text}\"}}}}\n\n"
    )
}

/// Returns an event that has all fields of the events that Google sends.
fn gemini_event(flag: &str, json_text: &str) -> String {
    format!(
        "data: {{\"candidates\": [{{\"content\": {{\"parts\": [{{\"text\": \"{json_text}\"{flag}}}],\"role\": \"model\"}},\
         \"index\": 0}}],\"usageMetadata\": {{\"promptTokenCount\": 24,\"candidatesTokenCount\": 8,\"totalTokenCount\": 32}},\
         \"modelVersion\": \"gemini-2.5-flash\",\"responseId\": \"0123456789abcdefghijkl\"}}\n\n"
    )
}

/// Measures the time to decode the whole body as one reply, in reads of `read` bytes.
fn decode(protocol: Protocol, body: &[u8], read: usize) -> wasmtime::Result<Samples> {
    let mut samples = Samples::default();
    let mut deltas: Vec<Delta> = Vec::new();
    for round in 0..WARM_UP + ROUNDS {
        let start = Instant::now();
        let mut stream = ReplyStream::new(protocol, "bench", "bench/model");
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
