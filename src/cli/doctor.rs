//! `lane doctor`.

use super::arguments::DoctorArguments;
use crate::app::context::Context;
use crate::app::doctor::{Check, Health, doctor};
use crate::app::error::{AppResult, Doing};
use crate::domain::outcome::Outcome;
use crate::wire::SCHEMA;
use crate::wire::answers::{Answer, DoctorAnswer, DoctorCheck, Health as WireHealth};

/// Runs the verb.
pub fn run(context: &Context, arguments: &DoctorArguments) -> AppResult<Answer> {
    if arguments.rebuild {
        context.ledger.rebuild().doing("build the table of lanes anew")?;
    }
    let checks = doctor(context);
    let broken = checks.iter().any(|check| check.health == Health::Broken);
    Ok(Answer::Doctor(DoctorAnswer {
        schema: SCHEMA,
        status: if broken { Outcome::Error } else { Outcome::Ok },
        version: env!("CARGO_PKG_VERSION").to_owned(),
        checks: checks.into_iter().map(wire_check).collect(),
    }))
}

fn wire_check(check: Check) -> DoctorCheck {
    DoctorCheck {
        name: check.name.to_owned(),
        health: match check.health {
            Health::Ok => WireHealth::Ok,
            Health::Warn => WireHealth::Warn,
            Health::Broken => WireHealth::Broken,
        },
        found: check.found,
        mend: check.mend,
    }
}
