//! The lines of Claude Code's stream, as far as they are read.
//!
//! Keys come in any order and unknown ones are skipped over, so that a newer CLI stays readable.

use std::borrow::Cow;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::super::text::{SHORT_MAX_BYTES, clip};

/// What kind of line it is.
#[derive(Deserialize)]
pub(super) struct Head<'a> {
    /// `system`, `assistant`, `user`, `result`, ...
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    /// Of a `system` line: which one.
    #[serde(borrow)]
    pub(super) subtype: Option<Cow<'a, str>>,
}

/// `system/init`: the beginning of a session, and of each turn that a background task wakes.
#[derive(Deserialize)]
pub(super) struct Init {
    /// The session.
    pub(super) session_id: Option<String>,
    /// The model that the CLI has settled on.
    pub(super) model: Option<String>,
}

/// `system/api_retry`: the CLI waits before it asks the server again.
#[derive(Deserialize)]
pub(super) struct ApiRetry {
    /// Which try it is.
    pub(super) attempt: Option<u64>,
    /// How long until the next one.
    pub(super) retry_delay_ms: Option<f64>,
    /// The HTTP status, if there was an answer.
    pub(super) error_status: Option<u64>,
    /// Why, in a word of the CLI.
    pub(super) error: Option<String>,
}

/// `system/permission_denied`.
#[derive(Deserialize)]
pub(super) struct Denied {
    /// The tool.
    pub(super) tool_name: Option<String>,
    /// The call.
    pub(super) tool_use_id: Option<String>,
}

/// Any other `system` line that tells people something.
#[derive(Deserialize)]
pub(super) struct Told {
    /// The text.
    pub(super) content: Option<Value>,
}

/// `assistant`: one block of a message.
#[derive(Deserialize)]
pub(super) struct Assistant {
    /// The message.
    pub(super) message: Message,
    /// Set in what a subagent says.
    pub(super) parent_tool_use_id: Option<String>,
    /// Set in what a subagent says.
    pub(super) agent_id: Option<String>,
    /// Set in a message that the CLI made up because a request failed.
    pub(super) error: Option<Value>,
}

/// A message of the model.
#[derive(Deserialize)]
pub(super) struct Message {
    /// The same for all blocks of one message.
    pub(super) id: Option<String>,
    /// Its blocks, one a line.
    #[serde(default)]
    pub(super) content: Vec<Block>,
}

/// A block of a message.
#[derive(Deserialize)]
pub(super) struct Block {
    /// `text`, `thinking`, `tool_use`, ...
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// Of a text.
    pub(super) text: Option<String>,
    /// Of a tool call.
    pub(super) id: Option<String>,
    /// Of a tool call: which tool.
    pub(super) name: Option<String>,
    /// Of a tool call: what with.
    pub(super) input: Option<Value>,
}

/// `user`: results of tools, or words that the CLI put in itself.
#[derive(Deserialize)]
pub(super) struct User<'a> {
    /// The message.
    #[serde(borrow)]
    pub(super) message: UserMessage<'a>,
}

/// A message to the model.
#[derive(Deserialize)]
pub(super) struct UserMessage<'a> {
    /// A text or blocks.
    #[serde(borrow)]
    pub(super) content: Content<'a>,
}

/// The content of a message to the model.
pub(super) enum Content<'a> {
    /// One text.
    Text(Cow<'a, str>),
    /// Blocks.
    Blocks(Vec<UserBlock<'a>>),
    /// Nothing that is read.
    Other,
}

/// A block of a message to the model.
#[derive(Deserialize)]
pub(super) struct UserBlock<'a> {
    /// `tool_result`, `text`, ...
    #[serde(rename = "type", borrow)]
    pub(super) kind: Cow<'a, str>,
    /// Of a text.
    #[serde(borrow)]
    pub(super) text: Option<Cow<'a, str>>,
    /// Of a result: of which call.
    #[serde(borrow)]
    pub(super) tool_use_id: Option<Cow<'a, str>>,
    /// Of a result: whether the call failed.
    pub(super) is_error: Option<bool>,
    /// Of a result: what the model is told.
    #[serde(borrow)]
    pub(super) content: Option<Content<'a>>,
}

impl Content<'_> {
    /// The first text in it.
    pub(super) fn first_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Blocks(blocks) => blocks.first()?.text.as_deref(),
            Self::Other => None,
        }
    }
}

/// Reads a text or blocks without keeping a copy; anything else is skipped over.
struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a list of blocks")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Content::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        // Only how it begins is ever looked at.
        Ok(Content::Text(Cow::Owned(clip(text, SHORT_MAX_BYTES))))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut blocks = Vec::new();
        while let Some(block) = seq.next_element()? {
            blocks.push(block);
        }
        Ok(Content::Blocks(blocks))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Content::Other)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

/// `rate_limit_event`.
#[derive(Deserialize)]
pub(super) struct RateLimitLine {
    /// The reading.
    pub(super) rate_limit_info: Value,
}

/// `result`: the end of a turn. The last one of a stream counts.
#[derive(Deserialize)]
pub(super) struct ResultLine {
    /// `success` also on failed requests; only with `is_error` does it say anything.
    pub(super) subtype: Option<String>,
    /// Whether the turn failed.
    #[serde(default)]
    pub(super) is_error: bool,
    /// The last text block of the last message, or the text of the failure.
    pub(super) result: Option<Value>,
    /// Texts of the failure, of the subtypes that begin with `error_`.
    pub(super) errors: Option<Vec<Value>>,
    /// The session.
    pub(super) session_id: Option<String>,
    /// How often the model was asked.
    pub(super) num_turns: Option<u64>,
    /// Set in some results when the CLI gave up before it asked a model.
    pub(super) startup_failure_reason: Option<Value>,
    /// Why the model stopped.
    pub(super) stop_reason: Option<String>,
    /// Why the turn ended.
    pub(super) terminal_reason: Option<String>,
    /// The HTTP status of a failed request.
    pub(super) api_error_status: Option<u64>,
    /// What failed, in a word of the CLI.
    pub(super) api_error: Option<Value>,
    /// Cost of the session so far in US dollars.
    pub(super) total_cost_usd: Option<f64>,
    /// Tokens of the session so far by model, subagents included.
    #[serde(rename = "modelUsage")]
    pub(super) model_usage: Option<Value>,
    /// Denied tool calls.
    #[serde(default)]
    pub(super) permission_denials: Vec<Denied>,
}
