//! A TCP proxy that misbehaves on demand.
//!
//! Each connection has two directions, each copied by a task. The tasks obey the controls before
//! they pass on what they have read, so order within a direction is kept and nothing is lost but
//! by a cut.

use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, watch};
use tokio::task::{AbortHandle, JoinSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

#[derive(Clone, Default)]
struct Controls {
    /// Connections accepted before this count are cut.
    cut: u64,
    refuse: bool,
    /// The connection of this number passes nothing on; zero: none.
    muted: u64,
    /// Connections accepted before the count pass nothing on in that direction.
    hold_to_server: u64,
    hold_to_client: u64,
    delay_to_server: Duration,
    delay_to_client: Duration,
    /// Connections accepted before the count end that direction, and keep the other.
    shut_to_server: u64,
    shut_to_client: u64,
    /// How many bytes a second go to the client; zero: as many as come.
    rate: u64,
    /// The port of the server, for new connections.
    server: u16,
}

impl Controls {
    fn hold(&mut self, direction: Direction) -> &mut u64 {
        match direction {
            Direction::ToServer => &mut self.hold_to_server,
            Direction::ToClient => &mut self.hold_to_client,
        }
    }

    fn delay(&mut self, direction: Direction) -> &mut Duration {
        match direction {
            Direction::ToServer => &mut self.delay_to_server,
            Direction::ToClient => &mut self.delay_to_client,
        }
    }

    fn shut(&mut self, direction: Direction) -> &mut u64 {
        match direction {
            Direction::ToServer => &mut self.shut_to_server,
            Direction::ToClient => &mut self.shut_to_client,
        }
    }
}

pub struct Proxy {
    pub port: u16,
    controls: watch::Sender<Controls>,
    accepted: Arc<Mutex<u64>>,
    sent: Arc<Mutex<Vec<Vec<u8>>>>,
    forged: broadcast::Sender<Vec<u8>>,
    task: AbortHandle,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    pub async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let controls = watch::Sender::new(Controls {
            server,
            ..Controls::default()
        });
        let accepted = Arc::new(Mutex::new(0));
        let sent = Arc::new(Mutex::new(Vec::new()));
        let forged = broadcast::Sender::new(16);
        let task = tokio::spawn(accept(
            listener,
            controls.clone(),
            accepted.clone(),
            sent.clone(),
            forged.clone(),
        ));
        let task = task.abort_handle();
        Self {
            port,
            controls,
            accepted,
            sent,
            forged,
            task,
        }
    }

    /// Cuts all present connections.
    pub fn cut(&self) {
        let accepted = *self.accepted.lock().unwrap();
        self.controls.send_modify(|c| c.cut = accepted);
    }

    /// Whether new connections are closed at once.
    pub fn refuse(&self, refuse: bool) {
        self.controls.send_modify(|c| c.refuse = refuse);
    }

    /// Holds back one direction of all present connections, and of no later one.
    pub fn hold(&self, direction: Direction) {
        let accepted = *self.accepted.lock().unwrap();
        self.controls.send_modify(|c| *c.hold(direction) = accepted);
    }

    /// Holds back one direction of all connections, later ones included.
    pub fn hold_all(&self, direction: Direction) {
        self.controls.send_modify(|c| *c.hold(direction) = u64::MAX);
    }

    /// Passes nothing on for the newest connection, in either direction.
    pub fn mute_newest(&self) {
        let newest = self.accepted();
        self.controls.send_modify(|c| c.muted = newest);
    }

    /// Passes on what was held back.
    pub fn release(&self, direction: Direction) {
        self.controls.send_modify(|c| *c.hold(direction) = 0);
    }

    /// Delays what is passed on in one direction from now on.
    pub fn delay(&self, direction: Direction, by: Duration) {
        self.controls.send_modify(|c| *c.delay(direction) = by);
    }

    /// Passes at most this many bytes a second to the clients; zero: as many as come.
    pub fn throttle(&self, bytes_a_second: u64) {
        self.controls.send_modify(|c| c.rate = bytes_a_second);
    }

    /// Connects later clients to the server at this port.
    pub fn retarget(&self, server: u16) {
        self.controls.send_modify(|c| c.server = server);
    }

    /// Ends one direction of all present connections; the other continues.
    pub fn half_close(&self, direction: Direction) {
        let accepted = *self.accepted.lock().unwrap();
        self.controls.send_modify(|c| *c.shut(direction) = accepted);
    }

    /// Sends bytes to the clients of all present connections, as if the server had.
    pub fn forge(&self, bytes: &[u8]) {
        let _ = self.forged.send(bytes.to_vec());
    }

    /// How many connections were accepted.
    pub fn accepted(&self) -> u64 {
        *self.accepted.lock().unwrap()
    }

    /// What clients sent, piece by piece, since the last call.
    pub fn take_sent(&self) -> Vec<String> {
        let pieces = std::mem::take(&mut *self.sent.lock().unwrap());
        pieces
            .iter()
            .map(|p| String::from_utf8_lossy(p).into_owned())
            .collect()
    }
}

async fn accept(
    listener: TcpListener,
    controls: watch::Sender<Controls>,
    accepted: Arc<Mutex<u64>>,
    sent: Arc<Mutex<Vec<Vec<u8>>>>,
    forged: broadcast::Sender<Vec<u8>>,
) {
    // Dropped with this task, which ends the tasks in it.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        if controls.borrow().refuse {
            continue;
        }
        let server = controls.borrow().server;
        let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else {
            continue;
        };
        for stream in [&client, &server] {
            stream.set_nodelay(true).unwrap();
        }
        let number = {
            let mut accepted = accepted.lock().unwrap();
            *accepted += 1;
            *accepted
        };
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let (mut cut, log) = (controls.subscribe(), sent.clone());
        let up = copy(
            Direction::ToServer,
            number,
            from_client,
            to_server,
            &controls,
            Some(log),
            None,
        );
        let down = copy(
            Direction::ToClient,
            number,
            from_server,
            to_client,
            &controls,
            None,
            Some(forged.subscribe()),
        );
        connections.spawn(async move {
            tokio::select! {
                _ = async { tokio::join!(up, down) } => {}
                _ = cut.wait_for(|c| number <= c.cut) => {}
            }
        });
    }
}

fn copy(
    direction: Direction,
    number: u64,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    controls: &watch::Sender<Controls>,
    log: Option<Arc<Mutex<Vec<Vec<u8>>>>>,
    mut forged: Option<broadcast::Receiver<Vec<u8>>>,
) -> impl Future<Output = ()> + use<> {
    let (mut held, mut shut) = (controls.subscribe(), controls.subscribe());
    async move {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let step = tokio::select! {
                biased;
                _ = shut.wait_for(|c| number <= *c.clone().shut(direction)) => Ok(0),
                bytes = next(&mut forged) => Err(bytes),
                read = from.read(&mut buffer) => Ok(read.unwrap_or(0)),
            };
            let read = match step {
                Ok(read) => read,
                Err(bytes) => {
                    to.write_all(&bytes).await.unwrap();
                    continue;
                }
            };
            if read == 0 {
                let _ = to.shutdown().await;
                // The read half stays open, so the other direction continues.
                std::future::pending::<()>().await;
            }
            if let Some(log) = &log {
                log.lock().unwrap().push(buffer[..read].to_vec());
            }
            let delay = *held.borrow().clone().delay(direction);
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            let rate = held.borrow().rate;
            if rate > 0 && direction == Direction::ToClient {
                tokio::time::sleep(Duration::from_secs(1) * read as u32 / rate as u32).await;
            }
            let held_back =
                |c: &Controls| number == c.muted || number <= *c.clone().hold(direction);
            let _ = held.wait_for(|c| !held_back(c)).await;
            if to.write_all(&buffer[..read]).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

async fn next(forged: &mut Option<broadcast::Receiver<Vec<u8>>>) -> Vec<u8> {
    match forged {
        Some(forged) => match forged.recv().await {
            Ok(bytes) => bytes,
            Err(_) => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}
