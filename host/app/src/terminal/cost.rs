//! Formats the cost of a call as text (P8).

use super::text::{count, grouped, size, time};
use agent_core::tool::CallCost;

/// Shortest queue time of a call that is shown on the first line of the call's card, in microseconds.
const MIN_QUEUE_TIME: u64 = 10_000;

/// Formats the most important costs of a call, for the first line of a card. The result is empty if the call never ran.
pub(crate) fn brief(cost: &CallCost) -> String {
    let mut details = Vec::new();
    // A call that was rejected before it ran has no costs.
    if *cost != CallCost::default() {
        details.push(time(cost.wall_us));
    }
    if cost.queue_us >= MIN_QUEUE_TIME {
        details.push(format!("after waiting {}", time(cost.queue_us)));
    }
    if cost.memory_bytes > 0 {
        details.push(size(cost.memory_bytes));
    }
    details.extend(requests(cost).into_iter().chain(model(cost)).chain(fuel(cost)));
    details.join(", ")
}

/// Formats all costs of a call. The result is empty if the call never ran.
pub(crate) fn whole(cost: &CallCost) -> String {
    if *cost == CallCost::default() {
        return String::new();
    }
    let mut details = vec![time(cost.wall_us)];
    // Only plugin calls have queue time, processor time and memory.
    if cost.memory_bytes > 0 {
        details.push(format!("{} of processor time", time(cost.cpu_us)));
        details.push(format!("{} in the queue", time(cost.queue_us)));
        details.push(format!("{} of memory", size(cost.memory_bytes)));
        details.push(format!("{} in, {} out", size(cost.bytes_in), size(cost.bytes_out)));
    }
    details.extend(requests(cost).into_iter().chain(model(cost)).chain(fuel(cost)));
    details.join(", ")
}

fn model(cost: &CallCost) -> Option<String> {
    let asks = usize::try_from(cost.model.asks).unwrap_or(usize::MAX);
    let tokens = grouped(cost.model.usage.total());
    (asks > 0).then(|| format!("{} of {tokens} tokens", count(asks, "model request")))
}

fn fuel(cost: &CallCost) -> Option<String> {
    cost.fuel.map(|fuel| format!("{} units of fuel", grouped(fuel)))
}

fn requests(cost: &CallCost) -> Option<String> {
    (cost.requests > 0).then(|| count(usize::try_from(cost.requests).unwrap_or(usize::MAX), "request"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::model::Usage;
    use agent_core::tool::ModelUse;

    #[test]
    fn p8_formats_brief_and_complete_costs() {
        let cost = CallCost {
            cpu_us: 400,
            wall_us: 4_200,
            queue_us: 12_000,
            memory_bytes: 1_258_291,
            bytes_in: 2_048,
            bytes_out: 17,
            requests: 2,
            fuel: Some(1_234_567),
            model: ModelUse { asks: 1, usage: Usage::new(1_000, 24) },
        };
        assert_eq!(
            brief(&cost),
            "4.2 ms, after waiting 12 ms, 1.2 MiB, 2 requests, 1 model request of 1,024 tokens, 1,234,567 units of fuel"
        );
        assert_eq!(
            whole(&cost),
            "4.2 ms, 0.4 ms of processor time, 12 ms in the queue, 1.2 MiB of memory, 2.0 KiB in, 17 bytes out, \
             2 requests, 1 model request of 1,024 tokens, 1,234,567 units of fuel"
        );
        let host_tool = CallCost { wall_us: 300, ..CallCost::default() };
        assert_eq!((brief(&host_tool), whole(&host_tool)), ("0.3 ms".to_owned(), "0.3 ms".to_owned()));
        assert_eq!((brief(&CallCost::default()), whole(&CallCost::default())), Default::default());
    }
}
