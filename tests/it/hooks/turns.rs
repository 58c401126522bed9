//! Turns: one at a time, first come first served, whatever becomes of the agent.

use super::*;

#[tokio::test(start_paused = true)]
async fn turns_run_one_at_a_time_in_order() {
    bounded(async {
        let (_system, agent, bench) = started(Hooked::default()).await;
        let turns = (0..20).map(|at| {
            let bench = bench.clone();
            agent.turn(move |cx| async move {
                bench.note(format!("turn {at}"));
                // A turn may dispatch and await runs of its own agent.
                let me = cx.agent::<Hooked>();
                let end = me.run::<Worker>(say("x")).id(format!("t{at}")).await.unwrap();
                bench.note(format!("end {at}"));
                end.completed().unwrap()
            })
        });
        for end in join_all(turns).await {
            assert_eq!(end.unwrap(), "x");
        }
        let order: Vec<_> = bench
            .events()
            .into_iter()
            .filter(|event| event.starts_with("turn ") || event.starts_with("end "))
            .collect();
        let expected: Vec<_> =
            (0..20).flat_map(|at| [format!("turn {at}"), format!("end {at}")]).collect();
        assert_eq!(order, expected);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_waits_for_its_own_queue_is_told() {
    bounded(async {
        let (system, agent, _bench) = started(Hooked::default()).await;
        let other = system.agent::<Hooked>("other").unwrap();
        let own = agent
            .turn(move |cx| async move {
                assert_eq!(other.turn(|_| async { 7 }).await.unwrap(), 7);
                cx.agent::<Hooked>().turn(|_| async {}).await
            })
            .await
            .unwrap();
        assert!(matches!(&own, Err(Error::OwnQueue(path)) if path == "Hooked:h"), "{own:?}");
        assert_eq!(agent.turn(|_| async { 8 }).await.unwrap(), 8);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_panics_takes_no_other_turn_with_it() {
    bounded(async {
        let (_system, agent, bench) = started(Hooked::default()).await;
        let bad = agent.turn({
            let bench = bench.clone();
            move |_| async move {
                bench.gate("g").await;
                panic!("a bug")
            }
        });
        let good = join_all((0..5).map(|at| agent.turn(move |_| async move { at })));
        let open = async { bench.open("g") };
        let (bad, (good, ())) = join(bad, join(good, open)).await;
        let bad: Result<(), _> = bad;
        assert!(matches!(bad, Err(Error::AgentDown { .. })), "{bad:?}");
        for (at, good) in good.into_iter().enumerate() {
            assert_eq!(good.unwrap(), at);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn after_a_turn_that_panicked_turns_still_run_one_at_a_time() {
    bounded(async {
        let (_system, agent, _bench) = started(Hooked::default()).await;
        let inside = Arc::new(AtomicU32::new(0));
        let bad = agent.turn(|_| async { panic!("a bug") });
        let good = join_all((0..5).map(|_| {
            let inside = Arc::clone(&inside);
            agent.turn(move |_| async move {
                let at_once = inside.fetch_add(1, Ordering::Relaxed) + 1;
                tokio::time::sleep(Duration::from_millis(10)).await;
                inside.fetch_sub(1, Ordering::Relaxed);
                at_once
            })
        }));
        let (bad, good) = join(bad, good).await;
        let bad: Result<(), _> = bad;
        assert!(matches!(bad, Err(Error::AgentDown { .. })), "{bad:?}");
        for at_once in good {
            assert_eq!(at_once.unwrap(), 1);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_ends_before_the_next_life_of_its_agent_begins() {
    struct Inside(Arc<AtomicU32>);
    impl Drop for Inside {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    bounded(async {
        let (system, agent, bench) = started(Hooked::default()).await;
        let inside = Arc::new(AtomicU32::new(0));
        let endless = agent.turn({
            let (inside, bench) = (Arc::clone(&inside), bench.clone());
            move |_| async move {
                inside.fetch_add(1, Ordering::Relaxed);
                let _inside = Inside(inside);
                bench.note("inside");
                std::future::pending::<()>().await;
            }
        });
        let next = async {
            bench.seen("inside", 1).await;
            assert!(crash_agent(system.system(), agent.path()));
            agent.turn(move |_| async move { inside.load(Ordering::Relaxed) }).await
        };
        let (endless, beside) = join(endless, next).await;
        assert!(matches!(endless, Err(Error::AgentDown { .. })), "{endless:?}");
        assert_eq!(beside.unwrap(), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_not_lost_when_its_agent_is_evicted() {
    bounded(async {
        let (_system, agent, _bench) = started(Hooked::default()).await;
        for _ in 0..50 {
            let (turn, evicted) = join(agent.turn(|_| async { 1 }), agent.evict()).await;
            evicted.unwrap();
            assert_eq!(turn.unwrap(), 1);
            let (evicted, turn) = join(agent.evict(), agent.turn(|_| async { 2 })).await;
            evicted.unwrap();
            assert_eq!(turn.unwrap(), 2);
        }
    })
    .await;
}
