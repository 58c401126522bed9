//! Reads the text of a plan.

use std::str::FromStr;

use super::{Fault, Plan, PlannedFault};

/// A text that is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadPlan {
    /// A word that says nothing.
    #[error(
        "{0:?} is no part of a plan; one looks like this: seed=7 latency=4 kill-before@12 evict@31. \
         Counted by groups of commits are kill-before, kill-torn:BATCHES, kill-after, stop, stall:MS, \
         fail:BATCHES, jump:MS, duplicate and cancel; by reads stall-read:MS and fail-read; by messages \
         of agents evict and crash-parent; by places in the code of runs stall-child:MS, panic-child \
         and crash-run; by lives of the process down:MS"
    )]
    NoPart(String),
    /// A word with a number over its limit.
    #[error("{word:?} has a number over {max}")]
    TooLarge {
        /// The word.
        word: String,
        /// The largest number that it may have.
        max: u64,
    },
    /// More faults than [`Plan::FAULTS_MAX`].
    #[error("a plan has at most {} faults", Plan::FAULTS_MAX)]
    TooMany,
}

/// A number of a word, without a sign.
fn number(word: &str, text: &str, max: u64) -> Result<u64, BadPlan> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BadPlan::NoPart(word.to_owned()));
    }
    let number = text.parse().ok().filter(|number| *number <= max);
    number.ok_or_else(|| BadPlan::TooLarge { word: word.to_owned(), max })
}

impl FromStr for Fault {
    type Err = BadPlan;

    fn from_str(word: &str) -> Result<Self, BadPlan> {
        let bad = || BadPlan::NoPart(word.to_owned());
        let Some((name, text)) = word.split_once(':') else {
            return match word {
                "kill-before" => Ok(Self::KillBefore),
                "kill-after" => Ok(Self::KillAfter),
                "stop" => Ok(Self::Stop),
                "fail" => Ok(Self::Fail(0)),
                "fail-read" => Ok(Self::FailRead),
                "duplicate" => Ok(Self::Duplicate),
                "cancel" => Ok(Self::Cancel),
                "evict" => Ok(Self::Evict),
                "crash-parent" => Ok(Self::CrashParent),
                "crash-run" => Ok(Self::CrashRun),
                "panic-child" => Ok(Self::PanicChild),
                _ => Err(bad()),
            };
        };
        let ms = |max| number(word, text, max);
        let batches = || {
            let batches = number(word, text, u32::MAX.into())?;
            u32::try_from(batches).map_err(|_| bad())
        };
        match name {
            "kill-torn" => batches().map(Self::KillTorn),
            "fail" => batches().map(Self::Fail),
            "stall" => ms(Self::STALL_MS_MAX).map(Self::Stall),
            "stall-read" => ms(Self::STALL_MS_MAX).map(Self::StallRead),
            "stall-child" => ms(Self::STALL_MS_MAX).map(Self::StallChild),
            "down" => ms(Self::SHIFT_MS_MAX).map(Self::Down),
            "jump" => {
                let (sign, text) = match text.strip_prefix('-') {
                    Some(text) => (-1, text),
                    None => (1, text),
                };
                let ms = number(word, text, Self::SHIFT_MS_MAX)?;
                Ok(Self::Jump(sign * i64::try_from(ms).map_err(|_| bad())?))
            }
            _ => Err(bad()),
        }
    }
}

impl FromStr for Plan {
    type Err = BadPlan;

    fn from_str(text: &str) -> Result<Self, BadPlan> {
        let mut plan = Self::default();
        for word in text.split_whitespace() {
            if let Some(seed) = word.strip_prefix("seed=") {
                plan.seed = number(word, seed, u64::MAX)?;
            } else if let Some(latency) = word.strip_prefix("latency=") {
                plan.latency_ms = number(word, latency, Self::LATENCY_MS_MAX)?;
            } else {
                let bad = || BadPlan::NoPart(word.to_owned());
                let (fault, at) = word.split_once('@').ok_or_else(bad)?;
                let at = number(word, at, u64::MAX)?;
                if at == 0 {
                    return Err(bad());
                }
                plan.faults.push(PlannedFault { at, fault: fault.parse()? });
            }
        }
        if plan.faults.len() > Self::FAULTS_MAX {
            return Err(BadPlan::TooMany);
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(text: &str) -> BadPlan {
        text.parse::<Plan>().expect_err(text)
    }

    #[test]
    fn every_plan_reads_back() {
        let text = "seed=18446744073709551615 latency=60000 kill-before@1 kill-torn:2@3 kill-after@4 stop@4 \
                    stall:86400000@5 fail:0@6 fail:4294967295@6 stall-read:1@7 fail-read@8 \
                    jump:-315619200000@9 jump:5@9 down:315619200000@1 duplicate@10 cancel@11 \
                    evict@12 crash-parent@13 crash-run@14 stall-child:7@15 panic-child@16";
        let plan = text.parse::<Plan>();
        assert_eq!(plan.map(|plan| plan.to_string()), Ok(text.to_owned()));
        assert_eq!("fail@3".parse(), Ok(Plan::calm(0).with(Fault::Fail(0), 3)));
    }

    #[test]
    fn numbers_have_bounds() {
        for text in [
            "seed=18446744073709551616",
            "latency=60001",
            "stall:86400001@1",
            "stall-read:18446744073709551615@1",
            "stall-child:99999999999999999999999@1",
            "jump:315619200001@1",
            "jump:-9223372036854775808@1",
            "down:315619200001@1",
            "kill-torn:4294967296@1",
            "fail:4294967296@1",
            "evict@18446744073709551616",
        ] {
            assert!(matches!(fails(text), BadPlan::TooLarge { .. }), "{text}");
        }
        assert_eq!(fails(&"evict@1 ".repeat(1001)), BadPlan::TooMany);
    }

    #[test]
    fn what_is_no_plan_is_refused_with_the_word() {
        for word in [
            "evict",
            "evict@",
            "evict@0",
            "evict@-1",
            "evict@+1",
            "evict:1@1",
            "stall@1",
            "stall:-1@1",
            "jump:--1@1",
            "jump:@1",
            "latency=1s",
            "sed=1",
            "kill@1",
        ] {
            let Err(BadPlan::NoPart(said)) = word.parse::<Plan>() else { panic!("{word}") };
            assert!(word.starts_with(&said), "{word}: {said}");
        }
    }
}
