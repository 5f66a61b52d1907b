//! The stream under a connection, which notes what arrives.
//!
//! A reply may take longer than a heartbeat: as long as its bytes arrive, the connection is alive.
//! The client library tells of whole replies alone, so the near cache opens TCP and Unix sockets
//! itself and counts the arrivals. TLS streams belong to the library: their bytes are not counted.

use redis::io::tcp::socket2::SockRef;
use redis::{ConnectionAddr, ConnectionInfo};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long an address of a host may take before the next one is tried beside it.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);

/// What has arrived on one connection so far.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    bytes: AtomicU64,
    /// The first bytes: a server that refuses a connection says why in them, and closes.
    first: OnceLock<Vec<u8>>,
}

impl Arrivals {
    /// How many bytes have arrived.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The error with which the server has greeted the client, if it has.
    pub(crate) fn refusal(&self) -> Option<String> {
        let first = self.first.get()?.strip_prefix(b"-")?;
        let line = first.split(|byte| *byte == b'\r').next()?;
        Some(String::from_utf8_lossy(line).into_owned())
    }

    fn note(&self, bytes: &[u8]) {
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let begin = || bytes[..bytes.len().min(200)].to_vec();
        self.first.get_or_init(begin);
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A stream that notes what arrives.
pub(crate) struct Noted {
    inner: Box<dyn Io>,
    arrivals: Arc<Arrivals>,
}

/// Opens the socket of a server; `None` if only the client library can (TLS).
pub(crate) async fn open(info: &ConnectionInfo) -> io::Result<Option<(Noted, Arc<Arrivals>)>> {
    let inner: Box<dyn Io> = match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            // Resolves the name anew each time.
            let addresses = lookup_host((host.as_str(), *port)).await?;
            let stream = first_to_accept(addresses).await?;
            stream.set_nodelay(true)?;
            let settings = info.tcp_settings();
            if let Some(keepalive) = settings.keepalive() {
                SockRef::from(&stream).set_tcp_keepalive(keepalive)?;
            }
            #[cfg(target_os = "linux")]
            SockRef::from(&stream).set_tcp_user_timeout(settings.user_timeout())?;
            Box::new(stream)
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => Box::new(tokio::net::UnixStream::connect(path).await?),
        _ => return Ok(None),
    };
    let arrivals = Arc::<Arrivals>::default();
    let noted = Noted {
        inner,
        arrivals: arrivals.clone(),
    };
    Ok(Some((noted, arrivals)))
}

/// Connects to the address that accepts first. Each has some time before the next one is tried,
/// too (RFC 8305): one that is dead delays the others by that time.
async fn first_to_accept(addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut addresses = addresses.peekable();
    let mut refused = io::Error::other("the name of the host has no address");
    let mut attempts = JoinSet::new();
    loop {
        if let Some(address) = addresses.next() {
            attempts.spawn(TcpStream::connect(address));
        }
        let ended = match addresses.peek() {
            Some(_) => timeout(NEXT_ADDRESS_AFTER, attempts.join_next()).await,
            None => Ok(attempts.join_next().await),
        };
        match ended {
            Ok(Some(Ok(Ok(stream)))) => return Ok(stream),
            Ok(Some(Ok(Err(error)))) => refused = error,
            Ok(Some(Err(panic))) => refused = io::Error::other(panic),
            Ok(None) => return Err(refused),
            // The next address is tried beside it.
            Err(_) => {}
        }
    }
}

impl AsyncRead for Noted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        self.arrivals.note(&buf.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Noted {
    /// A server that closes the connection may have said why. So a write to a closed connection
    /// ends well here, and the next read brings the server's words or the end.
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset};
        Poll::Ready(
            match ready!(Pin::new(&mut self.inner).poll_write(cx, buf)) {
                Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset) => Ok(buf.len()),
                written => written,
            },
        )
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::io::tcp::socket2::{Domain, Socket, Type};
    use tokio::net::TcpListener;

    /// An address that drops what is sent to it, and one at which nothing listens.
    #[tokio::test]
    async fn dead_addresses_before_the_right_one_cost_little() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let right = listener.local_addr().unwrap();
        // Its queue has room for one client, and no one takes that client out.
        let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        full.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .unwrap();
        full.listen(0).unwrap();
        let silent = full.local_addr().unwrap().as_socket().unwrap();
        let _first = TcpStream::connect(silent).await.unwrap();
        let second = timeout(Duration::from_millis(100), TcpStream::connect(silent));
        assert!(second.await.is_err(), "it is silent");
        let closed: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let accepting = first_to_accept([silent, closed, right].into_iter());
        let stream = timeout(Duration::from_secs(5), accepting).await;
        assert_eq!(stream.unwrap().unwrap().peer_addr().unwrap(), right);
        let refused = first_to_accept([closed].into_iter()).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert!(first_to_accept([].into_iter()).await.is_err());
    }
}
