//! An owner of a data folder, and ways to talk to it.

use std::path::Path;
use std::sync::Arc;

use ghostlight::prelude::*;
use ghostlight::{AgentPath, AgentRef, DispatchOptions, System};
use ghostlight_server::{Client, ControlSocket};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

pub(crate) struct Boss;

impl Agent for Boss {
    const TYPE: &'static str = "BigBoss";
}

/// Emits so many chunks of so many bytes, each when the gate lets it.
pub(crate) struct Worker {
    gate: Arc<Semaphore>,
}

impl Agent for Worker {
    const TYPE: &'static str = "Worker";
}

impl Child for Worker {
    type Input = (u32, usize);
    type Output = u32;

    async fn run(&self, cx: &RunContext, (chunks, bytes): (u32, usize)) -> Result<u32, RunError> {
        for chunk in 0..chunks {
            self.gate.acquire().await?.forget();
            cx.emit(json!({ "type": "data-n", "data": chunk, "pad": "x".repeat(bytes) })).await?;
        }
        Ok(chunks)
    }
}

/// A system that serves its control socket.
pub(crate) struct Owner {
    pub(crate) system: System,
    pub(crate) gate: Arc<Semaphore>,
    pub(crate) folder: TempDir,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) serving: JoinHandle<()>,
}

impl Owner {
    pub(crate) async fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap()).await
    }

    pub(crate) async fn start_in(folder: TempDir) -> Self {
        let gate = Arc::new(Semaphore::new(0));
        let worker = Worker { gate: Arc::clone(&gate) };
        let system = System::in_memory().agent(Boss).child(worker).start().await.unwrap();
        let socket = ControlSocket::bind(folder.path()).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(socket.serve(system.clone(), async {
            let _ = stopped.await;
        }));
        Self { system, gate, folder, stop: Some(stop), serving }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.path()).await.unwrap()
    }

    pub(crate) async fn dispatch(&self, id: &str, chunks: u32, bytes: usize) {
        let agent = self.system.agent::<Boss>("b").unwrap();
        agent.start::<Worker>((chunks, bytes)).id(id).await.unwrap();
    }

    /// Dispatches a run of some other agent, which does nothing.
    pub(crate) async fn dispatch_to(&self, agent: &AgentRef, id: &str) {
        let options = DispatchOptions { id: Some(id.to_owned()), ..DispatchOptions::default() };
        agent.dispatch_json("Worker", &json!([0, 0]), options).await.unwrap();
    }

    /// Waits for a run's end.
    pub(crate) async fn ended(&self, id: &str) {
        let agent = self.system.agent::<Boss>("b").unwrap();
        agent.attach::<Worker>(id).await.unwrap().unwrap().outcome().await.unwrap();
    }

    /// Dispatches a run and waits for its end.
    pub(crate) async fn done(&self, id: &str, chunks: u32) {
        self.gate.add_permits(chunks as usize);
        self.dispatch(id, chunks, 0).await;
        self.ended(id).await;
    }

    /// Sends a request as it stands, on a connection of its own.
    pub(crate) async fn raw(&self, request: &str) -> Raw {
        let mut stream = UnixStream::connect(self.path().join("control.sock")).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        Raw { stream, text: String::new() }
    }

    /// Sends a request without body, and returns the answer's status, head and JSON.
    pub(crate) async fn ask(&self, method: &str, url: &str, headers: &str) -> (u16, String, Value) {
        let head = format!("{method} {url} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}");
        self.raw(&format!("{head}\r\n")).await.whole().await
    }

    pub(crate) async fn post(&self, url: &str, body: &str) -> (u16, String, Value) {
        let length = body.len();
        let head = format!(
            "POST {url} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        self.raw(&(head + body)).await.whole().await
    }

    /// Tells the server to stop, and waits for it.
    pub(crate) async fn stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
        (&mut self.serving).await.unwrap();
    }
}

/// A connection, read by hand.
pub(crate) struct Raw {
    pub(crate) stream: UnixStream,
    pub(crate) text: String,
}

impl Raw {
    /// Reads on until what was read holds `text`, or the connection ends.
    pub(crate) async fn until(&mut self, text: &str) -> &str {
        while !self.text.contains(text) {
            let mut bytes = [0; 4096];
            let read = self.stream.read(&mut bytes).await.unwrap();
            assert!(read > 0, "the connection ended before {text:?}: {}", self.text);
            self.text.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        }
        &self.text
    }

    pub(crate) async fn whole(mut self) -> (u16, String, Value) {
        self.stream.read_to_string(&mut self.text).await.unwrap();
        let (head, body) = self.text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let json = if body.is_empty() { Value::Null } else { serde_json::from_str(body).unwrap() };
        (status, head.to_lowercase(), json)
    }
}

pub(crate) fn boss() -> AgentPath {
    AgentPath::root("BigBoss", "b").unwrap()
}

pub(crate) const RUNS: &str = "/agents/big-boss/b/runs";
