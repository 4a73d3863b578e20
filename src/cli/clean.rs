//! `lane clean` and `lane restore`.

use super::arguments::{CleanArguments, RestoreArguments};
use crate::app::clean::{CleanedLane, clean, restore as restore_lane};
use crate::app::context::Context;
use crate::app::error::AppResult;
use crate::app::{lanes, reconcile};
use crate::domain::outcome::Outcome;
use crate::wire::SCHEMA;
use crate::wire::answers::{Answer, CleanAnswer, CleanedLane as WireLane, LeftOut, RestoreAnswer};

/// Runs `clean`.
pub fn run(context: &Context, arguments: &CleanArguments) -> AppResult<Answer> {
    reconcile::reconcile(context)?;
    let ids = arguments.ids.iter().map(|id| lanes::find(context, id)).collect::<AppResult<Vec<_>>>()?;
    let cleaned = clean(context, &ids, arguments.older_than, arguments.dry_run)?;
    let failed = cleaned.iter().any(|lane| lane.outcome.is_err());
    Ok(Answer::Clean(CleanAnswer {
        schema: SCHEMA,
        status: if failed { Outcome::Error } else { Outcome::Ok },
        dry_run: arguments.dry_run,
        cleaned: cleaned.into_iter().map(wire_lane).collect(),
    }))
}

fn wire_lane(lane: CleanedLane) -> WireLane {
    let plan = &lane.row.plan;
    let restore = format!("lane restore {}", plan.lane_id);
    match lane.outcome {
        Ok(cleaned) => WireLane {
            lane_id: plan.lane_id.clone(),
            checkout_path: cleaned.checkout_path,
            removed: cleaned.existed,
            error: None,
            saved_paths: cleaned.saved_paths,
            archive_path: cleaned.archive_path,
            kept_refs: cleaned.kept_refs,
            left_out: cleaned.left_out.into_iter().map(|(path, size_bytes)| LeftOut { path, size_bytes }).collect(),
            freed_bytes: cleaned.freed_bytes,
            restore,
        },
        Err(error) => WireLane {
            lane_id: plan.lane_id.clone(),
            checkout_path: plan.checkout_path.clone(),
            removed: false,
            error: Some(error),
            saved_paths: Vec::new(),
            archive_path: None,
            kept_refs: Vec::new(),
            left_out: Vec::new(),
            freed_bytes: 0,
            restore,
        },
    }
}

/// Runs `restore`.
pub fn restore(context: &Context, arguments: &RestoreArguments) -> AppResult<Answer> {
    let lane_id = lanes::find(context, &arguments.id)?;
    let restored = restore_lane(context, &lane_id, arguments.into.as_deref())?;
    Ok(Answer::Restore(RestoreAnswer {
        schema: SCHEMA,
        status: Outcome::Ok,
        lane_id,
        path: restored.path,
        files: restored.files,
    }))
}
