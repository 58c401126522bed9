use super::*;

fn step(key: &str) -> Call {
    Call::Step(key.into())
}

fn journal(log: &[(&str, u32)]) -> Journal<u32> {
    Journal::new(log.iter().map(|(key, result)| Recorded::Completed(step(key), *result)))
}

fn open(journal: &mut Journal<u32>, keys: &[&str]) {
    for key in keys {
        journal.open(&step(key)).unwrap();
    }
}

fn ask(journal: &mut Journal<u32>, key: &str) -> Told<u32> {
    journal.poll(&step(key))
}

/// The code stands still: who is woken?
fn stand(journal: &mut Journal<u32>) -> Wake {
    let wake = journal.standstill(Outside::MayWake).unwrap();
    if wake != Wake::Nobody {
        journal.polled();
    }
    wake
}

#[test]
fn results_come_in_log_order_whoever_asks_first() {
    let mut journal = journal(&[("b", 2), ("a", 1)]);
    open(&mut journal, &["a", "b"]);
    assert_eq!(ask(&mut journal, "a"), Told::Pending);
    assert_eq!(ask(&mut journal, "b"), Told::Pending, "in life nothing is ready at the first poll");
    assert_eq!(stand(&mut journal), Wake::One(step("b")));
    assert_eq!(ask(&mut journal, "a"), Told::Pending);
    assert_eq!(ask(&mut journal, "b"), Told::Ready(2));
    assert_eq!(ask(&mut journal, "a"), Told::Pending, "the code has not stood still since");
    assert_eq!(stand(&mut journal), Wake::One(step("a")));
    assert_eq!(ask(&mut journal, "a"), Told::Ready(1));
    assert_eq!(stand(&mut journal), Wake::All);
    assert!(journal.is_caught_up());
}

#[test]
fn nothing_is_executed_before_the_log_is_used_up() {
    let mut journal = journal(&[("won", 1)]);
    open(&mut journal, &["lost", "won"]);
    assert_eq!(ask(&mut journal, "lost"), Told::Pending, "a step that lost a race");
    assert_eq!(stand(&mut journal), Wake::One(step("won")));
    assert_eq!(ask(&mut journal, "won"), Told::Ready(1));
    assert_eq!(ask(&mut journal, "lost"), Told::Pending);
    assert_eq!(stand(&mut journal), Wake::All);
    assert_eq!(ask(&mut journal, "lost"), Told::Execute);
    assert_eq!(ask(&mut journal, "lost"), Told::Pending, "execution is said once");
    journal.complete(step("lost"), 7);
    assert_eq!(ask(&mut journal, "lost"), Told::Pending, "the code is being polled");
    assert_eq!(stand(&mut journal), Wake::One(step("lost")));
    assert_eq!(ask(&mut journal, "lost"), Told::Ready(7));
}

#[test]
fn one_completion_at_a_time_reaches_code_that_stands_still() {
    let mut journal = journal(&[]);
    open(&mut journal, &["a", "b"]);
    assert_eq!(ask(&mut journal, "a"), Told::Execute);
    assert_eq!(ask(&mut journal, "b"), Told::Execute);
    assert_eq!(stand(&mut journal), Wake::Nobody);
    assert!(journal.is_standing());
    journal.complete(step("b"), 2);
    journal.complete(step("a"), 1);
    assert_eq!(stand(&mut journal), Wake::One(step("b")));
    assert!(!journal.is_standing(), "the code was just woken");
    journal.polled();
    assert_eq!(ask(&mut journal, "a"), Told::Pending);
    assert_eq!(ask(&mut journal, "b"), Told::Ready(2));
    assert_eq!(stand(&mut journal), Wake::One(step("a")));
    assert_eq!(ask(&mut journal, "a"), Told::Ready(1));
}

#[test]
fn code_is_behind_until_it_was_told_and_has_done_all_that_the_log_has() {
    assert!(!journal(&[]).is_behind());
    let mut told = journal(&[("a", 1)]);
    open(&mut told, &["a"]);
    assert!(told.is_behind());
    assert_eq!(stand(&mut told), Wake::One(step("a")));
    assert_eq!(ask(&mut told, "a"), Told::Ready(1));
    assert!(told.is_behind(), "it may have done more at the time");
    assert_eq!(stand(&mut told), Wake::All);
    assert!(!told.is_behind());

    let mut done = Journal::new([Recorded::Act(Act::Chunk, 0)]);
    assert!(done.is_behind());
    assert_eq!(done.act(&Act::Chunk), Ok(Acted::Recorded(0)));
    assert!(!done.is_behind());
}

#[test]
fn a_dropped_future_makes_room_for_the_next() {
    let mut journal = journal(&[("a", 1), ("b", 2)]);
    open(&mut journal, &["a", "b"]);
    assert_eq!(ask(&mut journal, "b"), Told::Pending);
    journal.close(&step("a"));
    assert_eq!(stand(&mut journal), Wake::One(step("b")));
    assert_eq!(ask(&mut journal, "b"), Told::Ready(2));
    assert_eq!(stand(&mut journal), Wake::All);
    assert!(journal.is_caught_up());
}

#[test]
fn a_completion_for_a_dropped_future_is_dropped() {
    let mut journal = journal(&[]);
    open(&mut journal, &["a", "b"]);
    assert_eq!(ask(&mut journal, "a"), Told::Execute);
    journal.close(&step("a"));
    journal.complete(step("a"), 1);
    assert_eq!(stand(&mut journal), Wake::Nobody);
    assert_eq!(ask(&mut journal, "b"), Told::Execute);
    assert!(!journal.spent.is_empty() && journal.completions.is_empty());
}

#[test]
fn an_awaited_act_goes_on_in_its_place_in_the_log() {
    let milestone = Act::Milestone("m".into());
    let log = [Recorded::Completed(step("a"), 1), Recorded::Act(milestone.clone(), 0)];
    let mut journal: Journal<u32> = Journal::new(log);
    open(&mut journal, &["a"]);
    assert_eq!(journal.act(&milestone), Ok(Acted::Recorded(0)));
    assert_eq!(journal.poll(&Call::Act(0)), Told::Pending, "the step's result comes first");
    assert_eq!(stand(&mut journal), Wake::One(step("a")));
    assert_eq!(ask(&mut journal, "a"), Told::Ready(1));
    assert_eq!(stand(&mut journal), Wake::One(Call::Act(0)));
    assert_eq!(journal.poll(&Call::Act(0)), Told::Ready(0));
}

#[test]
fn a_key_is_spent_for_the_whole_entry() {
    let mut journal = journal(&[("a", 1)]);
    open(&mut journal, &["a"]);
    assert_eq!(journal.open(&step("a")), Err(CallError::Reused(step("a"))));
    assert_eq!(stand(&mut journal), Wake::One(step("a")));
    assert_eq!(ask(&mut journal, "a"), Told::Ready(1));
    assert_eq!(journal.open(&step("a")), Err(CallError::Reused(step("a"))));
}

#[test]
fn a_held_future_does_not_block_the_others() {
    // select! in a loop: the sleep fires while the code is inside the other arm.
    let mut journal: Journal<u32> = Journal::new([
        Recorded::SleepSet(0, 50),
        Recorded::Completed(Call::Sleep(0), 0),
        Recorded::Completed(step("inside"), 1),
    ]);
    journal.open(&Call::Sleep(0)).unwrap();
    open(&mut journal, &["inside"]);
    assert_eq!(ask(&mut journal, "inside"), Told::Pending);
    assert_eq!(stand(&mut journal), Wake::One(Call::Sleep(0)));
    assert_eq!(stand(&mut journal), Wake::One(step("inside")), "nobody took the sleep");
    assert_eq!(ask(&mut journal, "inside"), Told::Ready(1));
    // A new step now: the sleep was released, asked for, and simply is not polled.
    open(&mut journal, &["next"]);
    assert_eq!(ask(&mut journal, "next"), Told::Pending);
    assert_eq!(stand(&mut journal), Wake::All);
    assert_eq!(ask(&mut journal, "next"), Told::Execute);
    assert_eq!(journal.poll(&Call::Sleep(0)), Told::Ready(0));
}

/// The mismatch of code that has its time to be woken from outside, and is not.
fn overdue(journal: &mut Journal<u32>) -> Mismatch {
    assert_eq!(journal.standstill(Outside::MayWake), Ok(Wake::Nobody), "it may still ask");
    assert!(journal.is_in_doubt());
    let mismatch = journal.standstill(Outside::Overdue).unwrap_err();
    assert_eq!(journal.standstill(Outside::Nothing), Err(mismatch.clone()), "at once, if alone");
    mismatch
}

#[test]
fn waiting_for_what_the_log_does_not_have_is_a_mismatch() {
    let mut journal = journal(&[("old", 1), ("later", 2)]);
    open(&mut journal, &["later", "new"]);
    assert_eq!(ask(&mut journal, "new"), Told::Pending);
    let mismatch = overdue(&mut journal);
    assert_eq!((mismatch.entry, mismatch.log.as_str()), (0, "step \"old\""));
    assert_eq!(mismatch.code, "step \"new\"");
}

#[test]
fn waiting_for_what_the_log_has_later_is_a_mismatch() {
    let mut journal = journal(&[("first", 1), ("second", 2)]);
    open(&mut journal, &["second"]);
    assert_eq!(ask(&mut journal, "second"), Told::Pending);
    let mismatch = overdue(&mut journal);
    assert_eq!((mismatch.entry, mismatch.log.as_str()), (0, "step \"first\""));
    assert_eq!(mismatch.code, "step \"second\" first");
}

#[test]
fn waiting_for_the_outside_is_none() {
    let mut journal = journal(&[("old", 1)]);
    for outside in [Outside::MayWake, Outside::Overdue] {
        assert_eq!(journal.standstill(outside), Ok(Wake::Nobody));
        assert!(!journal.is_in_doubt());
    }
    assert_eq!(journal.standstill(Outside::Nothing).unwrap_err().code, "nothing more");
    journal.polled();
    open(&mut journal, &["old"]);
    assert_eq!(ask(&mut journal, "old"), Told::Pending);
    assert_eq!(stand(&mut journal), Wake::One(step("old")));
    assert_eq!(ask(&mut journal, "old"), Told::Ready(1));
}

#[test]
fn a_result_that_is_held_is_not_waited_for() {
    let mut journal = journal(&[("held", 1), ("old", 2)]);
    open(&mut journal, &["held"]);
    assert_eq!(stand(&mut journal), Wake::One(step("held")));
    assert_eq!(journal.standstill(Outside::MayWake), Ok(Wake::Nobody));
    assert!(!journal.is_in_doubt());
    assert_eq!(journal.standstill(Outside::Overdue), Ok(Wake::Nobody));
    assert_eq!(journal.standstill(Outside::Nothing).unwrap_err().code, "nothing more");
}

#[test]
fn what_is_asked_for_in_time_ends_the_doubt() {
    let mut journal = journal(&[("first", 1), ("second", 2)]);
    open(&mut journal, &["second", "new"]);
    assert_eq!(stand(&mut journal), Wake::Nobody);
    assert!(journal.is_in_doubt());
    journal.polled();
    assert!(!journal.is_in_doubt(), "it is being polled");
    open(&mut journal, &["first"]);
    assert_eq!(stand(&mut journal), Wake::One(step("first")));
    assert!(!journal.is_in_doubt(), "it was woken");
    assert_eq!(ask(&mut journal, "first"), Told::Ready(1));
    assert_eq!(stand(&mut journal), Wake::One(step("second")));
    assert_eq!(ask(&mut journal, "second"), Told::Ready(2));
    assert_eq!(stand(&mut journal), Wake::All);
    assert!(!journal.is_in_doubt(), "and may wait for anything from here on");
    assert_eq!(ask(&mut journal, "new"), Told::Execute);
}

#[test]
fn a_mismatch_names_the_entry_of_the_log_and_not_the_number_of_the_act() {
    let log = || {
        Journal::new([
            Recorded::Completed(step("a"), 1),
            Recorded::Act(Act::Chunk, 0),
            Recorded::SleepSet(0, 10),
            Recorded::Act(Act::Chunk, 0),
        ])
    };
    let mut journal = log();
    assert_eq!(journal.act(&Act::State("k".into())).unwrap_err().entry, 1);
    let mut journal = log();
    open(&mut journal, &["a"]);
    assert_eq!(stand(&mut journal), Wake::One(step("a")));
    assert_eq!(ask(&mut journal, "a"), Told::Ready(1));
    assert_eq!(journal.act(&Act::Chunk), Ok(Acted::Recorded(0)));
    assert_eq!(journal.act(&Act::State("k".into())).unwrap_err().entry, 3);
    assert_eq!(journal.finish().unwrap_err().entry, 3);
}

#[test]
fn acts_are_matched_one_by_one() {
    let log = [Act::Chunk, Act::Milestone("m".into()), Act::State("k".into())];
    let mut journal: Journal<u32> = Journal::new(log.clone().map(|act| Recorded::Act(act, 0)));
    assert_eq!(journal.act(&Act::Chunk), Ok(Acted::Recorded(0)));
    let mismatch = journal.act(&Act::Milestone("other".into())).unwrap_err();
    assert_eq!((mismatch.entry, mismatch.log.as_str()), (1, "milestone \"m\""));
    assert_eq!(journal.act(&log[1]), Ok(Acted::Recorded(1)));
    assert!(journal.finish().is_err(), "the code ended early");
    assert_eq!(journal.act(&log[2]), Ok(Acted::Recorded(2)));
    assert_eq!(journal.act(&Act::Chunk), Ok(Acted::Append(3)));
    assert_eq!(journal.finish(), Ok(()));
}

#[test]
fn ending_before_the_log_does_is_a_mismatch() {
    let mut journal = journal(&[("a", 1)]);
    assert_eq!(journal.finish().unwrap_err().code, "its end");
    // Asked for, and its future dropped: the code saw as much as it wanted.
    open(&mut journal, &["a"]);
    journal.close(&step("a"));
    assert_eq!(stand(&mut journal), Wake::All);
    assert_eq!(journal.finish(), Ok(()));
}

#[test]
fn tries_sleeps_and_torn_steps_are_remembered() {
    let mut journal: Journal<u32> = Journal::new([
        Recorded::SleepSet(0, 99),
        Recorded::Tried("s".into(), 3),
        Recorded::StepEvent("done".into()),
        Recorded::Completed(step("done"), 1),
        Recorded::StepEvent("torn".into()),
    ]);
    assert_eq!((journal.sleep_due(0), journal.sleep_due(1)), (Some(99), None));
    assert_eq!((journal.tries("s"), journal.tries("t")), (3, 0));
    assert!(!journal.take_torn("done"));
    assert!(journal.take_torn("torn") && !journal.take_torn("torn"));
}

/// A model of code: `width` concurrent steps at a time, polled in an order of its own, each chosen
/// by what it was told so far. Whatever is cut off the log, a re-entry takes the same path.
#[test]
fn every_prefix_of_the_log_leads_down_the_same_path() {
    for seed in 0..2000u64 {
        let mut order = Vec::new();
        drive(seed, &[], &mut order);
        for cut in 0..=order.len() {
            let mut again = Vec::new();
            drive(seed, &order[..cut], &mut again);
            assert_eq!(again[..cut], order[..cut], "seed {seed} cut {cut}");
        }
    }
}

/// Runs the model, and reports the completions in the order in which the code took them.
fn drive(seed: u64, log: &[(String, u32)], taken: &mut Vec<(String, u32)>) {
    let recorded = log.iter().map(|(key, r)| Recorded::Completed(step(key), *r));
    let mut journal: Journal<u32> = Journal::new(recorded);
    let mut chance = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut roll = |n: u64| {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        chance % n
    };
    let mut path = 0u32;
    for round in 0..4 {
        // What the code asks for depends on what it was told, never on chance.
        let keys: Vec<String> = (0..3).map(|i| format!("{round}-{path}-{i}")).collect();
        let mut open: Vec<String> = keys.clone();
        for key in &keys {
            journal.open(&step(key)).unwrap();
        }
        let wanted = 1 + path % 3;
        let mut got = 0;
        while got < wanted {
            let mut executing = Vec::new();
            let mut progress = false;
            for key in open.clone() {
                match journal.poll(&step(&key)) {
                    Told::Ready(result) => {
                        assert_eq!(result, key.len() as u32);
                        taken.push((key.clone(), result));
                        path = path * 3 + keys.iter().position(|k| *k == key).unwrap() as u32 + 1;
                        open.retain(|k| *k != key);
                        got += 1;
                        progress = true;
                    }
                    Told::Execute => executing.push(key),
                    Told::Pending => {}
                }
                if got == wanted {
                    break;
                }
            }
            // Chance decides in which order executions complete.
            while !executing.is_empty() {
                let key = executing.swap_remove(roll(executing.len() as u64) as usize);
                let result = key.len() as u32;
                journal.complete(step(&key), result);
            }
            if !progress {
                let _ = journal.standstill(Outside::MayWake).unwrap();
                journal.polled();
            }
        }
        for key in open {
            journal.close(&step(&key));
        }
    }
    journal.finish().unwrap();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "it measures how long pure code takes")]
fn a_long_past_is_gone_through_in_about_linear_time() {
    const STEPS: u32 = 10_000;
    let key = |n: u32| step(&format!("part {n}"));
    let log = (0..STEPS).map(|n| Recorded::Completed(key(n), n));
    let mut journal = Journal::new(log);
    let begin = std::time::Instant::now();
    for n in 0..STEPS {
        journal.open(&key(n)).unwrap();
        assert_eq!(journal.poll(&key(n)), Told::Pending);
        assert_eq!(stand(&mut journal), Wake::One(key(n)));
        assert_eq!(journal.poll(&key(n)), Told::Ready(n));
    }
    assert_eq!(stand(&mut journal), Wake::All);
    // It takes well below a second; with a look at the whole past at every step, minutes.
    assert!(begin.elapsed() < std::time::Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[test]
fn completions_for_dropped_futures_hold_nobody_back() {
    let mut journal = journal(&[("a", 1), ("b", 2), ("c", 3), ("d", 4)]);
    open(&mut journal, &["a", "b", "c", "d"]);
    assert_eq!(stand(&mut journal), Wake::One(step("a")));
    // Released and not taken, next, and further on.
    for key in ["a", "b", "c"] {
        journal.close(&step(key));
    }
    assert_eq!(stand(&mut journal), Wake::One(step("d")));
    assert_eq!(ask(&mut journal, "d"), Told::Ready(4));
    assert_eq!(stand(&mut journal), Wake::All);
    assert!(journal.is_caught_up() && journal.completions.is_empty());
}

#[test]
fn the_limit_of_a_wait_is_no_sleep() {
    let log = [Recorded::SleepSet(limit_of(0), 99), Recorded::SleepSet(1, 50)];
    let journal: Journal<u32> = Journal::new(log);
    assert_eq!((journal.sleep_due(0), journal.sleep_due(limit_of(0))), (None, Some(99)));
    assert_eq!((journal.sleep_due(1), journal.sleep_due(limit_of(1))), (Some(50), None));
    assert_eq!(
        (due_name(limit_of(3)), due_name(3)),
        ("the limit of wait 3".into(), "sleep 3".into())
    );
}
