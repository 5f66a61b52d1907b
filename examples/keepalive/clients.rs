//! The clients: each beats until its part says otherwise, and notes when it sees the server's
//! close.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{self, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until};

use crate::ledger::Ledger;
use crate::plan::{Plan, Role};
use crate::server::HELLO_LEN;
use crate::threads::{single_threaded, spawn_named, told_to_stop};

type Outcome = Result<(), String>;

pub(crate) fn start(
    plan: Plan,
    server: SocketAddr,
    ledger: Arc<Ledger>,
    stopped: watch::Receiver<bool>,
) -> Result<JoinHandle<Outcome>, String> {
    let runtime = single_threaded()?;
    spawn_named("clients", move || {
        runtime.block_on(play_all(plan, server, ledger, stopped))
    })
}

async fn play_all(
    plan: Plan,
    server: SocketAddr,
    ledger: Arc<Ledger>,
    stopped: watch::Receiver<bool>,
) -> Outcome {
    let start = Instant::now();
    let mut clients = JoinSet::new();
    for id in 0..plan.connections {
        sleep_until(start + plan.connects_at(id)).await;
        // One at a time, so that the server's queue of waiting connections never overflows.
        let socket = TcpStream::connect(server)
            .await
            .map_err(|error| format!("client {id} cannot connect to {server}: {error}"))?;
        let client = Client {
            id,
            socket,
            silence: plan.silence(id),
            role: plan.role(id),
        };
        clients.spawn(client.play(Arc::clone(&ledger), stopped.clone()));
    }
    while let Some(ended) = clients.join_next().await {
        ended.map_err(|error| format!("a client's task panicked: {error}"))?;
    }
    Ok(())
}

#[derive(PartialEq)]
enum Ended {
    ByServer,
    ByClient,
}

struct Client {
    id: u32,
    socket: TcpStream,
    silence: Duration,
    role: Role,
}

impl Client {
    /// Plays the part to its end; notes it if that end is the server's close.
    async fn play(mut self, ledger: Arc<Ledger>, stopped: watch::Receiver<bool>) {
        // An error of the socket means that the server has shut it, like the end of the file.
        if self.talk(stopped).await.unwrap_or(Ended::ByServer) == Ended::ByServer {
            ledger.close_seen(self.id);
        }
    }

    async fn talk(&mut self, mut stopped: watch::Receiver<bool>) -> io::Result<Ended> {
        self.socket.write_all(&self.hello()).await?;
        let connected = Instant::now();
        let beat_every = self.silence / 4;
        let mut beats = interval_at(connected + beat_every, beat_every);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (silent_after, closes_after) = match self.role {
            Role::Steady => (Duration::MAX, Duration::MAX),
            Role::FallsSilent(after) => (after, Duration::MAX),
            Role::Closes(after) => (Duration::MAX, after),
        };

        let closing = sleep(closes_after);
        tokio::pin!(closing);
        let mut byte = [0];
        loop {
            tokio::select! {
                // The server never writes: whatever ends this read is its close.
                _ = self.socket.read(&mut byte) => return Ok(Ended::ByServer),
                _ = beats.tick() => {
                    if connected.elapsed() < silent_after {
                        self.socket.write_all(b".").await?;
                    }
                }
                () = &mut closing => return Ok(Ended::ByClient),
                () = told_to_stop(&mut stopped) => return Ok(Ended::ByClient),
            }
        }
    }

    fn hello(&self) -> [u8; HELLO_LEN] {
        let mut hello = [0; HELLO_LEN];
        hello[..4].copy_from_slice(&self.id.to_be_bytes());
        hello[4..].copy_from_slice(&(self.silence.as_millis() as u32).to_be_bytes());
        hello
    }
}
