//! Many children.

use ghostlight_supervisor::{Decision, RestartPolicy, StopOrder, Supervisor};
use tokio::task::JoinSet;

use crate::support::{Do, Event, Log, Start, tell};

const MANY: usize = 10_000;

fn exits(log: &mut Log) -> usize {
    let exits = log.take().into_iter().filter_map(|event| match event {
        Event::Exit(notice) => Some(notice.decision),
        _ => None,
    });
    exits.inspect(|decision| assert_eq!(*decision, Decision::Remove)).count()
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_children_come_and_go() {
    let mut log = Log::new();
    let config = log.config().stop_order(StopOrder::Together);
    let supervisor = Supervisor::start(config, None).await.unwrap();
    for n in 0..MANY {
        let id = format!("{n}");
        supervisor.add(log.spec(&id, RestartPolicy::Temporary)).await.unwrap();
    }
    let children = supervisor.children().await.unwrap();
    assert!(children.iter().enumerate().all(|(n, (id, _))| id.as_str() == n.to_string()));

    // A quarter each: stops, crashes, is killed, is removed.
    let mut removals = JoinSet::new();
    for (n, (id, cell)) in children.iter().enumerate() {
        match n % 4 {
            0 => tell(cell, Do::Stop),
            1 => tell(cell, Do::Fail),
            2 => cell.kill(),
            _ => {
                let (supervisor, id) = (supervisor.clone(), id.clone());
                removals.spawn(async move { supervisor.remove(id).await });
            }
        }
    }
    assert!(removals.join_all().await.into_iter().all(|removed| removed == Ok(())));
    for (_, cell) in &children {
        cell.wait(None).await.unwrap();
    }
    assert_eq!(supervisor.children().await, Ok(vec![]));
    assert_eq!(exits(&mut log), MANY);
    supervisor.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_children_shut_down_in_both_orders() {
    for order in [StopOrder::OneByOne, StopOrder::Together] {
        let mut log = Log::new();
        let config = log.config().stop_order(order);
        let supervisor = Supervisor::start(config, None).await.unwrap();
        let mut adds = JoinSet::new();
        for n in 0..MANY {
            let spec = log.probe(&n.to_string(), RestartPolicy::Permanent, Start::Up);
            let supervisor = supervisor.clone();
            adds.spawn(async move { supervisor.add(spec).await.map(drop) });
        }
        assert!(adds.join_all().await.into_iter().all(|added| added == Ok(())));
        supervisor.shutdown().await;
        assert_eq!(exits(&mut log), MANY);
    }
}
