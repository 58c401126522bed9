//! What became of a launch: a pure rule over what was seen.

use super::Status;

/// What was seen of a launch, in the order of the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The status file.
    pub status: Option<Status>,
    /// Whether the machine has not been started again since the launch was planned.
    pub same_boot: bool,
    /// The claim and, where there is one, the lock.
    pub claim: ClaimSeen,
    /// Whether the lock had been seen free before, under a shim's claim and without a status.
    pub second_look: bool,
}

/// What was seen of a launch's claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimSeen {
    /// Nobody has claimed the launch.
    None,
    /// It has been given up.
    Void {
        /// Whether the lock is held: by a shim that loses just now, or by one whose claim was removed.
        lock_held: bool,
    },
    /// A shim has claimed the launch that this one was copied from. What lives there is not ours.
    Copied,
    /// A shim has claimed it. The lock is probed only where there is a claim: before, a probe could
    /// be in the way of a shim that is about to take it.
    Shim {
        /// Whether the claim's process numbers are those that this program sees.
        same_namespace: bool,
        /// Whether the lock is held.
        lock_held: bool,
    },
}

/// What became of a launch, or what must be done to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The command ended.
    Ended(Status),
    /// The command is gone and its end unknown; it may have done anything.
    Vanished,
    /// Claim the launch as void; who loses that race decides again.
    LinkVoid,
    /// The command was not executed and will not be.
    NeverRan,
    /// A shim is there that has no claim: it ends in a moment, or somebody has removed its claim and
    /// its command lives. Decide again later.
    Undecided,
    /// Its shim keeps it, and can be signalled.
    Alive,
    /// Its shim keeps it, but in another pid namespace: it can only be waited for.
    OutOfReach,
    /// The shim is gone: see whether it wrote a status just before.
    LookAgain,
}

/// Decides what became of a launch.
///
/// | status | same boot | claim | lock | look | decision |
/// |---|---|---|---|---|---|
/// | yes | | | | | `Ended` |
/// | no | no | | | | `Vanished` |
/// | no | yes | none | | | `LinkVoid` |
/// | no | yes | void | held | | `Undecided` |
/// | no | yes | void | free | | `NeverRan` |
/// | no | yes | copied | | | `Vanished` |
/// | no | yes | shim, this namespace | held | | `Alive` |
/// | no | yes | shim, another one | held | | `OutOfReach` |
/// | no | yes | shim | free | first | `LookAgain` |
/// | no | yes | shim | free | second | `Vanished` |
pub fn decide(facts: &Facts) -> Decision {
    if let Some(status) = &facts.status {
        return Decision::Ended(status.clone());
    }
    if !facts.same_boot {
        return Decision::Vanished;
    }
    match facts.claim {
        ClaimSeen::None => Decision::LinkVoid,
        ClaimSeen::Void { lock_held: true } => Decision::Undecided,
        ClaimSeen::Void { lock_held: false } => Decision::NeverRan,
        ClaimSeen::Copied => Decision::Vanished,
        ClaimSeen::Shim { lock_held: true, same_namespace: true } => Decision::Alive,
        ClaimSeen::Shim { lock_held: true, same_namespace: false } => Decision::OutOfReach,
        // The shim writes the status, then lets the lock go. So a status missed by the first look
        // cannot be missed by one that begins after the lock was seen free.
        ClaimSeen::Shim { lock_held: false, .. } if facts.second_look => Decision::Vanished,
        ClaimSeen::Shim { lock_held: false, .. } => Decision::LookAgain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::CommandEnd;

    const BOOLS: [bool; 2] = [false, true];

    fn claims() -> Vec<ClaimSeen> {
        let void = BOOLS.map(|lock_held| ClaimSeen::Void { lock_held });
        let mut claims = vec![ClaimSeen::None, void[0], void[1], ClaimSeen::Copied];
        for same_namespace in BOOLS {
            for lock_held in BOOLS {
                claims.push(ClaimSeen::Shim { same_namespace, lock_held });
            }
        }
        claims
    }

    /// All 64 combinations, each with its decision written out once more in another shape: as the
    /// first line of a list that matches.
    #[test]
    fn every_combination_is_decided_in_order() {
        let end = Status { end: CommandEnd::Exited { code: 0 }, stdout_bytes: 0, stderr_bytes: 0 };
        let mut seen = 0;
        for status in [None, Some(end.clone())] {
            for same_boot in BOOLS {
                for claim in claims() {
                    for second_look in BOOLS {
                        let facts = Facts { status: status.clone(), same_boot, claim, second_look };
                        let none = claim == ClaimSeen::None;
                        let void = matches!(claim, ClaimSeen::Void { .. });
                        let lost = claim == ClaimSeen::Void { lock_held: true };
                        let held = matches!(claim, ClaimSeen::Shim { lock_held: true, .. });
                        let ours = matches!(claim, ClaimSeen::Shim { same_namespace: true, .. });
                        let rules = [
                            (status.is_some(), Decision::Ended(end.clone())),
                            (!same_boot, Decision::Vanished),
                            (none, Decision::LinkVoid),
                            (lost, Decision::Undecided),
                            (void, Decision::NeverRan),
                            (claim == ClaimSeen::Copied, Decision::Vanished),
                            (held && ours, Decision::Alive),
                            (held, Decision::OutOfReach),
                            (second_look, Decision::Vanished),
                            (true, Decision::LookAgain),
                        ];
                        let first = rules.into_iter().find(|(applies, _)| *applies);
                        assert_eq!(Some(decide(&facts)), first.map(|rule| rule.1), "{facts:?}");
                        seen += 1;
                    }
                }
            }
        }
        assert_eq!(seen, 64);
    }
}
