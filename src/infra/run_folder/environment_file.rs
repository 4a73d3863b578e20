//! `environment.json`: variables without any loss, also where a value is no text.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::{Deserialize, Serialize};

use crate::app::ports::{Environment, PortError, PortErrorKind, PortResult};

const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct File {
    format: u32,
    variables: Vec<Variable>,
}

#[derive(Serialize, Deserialize)]
struct Variable {
    name: String,
    #[serde(flatten)]
    value: Value,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Value {
    Value(String),
    /// A value that is not UTF-8, byte by byte.
    Bytes(Vec<u8>),
}

pub(super) fn encode(environment: &Environment) -> PortResult<Vec<u8>> {
    let variables = environment.0.iter().map(|(name, value)| Variable {
        name: name.clone(),
        value: value
            .to_str()
            .map_or_else(|| Value::Bytes(value.as_bytes().to_vec()), |text| Value::Value(text.to_owned())),
    });
    serde_json::to_vec(&File { format: FORMAT, variables: variables.collect() })
        .map_err(|error| PortError::other(format!("writing the variables as JSON: {error}")))
}

pub(super) fn decode(bytes: &[u8]) -> PortResult<Environment> {
    // The cause is left out on purpose: it may quote a secret.
    let file: File = serde_json::from_slice(bytes).map_err(|error| PortError {
        kind: PortErrorKind::Damaged,
        message: format!("it holds no variables (line {}, column {})", error.line(), error.column()),
    })?;
    if file.format > FORMAT {
        let message = format!("it has format {}, and this Lane reads up to {FORMAT}", file.format);
        return Err(PortError { kind: PortErrorKind::TooNew, message });
    }
    let variables = file.variables.into_iter().map(|variable| match variable.value {
        Value::Value(text) => (variable.name, OsString::from(text)),
        Value::Bytes(bytes) => (variable.name, OsString::from_vec(bytes)),
    });
    Ok(Environment(variables.collect()))
}
