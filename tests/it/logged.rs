//! What is logged of a run says which run it is, and which attempt, whoever logs it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ghostlight::prelude::*;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

use crate::bench::bounded;
use crate::support::code::{Code, Data, code, until};

type Fields = BTreeMap<&'static str, String>;

struct Taken(Fields);

impl Visit for Taken {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

/// Collects the events of the thread, each with the fields of the spans that it is in.
#[derive(Clone, Default)]
struct Collect(Arc<Mutex<Vec<Fields>>>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collect {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let mut taken = Taken(Fields::from([("span", attributes.metadata().name().to_owned())]));
        attributes.record(&mut taken);
        cx.span(id).unwrap().extensions_mut().insert(taken);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, cx: Context<'_, S>) {
        let span = cx.span(id).unwrap();
        values.record(span.extensions_mut().get_mut::<Taken>().unwrap());
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        let mut taken = Taken(Fields::new());
        for span in cx.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            let extensions = span.extensions();
            taken.0.extend(extensions.get::<Taken>().unwrap().0.clone());
        }
        event.record(&mut taken);
        self.0.lock().unwrap().push(taken.0);
    }
}

impl Collect {
    /// The texts logged of a run, each with its span and attempt; all of them say whose run it is.
    fn of(&self, run_id: &str) -> Vec<(String, String, String)> {
        let seen = self.0.lock().unwrap();
        let of_run = seen.iter().filter(|event| event.get("run_id").is_some_and(|id| id == run_id));
        let told = |event: &Fields| {
            assert_eq!(event.get("agent").map(String::as_str), Some("Told:a"), "{event:?}");
            assert!(event.contains_key("attempt"), "{event:?}");
            let field = |name| event.get(name).cloned().unwrap_or_default();
            (field("message"), field("span"), field("attempt"))
        };
        of_run.map(told).collect()
    }
}

/// A parent whose first finish hook fails.
#[derive(Clone, Default)]
struct Told(Arc<AtomicBool>);

impl Agent for Told {
    const TYPE: &'static str = "Told";

    fn callbacks(callbacks: &mut Callbacks<Self>) {
        callbacks.on_run_finish(Self::finished);
    }
}

impl Told {
    async fn finished(
        &self,
        _: &AgentContext,
        run: RunInfo,
        _: Outcome<Value>,
    ) -> Result<(), RunError> {
        tracing::info!("hook");
        match run.run_id == "r" && !self.0.swap(true, Ordering::SeqCst) {
            true => Err(RunError::new("not yet")),
            false => Ok(()),
        }
    }
}

/// Sleeps for half a minute, and then says so; `c` waits for ever.
fn sleeper() -> Code {
    code(|cx, _| {
        Box::pin(async move {
            tracing::info!("code");
            if cx.run_id() == "c" {
                std::future::pending::<()>().await;
            }
            cx.sleep(Duration::from_secs(30)).await;
            cx.milestone("awake", json!(null)).await?;
            if cx.attempt() == 1 {
                std::future::pending::<()>().await;
            }
            Ok(json!(null))
        })
    })
}

/// A run that sleeps, is resumed, and loses its process, and one that is cancelled.
async fn lives(log: &Collect) {
    bounded(async {
        let (data, told) = (Data::new(), Told::default());
        let start =
            async || data.builder().agent(told.clone()).child(sleeper()).start().await.unwrap();
        let system = start().await;
        let parent = system.agent::<Told>("a").unwrap();
        let run = parent.start::<Code>(json!(null)).id("r").await.unwrap();
        run.milestone("awake").await.unwrap();
        system.crash().await;

        let system = start().await;
        let parent = system.agent::<Told>("a").unwrap();
        let cancelled = parent.start::<Code>(json!(null)).id("c").await.unwrap();
        cancelled.cancel("enough").await.unwrap();
        cancelled.outcome().await.unwrap();
        let hooks = || log.0.lock().unwrap().iter().filter(|e| e["message"] == "hook").count();
        until("all deliveries", async || hooks() == 3).await;
        system.shutdown().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn everything_says_which_run_and_which_attempt_it_is_about() {
    let log = Collect::default();
    let _default = tracing::subscriber::set_default(Registry::default().with(log.clone()));
    lives(&log).await;
    // A place that logs, and that another test came by first just when the subscriber was made, may
    // have missed it. A new subscriber asks all of them again.
    drop(tracing::Dispatch::new(Registry::default()));
    log.0.lock().unwrap().clear();
    lives(&log).await;
    let told = |run_id| {
        log.of(run_id)
            .into_iter()
            .map(|(text, span, attempt)| format!("{text}, {span}, {attempt}"))
            .collect::<Vec<_>>()
    };
    let of_r = [
        "run dispatched, operation, 1",
        "code, run, 1",
        "run suspended, Actor, 1",
        "run resumed, operation, 1",
        "code, run, 1",
        "run resumed, operation, 2",
        "code, run, 2",
        "run ended, Actor, 2",
        "hook, delivery, 2",
        "a finish hook failed, delivery, 2",
        "hook, delivery, 2",
    ];
    assert_eq!(told("r"), of_r);
    let of_c = [
        "run dispatched, operation, 1",
        "code, run, 1",
        "cancel requested, Actor, 1",
        "run ended, Actor, 1",
        "hook, delivery, 1",
    ];
    assert_eq!(told("c"), of_c);
}
