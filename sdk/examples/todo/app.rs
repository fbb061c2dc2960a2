//! Stored values: a list of tasks that is kept between calls. Each task has its own key, so that calls at the same time
//! do not overwrite each other's changes.

use agent_host_sdk::key_value::{Bucket, KeyValueError};
use agent_host_sdk::prelude::*;

/// Arguments of `todo.add`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Add {
    /// The task, in one line.
    #[schemars(length(min = 1))]
    task: String,
}

/// Result of `todo.add`.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Added {
    /// The number of the task.
    number: i64,
}

/// Result of `todo.list`.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Tasks {
    /// The tasks that are not done, oldest first.
    tasks: Vec<Task>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Task {
    /// The number of the task.
    number: i64,
    /// The task.
    task: String,
}

/// Arguments of `todo.done`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Finish {
    /// The number of the task.
    #[schemars(range(min = 1))]
    number: i64,
}

/// The type that implements the tools.
pub struct Plugin;

impl ToolPlugin for Plugin {
    fn tools() -> Tools {
        Tools::new()
            .tool(
                Tool::new("todo.add", "Adds a task to the list, and returns its number.")
                    .output::<Added>()
                    .run(|Add { task }, _: &Call| Done::json(&Added { number: add(&task)? })),
            )
            .tool(
                Tool::new("todo.list", "Lists the tasks that are not done.")
                    .read_only()
                    .output::<Tasks>()
                    .run(|_: NoArguments, _: &Call| Done::json(&Tasks { tasks: list()? })),
            )
            .tool(
                Tool::new("todo.done", "Removes a task that is done from the list.")
                    .run(|Finish { number }, _: &Call| finish(number)),
            )
    }
}

agent_host_sdk::export_tools!(Plugin);

/// Returns the key of a task. The zeros keep the keys in the order of the numbers.
fn key_of(number: i64) -> String {
    format!("task-{number:06}")
}

fn add(task: &str) -> Result<i64, KeyValueError> {
    let bucket = Bucket::open("default")?;
    // No two calls get the same number, even if they run at the same time.
    let number = bucket.increment("count", 1)?;
    bucket.set(&key_of(number), task.as_bytes())?;
    Ok(number)
}

fn list() -> Result<Vec<Task>, KeyValueError> {
    let bucket = Bucket::open("default")?;
    let mut tasks = Vec::new();
    for key in bucket.keys()? {
        if let Some(number) = key.strip_prefix("task-").and_then(|number| number.parse().ok())
            && let Some(task) = text(&bucket, &key)?
        {
            tasks.push(Task { number, task });
        }
    }
    Ok(tasks)
}

fn finish(number: i64) -> Result<String, ToolError> {
    let (bucket, key) = (Bucket::open("default")?, key_of(number));
    let Some(task) = text(&bucket, &key)? else {
        return Err(ToolError::not_found(format!("there is no task {number}")));
    };
    bucket.delete(&key)?;
    Ok(format!("Done: {task}"))
}

fn text(bucket: &Bucket, key: &str) -> Result<Option<String>, KeyValueError> {
    Ok(bucket.get(key)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}
