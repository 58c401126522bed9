//! Who reads the frames of every run, beside the scenario: readers that are patient, slow, forgetful,
//! and gone.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ghostlight::{After, AgentPath, Error, System};
use tokio::sync::Notify;

use crate::invariant::Event;
use crate::world::World;

/// How many frames a run may be ahead of a reader before it is caught up from the log, by the seed. In
/// most worlds every reader that is not quick falls behind.
const UNREAD_MAX: [usize; 4] = [2, 1, 5, 1024];

/// How many unread frames the observers of a world may have.
pub(crate) fn unread_max(seed: u64) -> usize {
    let at = usize::try_from(seed % UNREAD_MAX.len() as u64).unwrap_or(0);
    UNREAD_MAX[at]
}

/// The observers of a world.
#[derive(Debug, Default)]
pub(crate) struct Observers {
    inner: Mutex<Inner>,
    /// A run was recorded that nobody observes yet.
    begun: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    unobserved: VecDeque<AgentPath>,
    /// Runs that nobody asks for until everything is done: the system has to go on with them by itself.
    alone: VecDeque<AgentPath>,
    /// How many tails there were, in all lives.
    tails: u64,
    /// How many observers of this life have not come to the end of their run.
    reading: usize,
    /// Nobody observes anything.
    #[cfg(test)]
    dismissed: bool,
}

impl Observers {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A life begins, and so do the observers of what is recorded: of all runs, of some, or, in every other
    /// life, of none, for whoever is read is brought into memory by that.
    pub(crate) fn begin_life(&self, recorded: VecDeque<AgentPath>, chance: &mut fastrand::Rng) {
        let share = chance.u8(..4).saturating_sub(1);
        let observed = |_: &AgentPath| chance.u8(..2) < share;
        let (unobserved, alone) = recorded.into_iter().partition(observed);
        let mut inner = self.lock();
        (inner.unobserved, inner.alone) = (unobserved, alone);
        inner.reading = 0;
    }

    /// Everything is done: lets the runs be observed that were left alone.
    pub(crate) fn observe_the_rest(&self) {
        let mut inner = self.lock();
        let alone = std::mem::take(&mut inner.alone);
        inner.unobserved.extend(alone);
        drop(inner);
        self.begun.notify_one();
    }

    /// Lets runs be observed that were recorded just now.
    pub(crate) fn add(&self, begun: Vec<AgentPath>) {
        self.lock().unobserved.extend(begun);
        self.begun.notify_one();
    }

    #[cfg(test)]
    fn dismiss(&self) {
        self.lock().dismissed = true;
    }

    /// Whether every observer has come to the end of its run.
    pub(crate) fn are_done(&self) -> bool {
        let inner = self.lock();
        inner.reading == 0 && inner.unobserved.is_empty()
    }

    /// Waits for a run that nobody observes yet.
    async fn begun(&self) -> AgentPath {
        loop {
            {
                let mut inner = self.lock();
                #[cfg(test)]
                if inner.dismissed {
                    inner.unobserved.clear();
                }
                if let Some(path) = inner.unobserved.pop_front() {
                    // Counted before anybody can take the observers for done.
                    inner.reading += Reader::PATIENT.len();
                    return path;
                }
            }
            self.begun.notified().await;
        }
    }

    fn next_tail(&self) -> u64 {
        let mut inner = self.lock();
        inner.tails += 1;
        inner.tails
    }
}

/// How an observer reads.
#[derive(Debug, Clone, Copy)]
enum Reader {
    /// From the first frame to the end, as fast as it can.
    Whole,
    /// From the middle of what is there.
    Middle,
    /// Takes its time for every frame.
    Slow,
    /// Drops its tail again and again, and begins anew behind what it has.
    Restless,
    /// Reads one frame, keeps its tail, and never goes on.
    Gone,
}

impl Reader {
    /// Those who come to the end.
    const PATIENT: [Self; 4] = [Self::Whole, Self::Middle, Self::Slow, Self::Restless];
}

/// How long a slow reader takes for a frame.
const SLOW: Duration = Duration::from_millis(700);

/// Observes every run.
pub(crate) async fn observe(world: World, system: System) {
    let mut runs = 0;
    loop {
        let path = world.observers().begun().await;
        runs += 1;
        for reader in Reader::PATIENT {
            let observer = Observer::new(&world, &system, &path, reader);
            tokio::spawn(async move {
                observer.read().await;
                observer.world.observers().lock().reading -= 1;
            });
        }
        // An agent of which a tail is open does not leave memory by itself: some have none.
        if runs % 3 == 0 {
            let observer = Observer::new(&world, &system, &path, Reader::Gone);
            tokio::spawn(async move { observer.read().await });
        }
    }
}

struct Observer {
    world: World,
    system: System,
    run: AgentPath,
    reader: Reader,
}

impl Observer {
    fn new(world: &World, system: &System, run: &AgentPath, reader: Reader) -> Self {
        let (world, system, run) = (world.clone(), system.clone(), run.clone());
        Self { world, system, run, reader }
    }

    async fn read(&self) {
        let mut after = match self.reader {
            Reader::Middle => {
                let frames = self.world.durable(|durable| {
                    durable.run_at(&self.run).map_or(0, |run| run.frames.len() as u64)
                });
                (frames / 2).checked_sub(1)
            }
            _ => None,
        };
        loop {
            let observer = self.world.observers().next_tail();
            let run = &self.run;
            self.world.tell(&Event::TailBegan { observer, run, after });
            match self.tail(observer, after).await {
                Ok(Some(last)) => after = Some(last),
                // The life is over: nobody is there any more who could be told.
                Err(Error::Stopped) if self.world.system().is_none() => break,
                ended => {
                    let error = ended.as_ref().err();
                    self.world.tell(&Event::TailEnded { observer, run, error });
                    break;
                }
            }
        }
    }

    /// Reads one tail. Returns the last frame, if it is dropped before it ends.
    async fn tail(&self, observer: u64, after: Option<u64>) -> Result<Option<u64>, Error> {
        let Some((parent, run_id)) = self.run.parent() else { return Ok(None) };
        let from = after.map_or(After::START, After::number);
        let mut tail = self.system.agent_at(&parent)?.tail(run_id.as_str(), from).await?;
        let mut read = 0;
        while let Some(frame) = tail.next().await {
            let frame = frame?;
            self.world.tell(&Event::Frame { observer, run: &self.run, frame: &frame });
            read += 1;
            match self.reader {
                Reader::Whole | Reader::Middle => {}
                Reader::Slow => tokio::time::sleep(SLOW).await,
                // After one frame, two more, four more: each tail reads half of what there is by then.
                Reader::Restless if read > frame.sequence / 2 => return Ok(Some(frame.sequence)),
                Reader::Restless => {}
                Reader::Gone => std::future::pending().await,
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::Invariants;
    use crate::life::{LifeEnd, live};
    use crate::plan::Plan;
    use crate::scenarios::{Nest, OrderFulfilment, Tails};
    use crate::thread::Watchdog;
    use crate::{Scenario, scenario::Erased};

    /// When something was recorded of runs for the last time.
    fn last_commit(scenario: &dyn Erased, observed: bool) -> u64 {
        let world = World::new(Plan::calm(0), Invariants::none(), 1_000, crate::LIFE_MAX);
        if !observed {
            world.observers().dismiss();
        }
        let watchdog = Watchdog::begin("a test of observers".into());
        let end = live(scenario, &world, &watchdog).unwrap();
        match world.violation() {
            None => assert!(observed && matches!(end, LifeEnd::Settled)),
            Some(violation) => {
                assert!(!observed && violation.text.contains("nobody was shown"), "{violation:?}");
            }
        }
        let tails = world.observers().lock().tails;
        assert_eq!(tails > 0, observed, "{tails} tails");
        let commits = world.take_trace().into_iter().filter(|line| line.kind == "commit");
        commits.map(|line| line.at_ms).max().unwrap()
    }

    #[test]
    fn observers_slow_nobody() {
        fn check(scenario: impl Scenario) {
            let (observed, alone) = (last_commit(&scenario, true), last_commit(&scenario, false));
            assert_eq!(observed, alone, "{}", Scenario::name(&scenario));
        }
        check(OrderFulfilment);
        check(Nest);
        check(Tails);
    }
}
