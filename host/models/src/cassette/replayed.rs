//! A model that answers from a cassette.

use super::{Exchange, FORMAT, Header, MAX_BYTES, account_ids, call_ids};
use crate::decode::ReplyStream;
use crate::encode::{self, Dialect, Format};
use crate::error::{Endpoint, ModelError};
use crate::estimate;
use crate::known_models;
use crate::provider::{ModelInfo, Provider, RawReply, ReplyContext, ToolNameRules};
use crate::request_check;
use agent_core::model::{Delta, Model, ModelRequest, Usage};
use async_trait::async_trait;
use serde_json::Value;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tokio::sync::mpsc::Sender;
use url::Url;

/// Maximum number of levels of the path that an error names.
const MAX_PATH_LEVELS: usize = 8;

/// A model that answers requests with the responses of a cassette. Each response is used once, for a request with the
/// same body as the recorded one.
pub(crate) struct ReplayedModel {
    info: ModelInfo,
    format: Format,
    path: PathBuf,
    /// The exchanges, in which the ids of tool calls have no session suffix.
    exchanges: Vec<Exchange>,
    /// Whether each exchange was used.
    used: Mutex<Vec<bool>>,
}

impl ReplayedModel {
    /// Reads a cassette. A relative path is resolved against `base`.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or is not a cassette.
    pub(crate) fn open(file: &str, base: &Path) -> Result<Self, ModelError> {
        let path = base.join(file);
        let text = read(&path).map_err(|source| ModelError::CassetteFile { path: path.clone(), source })?;
        let invalid = |line: usize, problem: &str| ModelError::InvalidCassette {
            path: path.clone(),
            problem: format!("line {line}: {problem}; record it again with `record:FILE:PROVIDER/MODEL`"),
        };
        let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        let (_, first) = lines.next().ok_or_else(|| invalid(1, "the file is empty"))?;
        let header: Header = serde_json::from_str(first).map_err(|error| invalid(1, &error.to_string()))?;
        if header.cassette != FORMAT {
            return Err(invalid(1, &format!("the format has version {}, not {FORMAT}", header.cassette)));
        }
        let protocol = header.protocol().ok_or_else(|| invalid(1, "the protocol is unknown"))?;
        let base_url = Url::parse(&header.base_url).map_err(|error| invalid(1, &error.to_string()))?;
        let exchanges: Result<Vec<Exchange>, ModelError> = lines
            .map(|(number, line)| {
                let line = call_ids::without_session(line);
                serde_json::from_str(&line).map_err(|error| invalid(number, &error.to_string()))
            })
            .collect();
        let exchanges = exchanges?;
        let known = known_models::find(&header.provider, &header.model).unwrap_or_default();
        let model = Model { provider: header.provider.clone(), name: header.model.clone(), window: header.window };
        let format = Format {
            protocol,
            dialect: Dialect::for_server(&header.provider, &base_url),
            effort: header.effort(),
            thinking: known.thinking,
            images: known.images.unwrap_or(true),
            without_replay: false,
        };
        let info = ModelInfo { model, tool_names: ToolNameRules::COMMON, price: header.price };
        let used = Mutex::new(vec![false; exchanges.len()]);
        Ok(Self { info, format, path, exchanges, used })
    }

    /// Returns the response to a request and marks it as used.
    fn take(&self, request: &Value) -> Result<&str, ModelError> {
        let mut used = self.used.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let unused = || self.exchanges.iter().enumerate().filter(|(index, _)| !used[*index]);
        let Some((index, exchange)) = unused().find(|(_, exchange)| exchange.request == *request) else {
            let problem = match unused().next() {
                None => format!("all {} recorded requests are used up, and one more was sent", self.exchanges.len()),
                Some((index, exchange)) => format!(
                    "this request equals none of the unused recorded requests; it differs from request {} at `{}`",
                    index + 1,
                    first_difference(&exchange.request, request, "$", 0)
                ),
            };
            let problem = format!("{problem}: record the conversation again");
            return Err(ModelError::InvalidCassette { path: self.path.clone(), problem });
        };
        let response = exchange.response.as_str();
        used[index] = true;
        Ok(response)
    }
}

/// Returns the path of the first difference between two JSON values.
fn first_difference(left: &Value, right: &Value, path: &str, level: usize) -> String {
    let inner = match (left, right) {
        _ if level == MAX_PATH_LEVELS => None,
        (Value::Object(left), Value::Object(right)) => {
            let names = left.keys().chain(right.keys()).find(|name| left.get(*name) != right.get(*name));
            names.map(|name| (format!("{path}.{name}"), left.get(name), right.get(name)))
        }
        (Value::Array(left), Value::Array(right)) => {
            let index = (0..left.len().max(right.len())).find(|index| left.get(*index) != right.get(*index));
            index.map(|index| (format!("{path}[{index}]"), left.get(index), right.get(index)))
        }
        _ => None,
    };
    match inner {
        Some((path, Some(left), Some(right))) => first_difference(left, right, &path, level + 1),
        Some((path, ..)) => path,
        None => path.to_owned(),
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

impl fmt::Debug for ReplayedModel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ReplayedModel").field("path", &self.path).finish_non_exhaustive()
    }
}

#[async_trait]
impl Provider for ReplayedModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    async fn reply(
        &self,
        request: &ModelRequest,
        context: ReplyContext<'_>,
        deltas: &Sender<Delta>,
    ) -> Result<RawReply, ModelError> {
        let problems = request_check::find_problems(request, self.info.tool_names);
        if !problems.is_empty() {
            return Err(ModelError::InvalidRequest { model: self.info.model.to_string(), problems });
        }
        let response = match self.find(request, self.format, context).await {
            // The recorded conversation continued without the provider's data after the provider had rejected the data.
            Err(error) => {
                let format = Format { without_replay: true, ..self.format };
                self.find(request, format, context).await.map_err(|_| error)?
            }
            found => found?,
        };
        let model = self.info.model.to_string();
        let invalid = |error: crate::decode::StreamError| ModelError::InvalidReply {
            endpoint: Endpoint::local(model.clone()),
            problem: format!("the recorded response cannot be decoded: {error}"),
        };
        let mut stream = ReplyStream::new(self.format.protocol, &self.info.model.provider, &model);
        let mut pieces = Vec::new();
        stream.push(response.as_bytes(), &mut pieces).map_err(invalid)?;
        let decoded = stream.finish(&mut pieces).map_err(invalid)?;
        for piece in pieces {
            let _ = deltas.send(piece).await;
        }
        let RawReply { mut reply, raw } = decoded.into();
        // A stream can split an id over several events, so the ids in the recorded response are found only now.
        for call in &mut reply.calls {
            call.arguments = call_ids::without_session(&call.arguments);
        }
        reply.text = call_ids::without_session(&reply.text);
        if reply.usage == Usage::default() {
            reply.usage = estimate::usage(request, &reply.text, &reply.calls);
        }
        reply.usage.cost = self.info.price.map(|price| price.cost(reply.usage));
        Ok(RawReply { reply, raw })
    }
}

impl ReplayedModel {
    /// Encodes a request and returns its recorded response.
    async fn find(
        &self,
        request: &ModelRequest,
        format: Format,
        context: ReplyContext<'_>,
    ) -> Result<&str, ModelError> {
        let encoded = encode::encode(request, format, context.media).await?;
        // The recorded body was changed in the same way.
        let body = call_ids::without_session(&account_ids::remove(&String::from_utf8_lossy(&encoded.body)));
        self.take(&serde_json::from_str(&body).unwrap_or(Value::Null))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_difference_is_named() {
        let difference = |left: Value, right: Value| first_difference(&left, &right, "$", 0);
        assert_eq!(difference(json!({"a": [1, {"b": 2}]}), json!({"a": [1, {"b": 3}]})), "$.a[1].b");
        assert_eq!(difference(json!({"a": [1]}), json!({"a": [1, 2]})), "$.a[1]");
        assert_eq!(difference(json!({"a": 1}), json!({"a": 1, "c": 2})), "$.c");
        assert_eq!(difference(json!(1), json!("1")), "$");
    }
}
