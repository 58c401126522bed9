//! The registry: dispatch, list, inspect, cancel, clear.

use ghostlight::{RunFilter, Status};
use ghostlight_server::{Client, ClientError};
use serde_json::json;

use crate::support::{Owner, RUNS, boss};

#[tokio::test]
async fn runs_are_listed_page_by_page() {
    let owner = Owner::start().await;
    let client = owner.client().await;
    assert_eq!(client.agents().await.unwrap(), []);
    for id in ["a", "b", "c", "d/é %2F"] {
        owner.done(id, 0).await;
    }
    owner.dispatch("live", 1, 0).await;
    assert_eq!(client.agents().await.unwrap(), [boss()]);

    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page = client.runs(&boss(), &RunFilter::default(), after.as_ref(), 2).await.unwrap();
        assert!(page.runs.len() <= 2);
        ids.extend(page.runs.into_iter().map(|run| run.run_id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    ids.sort();
    assert_eq!(ids, ["a", "b", "c", "d/é %2F", "live"]);
    let live = RunFilter {
        status: vec![Status::Starting, Status::Running],
        agent_type: Some("Worker".to_owned()),
        started_before: Some(u64::MAX),
    };
    let page = client.runs(&boss(), &live, None, 100).await.unwrap();
    assert_eq!(page.runs.len(), 1);
    let other = RunFilter { agent_type: Some("Other".to_owned()), ..RunFilter::default() };
    assert_eq!(client.runs(&boss(), &other, None, 100).await.unwrap().runs, []);

    let run = client.run(&boss(), "d/é %2F").await.unwrap().unwrap();
    assert_eq!((run.run.status, run.output), (Status::Completed, Some(json!(0))));
    assert_eq!(run.run.parent.0, boss());
    assert_eq!(run.next_sequence, 2);
    assert_eq!(client.run(&boss(), "nobody").await.unwrap(), None);
}

#[tokio::test]
async fn a_dispatch_makes_a_run_once() {
    let owner = Owner::start().await;
    let body = r#"{"agentType":"Worker","input":[0,0],"runId":"r/1","displayOrder":7}"#;
    let (status, head, json) = owner.post(RUNS, body).await;
    assert_eq!((status, json), (201, json!({ "runId": "r/1", "alreadyExisted": false })));
    assert!(head.contains("location: /agents/big-boss/b/runs/r%2f1\r\n"), "{head}");
    let (status, _, json) = owner.post(RUNS, body).await;
    assert_eq!((status, json), (200, json!({ "runId": "r/1", "alreadyExisted": true })));
    let (status, _, json) = owner.post(RUNS, r#"{"agentType":"Worker","input":[0,0]}"#).await;
    assert_eq!(status, 201);
    assert_eq!(json["runId"].as_str().unwrap().len(), 12);
    let run = owner.client().await.run(&boss(), "r/1").await.unwrap().unwrap();
    assert_eq!(run.run.display_order, 7);

    for (body, status, code) in [
        (r#"{"agentType":"Worker","input":[1,0],"runId":"r/1"}"#, 409, "different-input"),
        (
            r#"{"agentType":"Worker","input":[0,0],"runId":"r/1","detached":true}"#,
            409,
            "different-mode",
        ),
        (r#"{"agentType":"Nobody","input":1}"#, 400, "unknown-agent-type"),
        (r#"{"agentType":"BigBoss","input":1}"#, 400, "not-a-child"),
        (r#"{"agentType":"Worker","input":1,"runId":".."}"#, 400, "invalid-name"),
        (r#"{"agentType":"Worker"}"#, 400, "invalid-body"),
        (r#"{"agentType":"Worker","input":1,"runid":"x"}"#, 400, "invalid-body"),
        ("{", 400, "invalid-body"),
        ("", 400, "invalid-body"),
    ] {
        let (got, _, problem) = owner.post(RUNS, body).await;
        assert_eq!((got, problem["code"].as_str()), (status, Some(code)), "{body}: {problem}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancel_is_durable_once_answered() {
    let owner = Owner::start().await;
    let client = owner.client().await;
    owner.dispatch("live", 1, 0).await;
    let run = client.cancel(&boss(), "live", "enough").await.unwrap();
    assert!(run.cancelling);
    owner.ended("live").await;
    let run = client.run(&boss(), "live").await.unwrap().unwrap();
    assert_eq!((run.run.status, run.run.error.as_deref()), (Status::Aborted, Some("enough")));
    // An ended run is no error, and its end stands.
    let again = client.cancel(&boss(), "live", "again").await.unwrap();
    assert_eq!((again.error.as_deref(), again.cancelling), (Some("enough"), false));
    // A cancel needs no body.
    let (status, _, json) = owner.ask("POST", &format!("{RUNS}/live/cancel"), "").await;
    assert_eq!((status, &json["status"]), (200, &json!("aborted")));
}

fn code(error: ClientError) -> (u16, String) {
    match error {
        ClientError::Problem { status, code, .. } => (status, code),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_clear_takes_what_its_filter_admits() {
    let owner = Owner::start().await;
    let client = owner.client().await;
    owner.done("done", 1).await;
    owner.dispatch("live", 1, 0).await;
    let failed = RunFilter { status: vec![Status::Error], ..RunFilter::default() };
    assert_eq!(client.clear(&boss(), &failed).await.unwrap(), 0);
    let old = RunFilter { started_before: Some(1), ..RunFilter::default() };
    assert_eq!(client.clear(&boss(), &old).await.unwrap(), 0);
    let completed = RunFilter { status: vec![Status::Completed], ..RunFilter::default() };
    assert_eq!(client.clear(&boss(), &completed).await.unwrap(), 1);
    assert_eq!(code(client.run(&boss(), "done").await.unwrap_err()), (410, "cleared".to_owned()));

    // One that is live is cancelled first, and whoever follows it is told.
    let mut tail = client.tail(&boss(), "live", None).await.unwrap();
    assert_eq!(tail.next().await.unwrap().unwrap().sequence, 0);
    assert_eq!(client.clear(&boss(), &RunFilter::default()).await.unwrap(), 1);
    loop {
        match tail.next().await {
            // The cancel comes first, and is the run's end.
            Some(Ok(frame)) if frame.event.is_hard_end() => break,
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                assert_eq!(code(error), (410, "cleared".to_owned()));
                break;
            }
            None => panic!("the stream ended without an end"),
        }
    }
    assert!(tail.next().await.is_none());
    let error = client.tail(&boss(), "live", None).await.unwrap_err();
    assert_eq!(code(error), (410, "cleared".to_owned()));
    assert_eq!(client.agents().await.unwrap(), []);
}

#[tokio::test]
async fn two_systems_in_one_process_do_not_see_each_other() {
    let (one, other) = (Owner::start().await, Owner::start().await);
    one.done("r", 1).await;
    let client = Client::connect(other.path()).await.unwrap();
    assert_eq!(client.agents().await.unwrap(), []);
    assert_eq!(client.run(&boss(), "r").await.unwrap(), None);
    other.done("r", 3).await;
    assert_eq!(client.run(&boss(), "r").await.unwrap().unwrap().next_sequence, 5);
    let client = Client::connect(one.path()).await.unwrap();
    assert_eq!(client.run(&boss(), "r").await.unwrap().unwrap().next_sequence, 3);
}

#[tokio::test]
async fn agents_are_listed_page_by_page() {
    let owner = Owner::start().await;
    let mut names: Vec<String> = (0..5).map(|n| format!("BigBoss:ä {n}")).collect();
    for name in &names {
        let agent = owner.system.agent_at(&name.parse().unwrap()).unwrap();
        owner.dispatch_to(&agent, "r").await;
    }
    names.sort();
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let (status, _, page) = owner.ask("GET", &format!("/agents?limit=2{after}"), "").await;
        assert_eq!(status, 200, "{page}");
        let agents = page["agents"].as_array().unwrap();
        assert!(agents.len() <= 2, "{page}");
        seen.extend(agents.iter().map(|agent| agent.as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        assert_eq!(Some(next), seen.last().map(String::as_str));
        after = format!("&after={}", next.replace('ä', "%C3%A4").replace(' ', "%20"));
    }
    seen.sort();
    assert_eq!(seen, names, "each once");
    let all = owner.client().await.agents().await.unwrap();
    assert_eq!(all.iter().map(ToString::to_string).collect::<Vec<_>>(), names);
}
