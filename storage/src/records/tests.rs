use std::time::Duration;

use ghostlight_protocol::{End, InterruptReason, Phase, RunKey};
use proptest::prelude::*;

use super::*;
use crate::codec::{decode, encode};
use crate::payload::INLINE_BYTES_MAX;
use crate::{Changes, Committer, Error, Key, MemoryStore};

fn run_record() -> RunRecord {
    RunRecord {
        run_id: "import-7".into(),
        parent: "Assistant:user-42".into(),
        agent_type: "Importer".into(),
        input: Payload::Parts { number: 3, bytes: 70_000 },
        input_digest: [9; 16],
        input_preview: Some(b"{\"path\":\"x\"}".to_vec()),
        display: None,
        display_order: -1,
        parent_tool_call_id: Some("call_1".into()),
        detached: true,
        started_at_ms: 1_760_000_000_000,
        completed_at_ms: Some(1_760_000_000_001),
        state: RunState {
            phase: Phase::Ended(End::Error),
            cancelling: true,
            interrupted: Some(Interruption {
                reason: Some(InterruptReason::NoProgress),
                child_still_running: Some(true),
            }),
        },
        attempt: 2,
        futile: 1,
        attempt_began_at: 12,
        cancel: Some("enough".into()),
        wake_at_ms: Some(5),
        queue_number: Some(6),
        end: Some(EndRecord {
            output: Some(Payload::Inline(b"1".to_vec())),
            summary: "done".into(),
            error: Some("boom".into()),
            kind: Some("io".into()),
            permanent: true,
        }),
        interrupted_error: Some("lost".into()),
        ext: BTreeMap::from([(7, vec![1, 2])]),
    }
}

fn log_record() -> LogRecord {
    let inline = |text: &str| Payload::Inline(text.as_bytes().to_vec());
    let step = || Origin::Step("part#1".into());
    LogRecord {
        at_ms: 1_760_000_000_000,
        first_number: 4,
        entries: vec![
            LogEntry::Started,
            LogEntry::Chunk { origin: Origin::Code, body: inline("{}") },
            LogEntry::Chunk { origin: step(), body: inline("1") },
            LogEntry::Chunk {
                origin: Origin::Source { name: "stdout".into(), end: 9 },
                body: inline("2"),
            },
            LogEntry::Progress { body: inline("{}") },
            LogEntry::Milestone {
                origin: Origin::Code,
                name: "m".into(),
                sequence: 0,
                at_ms: 1,
                data: None,
            },
            LogEntry::Mark { step: "part#1".into(), attempt: 2 },
            LogEntry::Completed { call: StoredCall::Step("part#1".into()), result: inline("7") },
            LogEntry::Completed { call: StoredCall::Sleep(0), result: inline("null") },
            LogEntry::Completed { call: StoredCall::Wait(1), result: inline("{}") },
            LogEntry::StepFailed {
                step: "s".into(),
                message: "boom".into(),
                kind: None,
                permanent: true,
            },
            LogEntry::SleepSet { ordinal: 0, due_ms: 99 },
            LogEntry::Tried { step: "s".into(), tries: 3 },
            LogEntry::State { key: "k".into(), value: Some(inline("3")) },
            LogEntry::Interrupted {
                interruption: Interruption { reason: None, child_still_running: None },
                error: "lost".into(),
            },
            LogEntry::Failed { error: "boom".into() },
            LogEntry::Aborted { reason: Some("stop".into()) },
            LogEntry::Finished { summary: "done".into() },
        ],
    }
}

fn key() -> Key {
    Key::record(RunKey([1; 16]))
}

/// Compares with the bytes that were written when the version was released. A new version's file
/// is made by hand from the text of the failure; existing files never change.
fn golden<R: Record + PartialEq + std::fmt::Debug>(name: &str, record: &R) {
    let path = format!("{}/tests/golden/{name}.hex", env!("CARGO_MANIFEST_DIR"));
    let bytes = encode(record);
    let written: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let released = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, released.trim(), "{path}: a released version must never change");
    assert_eq!(decode::<R>(&key(), &bytes).unwrap(), *record, "{name}");
}

#[test]
fn released_versions_stay_readable() {
    golden("run-v1", &run_record());
    golden("log-v1", &log_record());
    golden("head-v1", &Head { epoch: 1, next_number: 300, position: 70_000, next_milestone: 2 });
    golden(
        "live-v1",
        &LiveRecord {
            parent: "A:a".into(),
            run_id: "r".into(),
            agent_type: "C".into(),
            waiting: true,
            incarnation: 3,
        },
    );
    golden(
        "queued-v1",
        &QueuedRecord { parent: "A:a".into(), run_id: "r".into(), agent_type: "C".into() },
    );
    golden("registry-v1", &RegistryRecord { parent: "A:a".into(), run_id: "r".into() });
    golden("timer-v1", &TimerRecord { parent: "A:a".into(), run_id: "r".into() });
    golden("intent-v1", &IntentRecord { incarnation: 4 });
    golden("tombstone-v1", &TombstoneRecord { cleared_at_ms: 5, aborted: true });
    golden("purge-v1", &PurgeRecord { cleared_at_ms: 6 });
    golden("incarnation-v1", &IncarnationRecord { incarnation: 7 });
    golden(
        "owed-v1",
        &OwedRecord { parent: "A:a".into(), run_id: "r".into(), tries: 1, due_ms: 8 },
    );
}

#[test]
fn frames_are_numbered_in_order_and_journal_entries_are_not() {
    let record = log_record();
    let numbers: Vec<u64> = record.frames().map(|(number, _)| number).collect();
    assert_eq!(numbers, (4..15).collect::<Vec<u64>>());
    assert_eq!(record.end_number(), 15);
}

#[test]
fn a_later_version_says_so() {
    let mut bytes = encode(&run_record());
    bytes[1] = 2;
    let error = decode::<RunRecord>(&key(), &bytes).unwrap_err();
    assert!(matches!(error, Error::TooNew { found: 2, known: 1, .. }), "{error}");
    bytes[1] = 0;
    let error = decode::<RunRecord>(&key(), &bytes).unwrap_err();
    assert!(error.to_string().contains("never existed"), "{error}");
}

#[test]
fn other_kinds_trailing_bytes_and_stumps_are_corrupt() {
    let mut bytes = encode(&run_record());
    let foreign = decode::<LogRecord>(&key(), &bytes).unwrap_err();
    assert!(foreign.to_string().contains("kind 2 where 4"), "{foreign}");
    bytes.push(0);
    let trailing = decode::<RunRecord>(&key(), &bytes).unwrap_err();
    assert!(trailing.to_string().contains("1 bytes follow"), "{trailing}");
    for length in 0..bytes.len() - 1 {
        let error = decode::<RunRecord>(&key(), &bytes[..length]).unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{length}: {error}");
        assert!(error.to_string().contains(&key().to_string()), "{error}");
    }
}

#[test]
fn a_hostile_length_is_refused_before_it_is_allocated() {
    // The length of the first string: 2^60 bytes.
    let mut bytes = vec![RunRecord::KIND, RunRecord::VERSION, 253];
    bytes.extend_from_slice(&(1u64 << 60).to_le_bytes());
    let error = decode::<RunRecord>(&key(), &bytes).unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn corruption_is_an_error_or_another_record(
        which in 0..2usize,
        flips in prop::collection::vec((0..4096usize, any::<u8>()), 1..8),
        cut in prop::option::of(0..4096usize),
    ) {
        let mut bytes = if which == 0 { encode(&run_record()) } else { encode(&log_record()) };
        for (at, byte) in flips {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut);
        }
        // Neither a panic nor an abort; what decodes encodes again.
        if let Ok(record) = decode::<RunRecord>(&key(), &bytes) {
            decode::<RunRecord>(&key(), &encode(&record)).unwrap();
        }
        if let Ok(record) = decode::<LogRecord>(&key(), &bytes) {
            decode::<LogRecord>(&key(), &encode(&record)).unwrap();
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = decode::<RunRecord>(&key(), &bytes);
        let _ = decode::<LogRecord>(&key(), &bytes);
        let _ = decode::<LiveRecord>(&key(), &bytes);
    }
}

async fn commit_all(committer: &Committer, batches: Vec<crate::Batch>) {
    for batch in batches {
        committer.commit(batch).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn payloads_of_every_size_come_back() {
    let (committer, _handle) = Committer::inline(MemoryStore::new());
    let run = RunKey([3; 16]);
    let sizes = [0, 1, 24 << 10, (24 << 10) + 1, 48 << 10, 200_000, 1 << 20];
    for (number, size) in sizes.into_iter().enumerate() {
        let bytes: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        let (payload, batches) =
            Payload::split(run, number as u64, 1, INLINE_BYTES_MAX, bytes.clone());
        assert_eq!(batches.is_empty(), size <= 24 << 10);
        assert_eq!(payload.len(), size as u64);
        commit_all(&committer, batches).await;
        assert_eq!(payload.read(&committer, run).await.unwrap(), bytes, "{size}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_point_leaves_an_orphan_or_a_payload() {
    let run = RunKey([3; 16]);
    let bytes = vec![7; 400_000];
    let (payload, batches) = Payload::split(run, 0, 1, INLINE_BYTES_MAX, bytes.clone());
    for crash_after in 0..=batches.len() + 1 {
        let (committer, _handle) = Committer::inline(MemoryStore::new());
        commit_all(&committer, batches.iter().take(crash_after).cloned().collect()).await;
        let referred = crash_after == batches.len() + 1;
        if referred {
            let mut changes = Changes::new();
            payload.refer(run, &mut changes);
            committer.commit(changes.into_batch()).await.unwrap();
        }
        let swept = crate::payload::sweep_orphans(&committer, 2).await.unwrap();
        assert_eq!(swept, usize::from(crash_after > 0 && !referred), "after {crash_after}");
        let left =
            committer.scan(Key::parts_of(run).into_bytes(), None, crate::payload::PAGE).await;
        assert_eq!(left.unwrap().is_empty(), !referred);
        if referred {
            assert_eq!(payload.clone().read(&committer, run).await.unwrap(), bytes);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_current_incarnation_is_not_swept_and_missing_parts_are_corrupt() {
    let (committer, _handle) = Committer::inline(MemoryStore::new());
    let run = RunKey([3; 16]);
    let (payload, batches) = Payload::split(run, 0, 2, INLINE_BYTES_MAX, vec![7; 100_000]);
    commit_all(&committer, batches).await;
    assert_eq!(crate::payload::sweep_orphans(&committer, 2).await.unwrap(), 0);
    let mut changes = Changes::new();
    changes.delete(&Key::part(run, 0, 2));
    committer.commit(changes.into_batch()).await.unwrap();
    let error = tokio::time::timeout(Duration::from_secs(5), payload.read(&committer, run)).await;
    assert!(matches!(error.unwrap(), Err(Error::Corrupt { .. })));
}

#[test]
fn no_entry_takes_more_bytes_than_it_says() {
    let name = "n".repeat(200);
    let mut entries = log_record().entries;
    let inline = || Payload::Inline(vec![1; 200]);
    for origin in [Origin::Step(name.clone()), Origin::Source { name: name.clone(), end: u64::MAX }]
    {
        entries.push(LogEntry::Chunk { origin: origin.clone(), body: inline() });
        let (sequence, at_ms, data) = (u64::MAX, u64::MAX, Some(inline()));
        entries.push(LogEntry::Milestone { origin, name: name.clone(), sequence, at_ms, data });
    }
    let call = StoredCall::Step(name.clone());
    entries.push(LogEntry::Completed { call, result: inline() });
    let (message, kind) = (name.clone(), Some(name.clone()));
    entries.push(LogEntry::StepFailed { step: name.clone(), message, kind, permanent: true });
    entries.push(LogEntry::SleepSet { ordinal: u64::MAX, due_ms: u64::MAX });
    entries.push(LogEntry::Tried { step: name.clone(), tries: u32::MAX });
    entries.push(LogEntry::State { key: name, value: Some(inline()) });
    let size = |entries| encode(&LogRecord { at_ms: 0, first_number: 0, entries }).len();
    let empty = size(Vec::new());
    for entry in entries {
        let (encoded, said) = (size(vec![entry.clone()]) - empty, entry.bytes());
        assert!(encoded <= said, "{encoded} bytes, said to be {said}: {entry:?}");
    }
}
