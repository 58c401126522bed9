//! Connections: how many there may be, and for how long they may do nothing.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Sleep;

/// How long the head of a request may take, and a connection be idle.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a reader may take nothing of what waits for it.
const WRITE_TIME_MAX: Duration = Duration::from_secs(30);
/// The most bytes of an answer that wait in memory for a slow reader, and of the head of a request.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// How long answers under way may take once the server was told to stop.
const STOP_TIME_MAX: Duration = Duration::from_secs(1);

/// The connections of one listener.
pub(crate) struct Connections {
    slots: Arc<Semaphore>,
    router: axum::Router,
    stopped: watch::Receiver<bool>,
    tasks: JoinSet<()>,
}

impl Connections {
    /// At most `max` at a time; further ones wait to be accepted. They end once `stopped` is true.
    pub(crate) fn new(max: usize, router: axum::Router, stopped: watch::Receiver<bool>) -> Self {
        let slots = Arc::new(Semaphore::new(max));
        Self { slots, router, stopped, tasks: JoinSet::new() }
    }

    /// Accepts connections until `shutdown` is there, and closes the listener.
    pub(crate) async fn accept<L: Listener>(
        &mut self,
        mut listener: L,
        shutdown: impl Future<Output = ()>,
    ) {
        let Self { slots, router, stopped, tasks } = self;
        let mut shutdown = pin!(shutdown);
        loop {
            let accepted = async {
                // The semaphore is never closed.
                let slot = Arc::clone(slots).acquire_owned().await.ok();
                let (stream, _) = listener.accept().await;
                (stream, slot)
            };
            tokio::select! {
                biased;
                () = &mut shutdown => return,
                Some(ended) = tasks.join_next() => note_panic(ended),
                (stream, slot) = accepted => {
                    let (router, stopped) = (router.clone(), stopped.clone());
                    tasks.spawn(async move {
                        converse(stream, router, stopped).await;
                        drop(slot);
                    });
                }
            }
        }
    }

    /// Waits a second for the answers under way, and cuts off who has not read its own by then.
    pub(crate) async fn end(mut self) {
        let ended = async {
            while let Some(ended) = self.tasks.join_next().await {
                note_panic(ended);
            }
        };
        let _ = tokio::time::timeout(STOP_TIME_MAX, ended).await;
        self.tasks.shutdown().await;
    }
}

async fn converse<S>(stream: S, router: axum::Router, mut stopped: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(Impatient::new(stream)), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = async { stopped.wait_for(|stop| *stop).await.is_ok() } => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection was cut");
    }
}

fn note_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection panicked");
    }
}

/// A stream on which a write that gets nowhere for [`WRITE_TIME_MAX`] fails.
struct Impatient<S> {
    stream: S,
    /// Runs while a write waits.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> Impatient<S> {
    fn new(stream: S) -> Self {
        Self { stream, timer: None }
    }

    fn unless_stuck<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.timer = None;
            return written;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(WRITE_TIME_MAX)));
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "its reader takes nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.unless_stuck(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.unless_stuck(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.unless_stuck(cx, shut)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.unless_stuck(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reader_has_so_long_for_every_part() {
        let (near, mut far) = tokio::io::duplex(1);
        let mut near = Impatient::new(near);
        let begin = Instant::now();
        let reading = async {
            for _ in 0..5 {
                tokio::time::sleep(WRITE_TIME_MAX - Duration::from_secs(1)).await;
                far.read_u8().await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(near.write_all(b"123456"), reading);
        written.unwrap();
        let error = near.write_all(b"7").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begin.elapsed(), 5 * (WRITE_TIME_MAX - Duration::from_secs(1)) + WRITE_TIME_MAX);
    }

    /// Neither who says nothing nor who does not read keeps the others out for good.
    #[tokio::test(start_paused = true)]
    async fn connections_that_do_nothing_are_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let large = "x".repeat(64 << 20);
        let router = axum::Router::new()
            .route("/", axum::routing::get(async || "hello"))
            .route("/large", axum::routing::get(move || async move { large }));
        let (stop, stopped) = watch::channel(false);
        let mut connections = Connections::new(2, router, stopped);
        let serving = tokio::spawn(async move {
            connections.accept(listener, std::future::pending()).await;
        });
        let _silent = TcpStream::connect(address).await.unwrap();
        let mut unread = TcpStream::connect(address).await.unwrap();
        unread.write_all(b"GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut third = TcpStream::connect(address).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        third.write_all(request).await.unwrap();
        let mut answer = String::new();
        third.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("hello"), "{answer}");
        serving.abort();
        drop(stop);
    }
}
