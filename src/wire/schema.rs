//! The JSON Schema of every kind of line, generated from the types.

use super::answers::Answer;

/// Returns the JSON Schema (draft 2020-12) of one line on stdout.
///
/// It is checked in as `docs/schema/answer.json`, and a test compares the two.
pub fn json_schema() -> serde_json::Value {
    schemars::schema_for!(Answer).to_value()
}
