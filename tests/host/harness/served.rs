//! A server of HTTP on a thread of its own.

use std::net::TcpListener;
use std::thread::JoinHandle;

use actix_web::dev::Server;
use tokio::sync::oneshot;

/// A server that runs until it is dropped.
pub struct Served {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    /// Serves what `server` makes of a listener.
    pub fn on(listener: TcpListener, server: impl FnOnce(TcpListener) -> Server + Send + 'static) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let server = server(listener);
                let handle = server.handle();
                actix_web::rt::spawn(server);
                let _ = stopped.await;
                handle.stop(false).await;
            });
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
