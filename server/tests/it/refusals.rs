//! What is refused, and how.

use serde_json::{Value, json};

use crate::support::{Owner, RUNS};

#[tokio::test]
async fn urls_that_are_none_say_why() {
    let owner = Owner::start().await;
    for (method, url, status, code) in [
        ("GET", "/", 404, "not-found"),
        ("GET", "/agents/", 404, "not-found"),
        ("GET", "/agents?limit=1001", 400, "invalid-parameter"),
        ("GET", "/agents?after=nobody", 400, "invalid-position"),
        ("GET", "/agents/big-boss/b", 404, "not-found"),
        ("GET", "/agents/other/b/runs", 404, "unknown-agent-type"),
        ("GET", "/agents/big-boss/%2e%2e/runs", 400, "invalid-name"),
        ("GET", "/agents/big-boss/a%00b/runs", 400, "invalid-name"),
        ("GET", "/agents/big-boss/%c3/runs", 400, "invalid-name"),
        ("GET", "/agents/big-boss/b/runs/nobody", 404, "unknown-run"),
        ("GET", "/agents/big-boss/b/runs/nobody/events", 404, "unknown-run"),
        ("POST", "/agents/big-boss/b/runs/nobody/cancel", 404, "unknown-run"),
        ("GET", "/agents/big-boss/b/runs?limit=0", 400, "invalid-parameter"),
        ("GET", "/agents/big-boss/b/runs?after=1", 400, "invalid-position"),
        ("DELETE", "/agents/big-boss/b/runs?state=error", 400, "invalid-parameter"),
        ("DELETE", "/agents/big-boss/b/runs?olderThan=7d", 400, "invalid-parameter"),
        ("DELETE", "/agents/big-boss/b/runs?status=failed", 400, "invalid-parameter"),
    ] {
        let (got, head, problem) = owner.ask(method, url, "").await;
        assert_eq!((got, problem["code"].as_str()), (status, Some(code)), "{url}: {problem}");
        assert!(head.contains("content-type: application/problem+json"), "{head}");
        assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
    }
    // A child's registry is there as soon as its address is: no run of it has to exist.
    let url = "/agents/big-boss/b/sub/worker/r/runs";
    let (status, _, page) = owner.ask("GET", url, "").await;
    assert_eq!((status, page), (200, json!({ "runs": [], "next": null })));
}

#[tokio::test]
async fn methods_that_are_none_are_told_which_are() {
    let owner = Owner::start().await;
    for (method, url, allow) in [
        ("POST", "/healthz", "get, head"),
        ("DELETE", "/agents", "get, head"),
        ("PUT", RUNS, "get, head, post, delete"),
        ("DELETE", "/agents/big-boss/b/runs/r", "get, head"),
        ("POST", "/agents/big-boss/b/runs/r/events", "get, head"),
        ("GET", "/agents/big-boss/b/runs/r/cancel", "post"),
    ] {
        let (status, head, problem) = owner.ask(method, url, "").await;
        assert_eq!((status, &problem["code"]), (405, &json!("method-not-allowed")), "{url}");
        assert!(head.contains(&format!("allow: {allow}\r\n")), "{head}");
    }
    let (status, _, body) = owner.ask("HEAD", RUNS, "").await;
    assert_eq!((status, body), (200, Value::Null));
}

#[tokio::test]
async fn a_body_over_1_mib_is_refused_and_its_sender_told() {
    let owner = Owner::start().await;
    let body = |bytes: usize| {
        let around = r#"{"agentType":"Worker","input":""}"#.len();
        format!(r#"{{"agentType":"Worker","input":"{}"}}"#, "x".repeat(bytes - around))
    };
    for over in [1, 1 << 20] {
        let (status, _, problem) = owner.post(RUNS, &body((1 << 20) + over)).await;
        assert_eq!((status, &problem["code"]), (413, &json!("too-large")), "{problem}");
    }
    let (status, _, _) = owner.post(RUNS, &body(1 << 20)).await;
    assert_eq!(status, 201);
}

#[tokio::test]
async fn a_body_of_another_type_is_refused() {
    let owner = Owner::start().await;
    let body = r#"{"agentType":"Worker","input":[0,0]}"#;
    let request = format!(
        "POST {RUNS} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: text/plain\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let (status, _, problem) = owner.raw(&request).await.whole().await;
    assert_eq!((status, &problem["code"]), (415, &json!("not-json")));
}

#[tokio::test]
async fn a_stopped_system_says_so() {
    let owner = Owner::start().await;
    owner.done("r", 1).await;
    owner.system.clone().crash().await;
    for url in ["/agents", RUNS, "/agents/big-boss/b/runs/r"] {
        let (status, _, problem) = owner.ask("GET", url, "").await;
        assert!(status >= 500, "{url}: {problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(!detail.contains('/') && !detail.contains("0x"), "{detail}");
    }
}
