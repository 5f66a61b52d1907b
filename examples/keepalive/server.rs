//! The server: accepts connections, stores each in the cache, reads heartbeats. The cache does the
//! dropping.

use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{self, Interest};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use wheelhouse::{Cache, RemovalCause, expiry};

use crate::CACHE_NAME;
use crate::ledger::Ledger;
use crate::plan::Plan;
use crate::threads::{single_threaded, spawn_named, told_to_stop};

/// A client's first bytes: its number and the silence it asks for in milliseconds, both `u32`,
/// big-endian.
pub(crate) const HELLO_LEN: usize = 8;

/// The value of the cache: what is needed to end a connection.
pub(crate) struct Session {
    socket: Arc<TcpStream>,
    silence: Duration,
}

pub(crate) fn session_cache(plan: &Plan, ledger: &Arc<Ledger>) -> Cache<u32, Session> {
    let ledger = Arc::clone(ledger);
    Cache::builder()
        .name(CACHE_NAME)
        .initial_capacity(plan.connections as usize)
        .expiry_resolution(plan.resolution)
        // On create and on every read: from now, as long as this client asked for.
        .expire_after(expiry::accessing(|_id: &u32, session: &Session| {
            Some(session.silence)
        }))
        .removal_listener(
            move |&id: &u32, session: &Session, cause: RemovalCause| match cause {
                RemovalCause::Expired => {
                    ledger.heard_expired(id);
                    // Wakes the connection's task with end-of-file and sends the client a FIN. It
                    // fails only if the client has gone in the meantime, and then there is nothing
                    // left to shut.
                    _ = SockRef::from(&*session.socket).shutdown(Shutdown::Both);
                }
                RemovalCause::Explicit => ledger.heard_explicit(id),
                _ => ledger.heard_other(id),
            },
        )
        .build()
}

type Outcome = Result<(), String>;

pub(crate) fn start(
    cache: Cache<u32, Session>,
    ledger: Arc<Ledger>,
    stopped: watch::Receiver<bool>,
) -> Result<(SocketAddr, JoinHandle<Outcome>), String> {
    let runtime = single_threaded()?;
    let listener = runtime
        .block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .map_err(|error| format!("cannot listen on a loopback port: {error}"))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let thread = spawn_named("server", move || {
        runtime.block_on(accept_all(listener, cache, ledger, stopped))
    })?;
    Ok((address, thread))
}

async fn accept_all(
    listener: TcpListener,
    cache: Cache<u32, Session>,
    ledger: Arc<Ledger>,
    mut stopped: watch::Receiver<bool>,
) -> Outcome {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = told_to_stop(&mut stopped) => break,
        };
        let (socket, _) =
            accepted.map_err(|error| format!("cannot accept a connection: {error}"))?;
        connections.spawn(serve(Arc::new(socket), cache.clone(), Arc::clone(&ledger)));
    }
    // The clients have been told to close: every connection ends by itself.
    while let Some(ended) = connections.join_next().await {
        ended.map_err(|error| format!("a connection's task panicked: {error}"))?;
    }
    Ok(())
}

async fn serve(socket: Arc<TcpStream>, cache: Cache<u32, Session>, ledger: Arc<Ledger>) {
    let Some((id, silence)) = hello(&socket).await else {
        return;
    };
    let connected_at = ledger.now();
    cache.insert(
        id,
        Session {
            socket: Arc::clone(&socket),
            silence,
        },
    );
    ledger.beat(id, connected_at);

    let mut bytes = [0; 64];
    while let Ok(1..) = read(&socket, &mut bytes).await {
        let received_at = ledger.now();
        // This read is all that keeps the connection alive.
        if cache.get_ref(&id).is_some() {
            ledger.beat(id, received_at);
        } else {
            // Too late: the entry is due, and the listener shuts the socket.
            ledger.refused(id, received_at);
        }
    }
    // The client closed, or the listener shut the socket; then the entry has gone already and this
    // does nothing.
    cache.invalidate(&id);
}

async fn hello(socket: &TcpStream) -> Option<(u32, Duration)> {
    let mut hello = [0; HELLO_LEN];
    let mut filled = 0;
    while filled < HELLO_LEN {
        match read(socket, &mut hello[filled..]).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => filled += count,
        }
    }
    let (id, silence) = hello.split_at(4);
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0u32, |number, &byte| number << 8 | u32::from(byte))
    };
    Some((number(id), Duration::from_millis(number(silence).into())))
}

/// Reads from a shared socket: the cache holds the other reference.
async fn read(socket: &TcpStream, bytes: &mut [u8]) -> io::Result<usize> {
    socket
        .async_io(Interest::READABLE, || socket.try_read(bytes))
        .await
}
