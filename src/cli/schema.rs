//! `lane schema` and `lane completions`.

use clap::CommandFactory;

use super::arguments::{Arguments, CompletionsArguments};
use super::output::Output;
use crate::domain::outcome::Outcome;
use crate::wire::SCHEMA;
use crate::wire::answers::{Answer, SchemaAnswer};
use crate::wire::schema::json_schema;

/// Runs `schema`.
pub fn run() -> Answer {
    Answer::Schema(SchemaAnswer { schema: SCHEMA, status: Outcome::Ok, json_schema: json_schema() })
}

/// Runs `completions`.
pub fn completions(arguments: &CompletionsArguments, output: &Output) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "lane", &mut script);
    output.bytes(&script);
    0
}
