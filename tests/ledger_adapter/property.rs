//! The projection against its rebuild, for any order of requests.

use proptest::prelude::*;

use super::*;

/// One step of the property below.
#[derive(Clone, Debug)]
enum Step {
    Admit { lane: u32, queue: bool, max: u32 },
    Promote { lane: u32, max: u32 },
    Append { lane: u32, event: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0u32..6, any::<bool>(), 1u32..4).prop_map(|(lane, queue, max)| Step::Admit { lane, queue, max }),
        1 => (0u32..6, 1u32..4).prop_map(|(lane, max)| Step::Promote { lane, max }),
        4 => (0u32..6, 0u8..6).prop_map(|(lane, event)| Step::Append { lane, event }),
    ]
}

/// An answer of any kind is fine: what counts is what it leaves behind.
fn take(ledger: &SqliteLedger, step: &Step, now: Timestamp) -> Result<(), PortError> {
    let path = |lane: u32| match lane % 3 {
        0 => "/a",
        1 => "/a/b",
        _ => "/c",
    };
    let plan_of = |lane: u32| writing(lane, &[path(lane)]);
    match step {
        Step::Admit { lane, queue, max } => ledger.admit(&plan_of(*lane), *queue, *max, now).map(|_| ()),
        Step::Promote { lane, max } => ledger.promote(&plan_of(*lane).lane_id, *max, now).map(|_| ()),
        Step::Append { lane, event: number } => {
            let plan = plan_of(*lane);
            ledger.append(&plan.lane_id, &event(&plan, *number, now), now).map(|_| ())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is asked for in whatever order, the projection is what the events say.
    #[test]
    fn the_projection_is_always_what_a_rebuild_gives(steps in proptest::collection::vec(step(), 1..60)) {
        let folder = TempDir::new().unwrap();
        let ledger = ledger(&folder);
        for (now, step) in (0..).map(at).zip(&steps) {
            if let Err(error) = take(&ledger, step, now) {
                prop_assert!(matches!(error.kind, PortErrorKind::Illegal | PortErrorKind::Other), "{}", error);
            }
        }
        let before = ledger.recent(&LaneFilter::default()).unwrap();
        let (live, counts) = (ledger.live().unwrap(), ledger.counts().unwrap());
        let report = ledger.check().unwrap();
        prop_assert_eq!((report.broken_at, report.projection_differs), (None, vec![]));
        prop_assert_eq!(usize::try_from(counts.running).unwrap(), live.len());
        prop_assert!(live.len() <= 3);
        ledger.rebuild().unwrap();
        prop_assert_eq!(ledger.recent(&LaneFilter::default()).unwrap(), before);
        prop_assert_eq!(ledger.counts().unwrap(), counts);
    }
}
