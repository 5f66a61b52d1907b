//! How the two threads that carry sockets start, and how their tasks are told to end.

use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

pub(crate) fn single_threaded() -> Result<Runtime, String> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start a runtime: {error}"))
}

pub(crate) fn spawn_named<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, String> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(|error| format!("cannot start the thread \"{name}\": {error}"))
}

pub(crate) async fn told_to_stop(stopped: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, and then the run is over as well.
    _ = stopped.wait_for(|stop| *stop).await;
}
