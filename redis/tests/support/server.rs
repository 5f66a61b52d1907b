//! Real servers as child processes, on free ports of 127.0.0.1.

use super::Writer;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Set by `ci/redis.sh`: a test that finds no server fails instead of being skipped.
const REQUIRED: &str = "WHEELHOUSE_REDIS_REQUIRED";
const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

/// The server programs of this machine. Empty: the test is skipped, with a message.
pub fn installed() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find = |name: &str| {
        std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|program| program.is_file())
    };
    let mut found: Vec<PathBuf> = PROGRAMS.iter().filter_map(|name| find(name)).collect();
    // One may be a link to the other.
    found.dedup_by_key(|program| program.canonicalize().ok());
    if found.is_empty() {
        let advice = "no redis-server and no valkey-server on the PATH: install one \
                      (Debian: apt-get install redis-server)";
        assert!(std::env::var_os(REQUIRED).is_none(), "{advice}");
        eprintln!("skipped: {advice}");
    }
    found
}

/// A server that runs; stopped when dropped, also by a panic.
pub struct Server {
    program: PathBuf,
    folder: PathBuf,
    options: Vec<String>,
    pub port: u16,
    child: Child,
}

impl Server {
    pub async fn start(program: &Path, options: &[&str]) -> Self {
        let options: Vec<String> = options.iter().map(|o| (*o).to_string()).collect();
        // Another process may take the free port before the server does.
        for _ in 0..10 {
            let (port, folder) = (free_port(), new_folder());
            let mut server = Self {
                child: launch(program, &folder, port, &options),
                program: program.to_path_buf(),
                folder,
                options: options.clone(),
                port,
            };
            if server.answers().await {
                return server;
            }
        }
        panic!("{} does not start", program.display());
    }

    /// Ends the process at once, as a crash does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts the process anew on the same port, with an empty memory.
    pub async fn restart(&mut self) {
        self.kill();
        for _ in 0..50 {
            self.child = launch(&self.program, &self.folder, self.port, &self.options);
            if self.answers().await {
                return;
            }
        }
        panic!("{} does not start again", self.program.display());
    }

    /// Starts the process anew on the same port, with more options, and does not wait until it
    /// answers.
    pub fn relaunch(&mut self, more: &[&str]) {
        self.kill();
        let more = more.iter().map(|option| (*option).to_string());
        let options: Vec<_> = self.options.iter().cloned().chain(more).collect();
        self.child = launch(&self.program, &self.folder, self.port, &options);
    }

    /// Stops the process where it is; it keeps its connections and answers nothing.
    pub fn stop(&self) {
        self.signal("STOP");
    }

    /// Lets it continue.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(status.unwrap().success(), "kill -s {name} {pid}");
    }

    async fn answers(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            if std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                // A node of a cluster may listen and then end: its second port is taken.
                if let Ok(mut writer) = Writer::try_connect(self.port).await {
                    return writer.try_send::<String>(&["PING"]).await.is_ok();
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    }
}

/// A primary and its replica, in step.
pub async fn pair(program: &Path, options: &[&str]) -> (Server, Server) {
    let primary = Server::start(program, options).await;
    let source = format!("127.0.0.1 {}", primary.port);
    let options = [options, &["--replicaof", &source]].concat();
    let replica = Server::start(program, &options).await;
    replicates(replica.port).await;
    (primary, replica)
}

/// A replica of this primary, in step.
pub async fn replica_of(program: &Path, primary: u16) -> Server {
    let source = format!("127.0.0.1 {primary}");
    let replica = Server::start(program, &["--replicaof", &source]).await;
    replicates(replica.port).await;
    replica
}

/// Makes the replica the primary, and the primary its replica.
pub async fn exchange_roles(primary: u16, replica: u16) {
    let asked = Writer::connect(primary).await;
    let port = replica.to_string();
    let failover = ["FAILOVER", "TO", "127.0.0.1", &port];
    // The replica may not be in step yet.
    super::until("the failover begins", async || {
        asked.clone().try_send::<()>(&failover).await.is_ok()
    })
    .await;
    super::until("the primary is a replica", async || {
        let info: String = asked.clone().send(&["INFO", "replication"]).await;
        info.contains("role:slave")
    })
    .await;
    replicates(primary).await;
    let info: String = Writer::connect(replica)
        .await
        .send(&["INFO", "replication"])
        .await;
    assert!(info.contains("role:master"), "{info}");
}

/// Waits until this replica is in step.
async fn replicates(port: u16) {
    let asked = Writer::connect(port).await;
    super::until("the replica is in step", async || {
        let info = asked
            .clone()
            .try_send::<String>(&["INFO", "replication"])
            .await;
        info.is_ok_and(|info| info.contains("master_link_status:up"))
    })
    .await;
}

/// A sentinel that watches the primary at this port, with two more for a majority.
pub async fn sentinel(program: &Path, primary: u16) -> Server {
    let watch = format!(
        "sentinel monitor main 127.0.0.1 {primary} 2\n\
         sentinel down-after-milliseconds main 500\n\
         sentinel failover-timeout main 5000\n"
    );
    for _ in 0..10 {
        let (port, folder) = (free_port(), new_folder());
        // A sentinel writes to its file, and takes no options but those in it.
        let file = folder.join("sentinel.conf");
        let listen = format!("port {port}\nbind 127.0.0.1\nprotected-mode no\n");
        let own = format!("dir {}\n{watch}", folder.display());
        std::fs::write(&file, listen + &own).unwrap();
        let mut server = Server {
            child: quietly(Command::new(program).arg(&file).arg("--sentinel")),
            program: program.to_path_buf(),
            folder,
            options: Vec::new(),
            port,
        };
        if server.answers().await {
            return server;
        }
    }
    panic!("{} --sentinel does not start", program.display());
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn launch(program: &Path, folder: &Path, port: u16, options: &[String]) -> Child {
    let mut command = Command::new(program);
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
        .arg("--dir")
        .arg(folder)
        .args(options);
    quietly(&mut command)
}

fn quietly(command: &mut Command) -> Child {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.stderr(Stdio::null()).spawn();
    child.unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

pub fn free_port() -> u16 {
    loop {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        // A node of a cluster also listens 10,000 above.
        if port < 55_000 {
            return port;
        }
    }
}

fn new_folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("server-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(format!("wheelhouse-redis-{name}"));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
