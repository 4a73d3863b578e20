//! What the server is told to answer, and what it saw.

use serde_json::Value;

use crate::provider::demo::task;

/// How one request to the model is answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The model says this and its turn ends.
    Say(String),
    /// The model runs a shell command, with the tool that the request offers for it.
    Shell(String),
    /// The model calls a tool of that name.
    Tool {
        /// Its name.
        name: String,
        /// Its arguments.
        input: Value,
    },
    /// 429: the account's usage limit.
    UsageLimit {
        /// When the window starts anew, in seconds since 1970.
        resets_at: i64,
    },
    /// 429: too fast, no limit of the account.
    RateLimited,
    /// 401.
    LoginRefused,
    /// 500.
    ServerError,
    /// The connection is closed in the middle of the answer, after this text.
    Cut(String),
    /// No answer at all until the server stops.
    Silence,
}

/// The answers in the order of the requests; the last one repeats.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// The answers.
    pub steps: Vec<Step>,
}

impl Script {
    /// Builds a script from its steps.
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Self { steps: steps.into_iter().collect() }
    }

    /// What a model is made to do in `lane demo`.
    pub fn demo() -> Self {
        Self::work(&task::COMMANDS, task::REPORT)
    }

    /// A whole piece of work: the shell commands one after the other, then the report.
    pub fn work(commands: &[&str], report: &str) -> Self {
        let commands = commands.iter().map(|command| Step::Shell((*command).to_owned()));
        Self::new(commands.chain([Step::Say(report.to_owned())]))
    }
}

/// One request to the model, as far as it matters. The login itself is not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenRequest {
    /// The path with its query.
    pub path: String,
    /// The model that is asked.
    pub model: Option<String>,
    /// The effort that is asked for.
    pub effort: Option<String>,
    /// Names of the tools on offer.
    pub tools: Vec<String>,
    /// The text of the user's messages, one after the other.
    pub prompt: String,
    /// What the tools answered so far.
    pub tool_outputs: Vec<String>,
    /// Whether a login came along.
    pub has_login: bool,
}

/// All text in a content value: a string, or a list of blocks with `text` or nested `content`.
pub(super) fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            blocks.iter().map(text_of).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
        }
        Value::Object(block) => block.get("text").or_else(|| block.get("content")).map(text_of).unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

/// The names in a list of tools.
pub(super) fn tool_names(tools: Option<&Value>) -> Vec<String> {
    let tools = tools.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let name = |tool: &Value| tool.get("name").or_else(|| tool.get("type"))?.as_str().map(str::to_owned);
    tools.iter().filter_map(name).collect()
}
