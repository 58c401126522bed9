//! The suite itself under test: stores with one fault each must not pass.

use super::{Disk, failures};
use crate::store::{Batch, Entry, Limit, Operation, Store, Versioned};
use crate::{Error, MemoryStore};

type Answers = Result<Vec<Result<(), Error>>, Error>;

/// What is wrong with a store.
#[derive(Debug, Clone, Copy)]
enum Fault {
    ScanSkipsOne,
    ScanIncludesAfter,
    ScanLeavesPrefix,
    ScanIgnoresBytes,
    ScanIgnoresEntries,
    ScanInReverse,
    RevisionIsGlobal,
    RevisionSurvivesDelete,
    JudgedAgainstStateBeforeCall,
    ConflictWritesAllTheSame,
    ConflictFailsTheCall,
    ExpectationSeesOwnBatch,
    LaterBatchFirst,
    KeyTwiceAccepted,
    LimitsIgnored,
    LostAtReopen,
    DeleteForgottenAtReopen,
}

use Fault::*;

const FAULTS: [(Fault, &str); 17] = [
    (ScanSkipsOne, "scan_is_in_key_order"),
    (ScanIncludesAfter, "scan_starts_after_a_key"),
    (ScanLeavesPrefix, "scan_stays_within_its_prefix"),
    (ScanIgnoresBytes, "scan_pages_by_entries_and_bytes"),
    (ScanIgnoresEntries, "scan_pages_by_entries_and_bytes"),
    (ScanInReverse, "scan_is_in_key_order"),
    (RevisionIsGlobal, "revisions_count_the_puts_of_their_key"),
    (RevisionSurvivesDelete, "a_deleted_key_starts_again_at_1"),
    (JudgedAgainstStateBeforeCall, "batches_of_a_call_are_judged_in_order"),
    (ConflictWritesAllTheSame, "a_refused_batch_fails_alone_and_whole"),
    (ConflictFailsTheCall, "a_refused_batch_fails_alone_and_whole"),
    (ExpectationSeesOwnBatch, "expectations_are_judged_before_the_batch"),
    (LaterBatchFirst, "batches_of_a_call_are_judged_in_order"),
    (KeyTwiceAccepted, "a_key_changed_twice_is_refused"),
    (LimitsIgnored, "larger_batches_are_refused"),
    (LostAtReopen, "commits_are_there_after_a_reopen"),
    (DeleteForgottenAtReopen, "commits_are_there_after_a_reopen"),
];

/// A store over a sound one that does one thing wrong.
struct Faulty {
    sound: MemoryStore,
    fault: Fault,
}

struct FaultyDisk {
    disk: MemoryStore,
    fault: Fault,
}

impl Disk for FaultyDisk {
    fn open(&mut self) -> Box<dyn Store> {
        self.disk = self.disk.reopen();
        let key = match self.fault {
            LostAtReopen => b"count".to_vec(),
            _ => Vec::new(),
        };
        self.disk.commit(&[Batch::new().delete(key)]).unwrap()[0].clone().unwrap();
        if let DeleteForgottenAtReopen = self.fault
            && !self.disk.scan(b"r", None, super::ALL).unwrap().is_empty()
        {
            let ghosts = (0..4_u8).fold(Batch::new(), |batch, n| batch.put([b'd', n], "ghost"));
            self.disk.commit(&[ghosts]).unwrap()[0].clone().unwrap();
        }
        Box::new(Faulty { sound: self.disk.clone(), fault: self.fault })
    }
}

impl Store for Faulty {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, Error> {
        self.sound.get(key)
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: Limit) -> Result<Vec<Entry>, Error> {
        let mut limit = limit;
        match self.fault {
            ScanIgnoresBytes => limit.bytes = usize::MAX,
            ScanIgnoresEntries => limit.entries = usize::MAX,
            _ => {}
        }
        let mut page = match (self.fault, after) {
            (ScanLeavesPrefix, _) => {
                let mut page = self.sound.scan(b"", after.or(Some(prefix)), limit)?;
                page.retain(|entry| entry.key.first() == prefix.first() || prefix.is_empty());
                page
            }
            (ScanIncludesAfter, Some(after)) if after.starts_with(prefix) => {
                let mut page = self.sound.scan(prefix, Some(after), limit)?;
                if let Some(versioned) = self.sound.get(after)? {
                    page.insert(0, Entry { key: after.to_vec(), versioned });
                }
                page
            }
            _ => self.sound.scan(prefix, after, limit)?,
        };
        match self.fault {
            ScanSkipsOne if page.len() > 3 => drop(page.remove(2)),
            ScanInReverse => page.reverse(),
            _ => {}
        }
        Ok(page)
    }

    fn commit(&self, batches: &[Batch]) -> Answers {
        let one = |batch: &Batch| Ok(self.sound.commit(std::slice::from_ref(batch))?.remove(0));
        let without = |batch: &Batch, expectations: bool| {
            let keep =
                |operation: &&Operation| matches!(operation, Operation::Expect(..)) == expectations;
            Batch { operations: batch.operations.iter().filter(keep).cloned().collect() }
        };
        match self.fault {
            RevisionIsGlobal if batches.len() == 1 => {
                let touch = Batch::new().put("b", "");
                one(&touch)?.ok();
                self.sound.commit(batches)
            }
            RevisionSurvivesDelete => batches
                .iter()
                .map(|batch| {
                    let mut batch = batch.clone();
                    for operation in &mut batch.operations {
                        if let Operation::Delete(key) = operation
                            && self.sound.get(key)?.is_some()
                            && batches.len() > 1
                        {
                            *operation = Operation::Put(key.clone(), Vec::new());
                        }
                    }
                    one(&batch)
                })
                .collect(),
            JudgedAgainstStateBeforeCall => {
                let judged: Vec<Result<_, Error>> =
                    batches.iter().map(|batch| one(&without(batch, true))).collect();
                let judged = judged.into_iter().zip(batches).map(|(judged, batch)| match judged? {
                    Ok(()) => one(&without(batch, false)),
                    conflict => Ok(conflict),
                });
                judged.collect()
            }
            ConflictWritesAllTheSame => batches
                .iter()
                .map(|batch| {
                    let answer = one(batch)?;
                    if let Err(Error::Conflict { .. }) = answer {
                        one(&without(batch, false))?.ok();
                    }
                    Ok(answer)
                })
                .collect(),
            ConflictFailsTheCall => {
                let answers = self.sound.commit(batches)?;
                let conflict = answers.iter().find(|answer| answer.is_err()).cloned();
                Ok(conflict.map_or(answers, |conflict| vec![conflict; batches.len()]))
            }
            ExpectationSeesOwnBatch => batches
                .iter()
                .map(|batch| match one(&without(batch, false))? {
                    Ok(()) => one(&without(batch, true)),
                    refused => Ok(refused),
                })
                .collect(),
            LaterBatchFirst => {
                let mut reversed = batches.to_vec();
                reversed.reverse();
                let mut answers = self.sound.commit(&reversed)?;
                answers.reverse();
                Ok(answers)
            }
            KeyTwiceAccepted => batches
                .iter()
                .map(|batch| match one(batch)? {
                    Err(Error::KeyTwice { .. }) => Ok(Ok(())),
                    answer => Ok(answer),
                })
                .collect(),
            LimitsIgnored => batches
                .iter()
                .map(|batch| match one(batch)? {
                    Err(Error::TooLarge { .. }) => Ok(Ok(())),
                    answer => Ok(answer),
                })
                .collect(),
            _ => self.sound.commit(batches),
        }
    }
}

#[test]
fn every_fault_is_found_by_the_clause_that_names_it() {
    for (fault, clause) in FAULTS {
        let found = failures(|| Box::new(FaultyDisk { disk: MemoryStore::new(), fault }));
        let named = found.iter().any(|failure| failure.starts_with(&format!("{clause}: ")));
        assert!(named, "{fault:?} was not found by {clause}, but by {found:#?}");
    }
}

#[test]
fn the_random_clause_finds_wrong_judgement_without_help() {
    for fault in [ScanSkipsOne, ConflictWritesAllTheSame, LaterBatchFirst, KeyTwiceAccepted] {
        let found = failures(|| Box::new(FaultyDisk { disk: MemoryStore::new(), fault }));
        let named = found.iter().any(|failure| failure.starts_with("the_store_agrees_with_a_map"));
        assert!(named, "{fault:?}: {found:#?}");
    }
}
